"""Exports sessions: Claude Code transcripts, Markdown, one HTML page."""
