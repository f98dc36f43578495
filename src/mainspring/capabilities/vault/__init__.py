"""Secrets: stored encrypted, by name, and recognised in any text."""
