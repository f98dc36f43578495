"""Hooks that are asked over HTTP: one POST, no redirects, an answer of bounded size."""

from __future__ import annotations

import re
from collections.abc import Mapping

import aiohttp

from mainspring.capabilities.hooks.config import Http
from mainspring.capabilities.hooks.verdict import Failed, Reply, read_output
from mainspring.core.hook import HookEvent

MAX_BYTES = 1_000_000
_VARIABLE = re.compile(r"\$(?:\{(\w+)\}|(\w+))")


async def run_http(
    handler: Http, event: HookEvent, payload: bytes, environment: Mapping[str, str]
) -> Reply:
    """Only an answer that says success can say anything else."""
    headers = {
        **{name: _expanded(value, handler, environment) for name, value in handler.headers.items()},
        "content-type": "application/json",
        "accept-encoding": "identity",
    }
    try:
        async with (
            aiohttp.ClientSession(
                cookie_jar=aiohttp.DummyCookieJar(), timeout=aiohttp.ClientTimeout(total=None)
            ) as session,
            session.post(
                handler.url, data=payload, headers=headers, allow_redirects=False
            ) as response,
        ):
            if not 200 <= response.status < 300:
                return Failed(f"answered with status {response.status}")
            body = await _body(response)
    except (aiohttp.ClientError, OSError, ValueError) as error:
        # Not the error's text: it may quote a header.
        return Failed(f"could not be asked: {type(error).__name__}")
    if body is None:
        return Failed(f"answered with more than {MAX_BYTES} bytes")
    return read_output(event, body)


async def _body(response: aiohttp.ClientResponse) -> bytes | None:
    body = bytearray()
    while chunk := await response.content.readany():
        body += chunk
        if len(body) > MAX_BYTES:
            response.close()
            return None
    return bytes(body)


def _expanded(value: str, handler: Http, environment: Mapping[str, str]) -> str:
    def named(found: re.Match[str]) -> str:
        name = found[1] or found[2]
        return environment.get(name, "") if name in handler.allowed_env_vars else ""

    return _VARIABLE.sub(named, value)
