"""Workflows: graphs of steps in YAML, in the format of Archon, that run as durable sessions."""
