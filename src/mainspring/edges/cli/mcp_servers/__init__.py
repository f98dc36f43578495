"""Commands about MCP servers, and Mainspring as one."""
