"""Sessions in the formats of others: Claude Code's transcripts, Markdown, one HTML page."""
