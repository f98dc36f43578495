"""A server that costs nearly nothing: `mcp_echo.py` over stdio, `mcp_echo.py http` over HTTP."""

from __future__ import annotations

import json
import sys
from typing import cast

import anyio
from aiohttp import web

ECHO = {"name": "echo", "inputSchema": {"type": "object"}}
_CACHE = {"ttlMs": 0, "cacheScope": "private"}


def _answer(message: dict[str, object]) -> dict[str, object]:
    match message.get("method"):
        case "server/discover":
            result: dict[str, object] = {
                "supportedVersions": ["2026-07-28"],
                "capabilities": {"tools": {}},
                **_CACHE,
            }
        case "tools/list":
            result = {"tools": [ECHO], **_CACHE}
        case _:
            params = cast("dict[str, object]", message["params"])
            result = {"content": [{"type": "text", "text": json.dumps(params["arguments"])}]}
    meta = {"io.modelcontextprotocol/serverInfo": {"name": "echo", "version": "1"}}
    result = {"resultType": "complete", "_meta": meta, **result}
    return {"jsonrpc": "2.0", "id": message["id"], "result": result}


def _serve_stdio() -> None:
    for line in sys.stdin:
        message = json.loads(line)
        if "id" in message:
            print(json.dumps(_answer(message)), flush=True)


async def _serve_http() -> None:
    async def handle(request: web.Request) -> web.StreamResponse:
        message = await request.json()
        return web.json_response(_answer(message)) if "id" in message else web.Response(status=202)

    app = web.Application()
    app.router.add_post("/mcp", handle)
    runner = web.AppRunner(app, access_log=None)
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0)
    await site.start()
    print(runner.addresses[0][1], flush=True)
    await anyio.sleep_forever()


if __name__ == "__main__":
    if sys.argv[1:] == ["http"]:
        anyio.run(_serve_http)
    else:
        _serve_stdio()
