"""An MCP server with one tool, which returns the file that it is asked for."""
# pyright: basic

import json
import sys

TOOL = {
    "name": "show",
    "inputSchema": {"type": "object", "properties": {"path": {"type": "string"}}},
}


def answer(method, params):
    if method == "initialize":
        return {
            "protocolVersion": "2025-06-18",
            "capabilities": {"tools": {}},
            "serverInfo": {"name": "reading", "version": "1"},
        }
    if method == "tools/list":
        return {"tools": [TOOL]}
    if method != "tools/call":
        return {}
    with open(params["arguments"]["path"]) as file:
        return {"content": [{"type": "text", "text": file.read()}]}


for line in sys.stdin:
    message = json.loads(line)
    if (id_ := message.get("id")) is not None:
        result = answer(message["method"], message.get("params", {}))
        sys.stdout.write(json.dumps({"jsonrpc": "2.0", "id": id_, "result": result}) + "\n")
        sys.stdout.flush()
