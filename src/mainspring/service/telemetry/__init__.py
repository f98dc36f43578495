"""Health, metrics and spans, derived from the log."""
