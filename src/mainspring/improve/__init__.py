"""Make agents better, using `runtime` as any client does."""
