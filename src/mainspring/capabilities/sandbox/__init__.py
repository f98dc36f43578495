"""Where programs run: behind a kernel boundary, within limits, each exactly once."""
