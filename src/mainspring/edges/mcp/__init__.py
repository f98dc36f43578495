"""Mainspring as an MCP server: HTTP, standard input and output, and what it offers."""
