"""A server that writes down each call before it answers, and takes a moment for it."""
# pyright: basic

import json
import os
import sys
import time

NUMBER = {"type": "object", "properties": {"n": {"type": "integer"}}, "required": ["n"]}
TOOLS = [
    {"name": "count", "inputSchema": NUMBER, "annotations": {"readOnlyHint": True}},
    {"name": "change", "inputSchema": NUMBER},
]
calls = os.open("calls.txt", os.O_WRONLY | os.O_APPEND | os.O_CREAT)

for line in sys.stdin:
    message = json.loads(line)
    method, id_ = message.get("method"), message.get("id")
    if id_ is None:
        continue
    result: dict[str, object] = {"resultType": "complete"}
    if method == "server/discover":
        result |= {"supportedVersions": ["2026-07-28"], "capabilities": {"tools": {}}}
    elif method == "tools/list":
        result |= {"tools": TOOLS}
    else:
        n = message["params"]["arguments"]["n"]
        os.write(calls, f"{n}\n".encode())
        time.sleep(0.005)  # noqa: TID251 (a program of its own)
        result |= {"content": [{"type": "text", "text": f"counted {n}"}]}
    sys.stdout.write(json.dumps({"jsonrpc": "2.0", "id": id_, "result": result}) + "\n")
    sys.stdout.flush()
