"""Health, metrics and spans, made of what the log tells."""
