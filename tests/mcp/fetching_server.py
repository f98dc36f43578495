"""An MCP server that fetches pages by the proxy, which the tests copy into a workspace."""
# pyright: basic

import json
import os
import sys
import urllib.request

for name in ("NO_PROXY", "no_proxy"):  # the tests' hosts are on this machine
    os.environ.pop(name, None)  # noqa: TID251 (a program of its own)
TOOL = {
    "name": "fetch",
    "inputSchema": {"type": "object", "properties": {"url": {"type": "string"}}},
}


def fetch(url):
    try:
        return urllib.request.urlopen(url, timeout=60).read().decode()
    except OSError as error:
        return f"refused: {error} {getattr(error, 'read', bytes)().decode()}"


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
                "serverInfo": {"name": "fetching", "version": "1"},
            }
        }
    elif method == "tools/list":
        answer = {"result": {"tools": [TOOL]}}
    elif method == "tools/call":
        text = fetch(message["params"]["arguments"]["url"])
        answer = {"result": {"content": [{"type": "text", "text": text}]}}
    else:
        answer = {"error": {"code": -32601, "message": "unknown"}}
    sys.stdout.write(json.dumps({"jsonrpc": "2.0", "id": id_, **answer}) + "\n")
    sys.stdout.flush()
