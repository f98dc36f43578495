"""Reads, writes and records suites."""
