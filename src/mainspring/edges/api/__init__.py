"""The HTTP API: requests in, responses and streams out; no decisions."""
