"""Tool calls: found, authorized, run, settled, and recovered after a crash."""
