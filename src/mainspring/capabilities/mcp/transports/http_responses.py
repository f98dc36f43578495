"""HTTP for MCP: sessions that follow no redirect, and the meaning of responses."""

from __future__ import annotations

import os
from email.utils import parsedate_to_datetime

import aiohttp
from aiohttp import ClientHandlerType, ClientRequest, ClientResponse

from mainspring.core.errors import McpFailed

MAX_WAIT_SECONDS = 60.0
"""The longest delay that a server may ask for."""
_CONNECT_SECONDS = 30.0  # for TCP and TLS together
_REPEATABLE = (429, 503)
"""With `Retry-After`, the server says that it did not process the request."""


def open_http(connector: aiohttp.BaseConnector | None = None) -> aiohttp.ClientSession:
    """A session without cookies, environment proxies and redirects: credentials are for one
    host."""
    return aiohttp.ClientSession(
        connector=connector,
        cookie_jar=aiohttp.DummyCookieJar(),
        timeout=aiohttp.ClientTimeout(total=None, sock_connect=_CONNECT_SECONDS),
        trust_env=False,
        middlewares=(_refuse_redirect,),
    )


async def _refuse_redirect(request: ClientRequest, handler: ClientHandlerType) -> ClientResponse:
    response = await handler(request)
    if 300 <= response.status < 400:
        status = response.status
        response.close()
        raise McpFailed(f"redirects elsewhere (HTTP {status}); redirects are not followed")
    return response


async def read_body(response: aiohttp.ClientResponse, limit: int, *, is_cut: bool = False) -> bytes:
    content = bytearray()
    async for piece in response.content.iter_any():
        content += piece
        if len(content) > limit:
            if is_cut:
                break
            raise McpFailed(f"the answer has more than {limit:,} bytes", is_in_doubt=True)
    return bytes(content[:limit])


def is_stream(response: aiohttp.ClientResponse) -> bool:
    return response.status == 200 and response.content_type == "text/event-stream"


def retry_seconds(response: aiohttp.ClientResponse) -> float | None:
    """How long to wait before the same request is repeated; `None`: do not repeat it."""
    if response.status not in _REPEATABLE:
        return None
    value = response.headers.get("Retry-After", "1" if response.status == 429 else "")
    try:
        seconds = float(value) if value[:1].isdigit() else _seconds_until(value, response)
    except ValueError:
        return None
    return seconds if 0 <= seconds <= MAX_WAIT_SECONDS else None


def _seconds_until(date: str, response: aiohttp.ClientResponse) -> float:
    """Seconds by the server's own clock. Raises ValueError: not two dates."""
    now = parsedate_to_datetime(response.headers.get("Date", ""))
    return max(0.0, (parsedate_to_datetime(date) - now).total_seconds())


def http_error(response: aiohttp.ClientResponse, body: bytes) -> McpFailed:
    status = response.status
    if status in (401, 403, 407):
        return McpFailed(f"does not accept the credentials (HTTP {status})", needs_auth=True)
    text = plain_start(body)
    what = f"HTTP {status}" + (f": {text}" if text else "")
    return McpFailed(what, code=0, is_in_doubt=status >= 500)


def plain_start(body: bytes) -> str:
    """The beginning of a response that is not MCP, for an error message; empty if it is HTML."""
    text = " ".join(body[:300].decode("utf-8", "replace").split())
    return "" if "<" in text else text


def connection_error(error: Exception) -> str:
    if isinstance(error, aiohttp.ClientConnectorCertificateError):
        return "its certificate is not trusted"
    if isinstance(error, aiohttp.InvalidURL):
        return "not a URL"
    if isinstance(error, aiohttp.ClientConnectorDNSError):
        return "its host name cannot be resolved"
    is_tls = isinstance(error, aiohttp.ClientSSLError)  # TLS has its own numbers
    if isinstance(error, aiohttp.ClientConnectorError) and error.os_error.errno and not is_tls:
        return f"no connection ({os.strerror(error.os_error.errno)})"
    return f"no answer ({type(error).__name__})"
