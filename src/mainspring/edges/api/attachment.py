"""Content that people uploaded, answered so that a browser saves it and never runs it."""

from __future__ import annotations

from urllib.parse import quote

from aiohttp import web

_SAFE = frozenset("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789._- ()")


def attachment(content: bytes, *, filename: str, media_type: str) -> web.Response:
    return web.Response(
        body=content,
        headers={
            "content-type": media_type,
            "content-disposition": disposition(filename),
            "x-content-type-options": "nosniff",
            "content-security-policy": "default-src 'none'; sandbox",
        },
    )


def disposition(filename: str) -> str:
    """The name twice: for those who know how other letters are written, and for the others."""
    plain = "".join(char if char in _SAFE else "_" for char in filename)
    return f"attachment; filename=\"{plain}\"; filename*=UTF-8''{quote(filename, safe='')}"
