"""Mainspring as an MCP server, for clients of both eras. It uses no web framework; `edges/mcp`
transports its messages over HTTP."""
