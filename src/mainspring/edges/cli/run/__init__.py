"""Runs a session at a terminal or for a script: options, input, approvals, closing status."""
