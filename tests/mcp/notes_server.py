"""A small MCP server of the legacy era, which the tests copy into a workspace."""
# pyright: basic

import json
import os
import sys

TOOLS = [
    {
        "name": "note",
        "description": "Write a note.",
        "inputSchema": {
            "type": "object",
            "properties": {"text": {"type": "string"}},
            "required": ["text"],
        },
    },
    {"name": "look", "inputSchema": {"type": "object"}, "annotations": {"readOnlyHint": True}},
    {"name": "die", "inputSchema": {"type": "object"}},
    {"name": "environment", "inputSchema": {"type": "object"}},
]


def call(name, given):
    with open("calls.txt", "a") as file:
        file.write(name + "\n")
    if name == "die":
        os._exit(1)
    if name == "environment":
        known = os.environ  # noqa: TID251 (a program of its own)
        return f"{sys.argv[1:]} {known.get('TOKEN')} {known.get('SECRET')} {os.getcwd()}"
    return f"{name}: {given.get('text', 'x' * 150_000)}"


for line in sys.stdin:
    message = json.loads(line)
    method, id_ = message.get("method"), message.get("id")
    if id_ is None:
        continue
    if method == "initialize":
        answer = {
            "result": {
                "protocolVersion": "2025-06-18",
                "capabilities": {"tools": {}},
                "serverInfo": {"name": "notes", "version": "1"},
            }
        }
    elif method == "tools/list":
        answer = {"result": {"tools": TOOLS}}
    elif method == "tools/call":
        text = call(message["params"]["name"], message["params"].get("arguments", {}))
        answer = {"result": {"content": [{"type": "text", "text": text}]}}
    else:
        answer = {"error": {"code": -32601, "message": "unknown"}}
    sys.stdout.write(json.dumps({"jsonrpc": "2.0", "id": id_, **answer}) + "\n")
    sys.stdout.flush()
