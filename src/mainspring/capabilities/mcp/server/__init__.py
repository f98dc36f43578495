"""The other side of the protocol: Mainspring as an MCP server, of both eras. It knows no web
framework; `edges/mcp` carries its messages over HTTP."""
