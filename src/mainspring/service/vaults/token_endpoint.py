"""Asking a token endpoint for a new access token: RFC 6749, section 6. Sending is the port's."""

from __future__ import annotations

from base64 import b64encode
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import TypeAlias
from urllib.parse import quote, quote_plus, urlencode

import msgspec
from msgspec import Struct

from mainspring.service.vaults.credential_auth import (
    BasicAuth,
    PostAuth,
    Refresh,
    Secrets,
    hidden,
)

MAX_SHOWN = 2048
"""Characters of a body that are told."""
_LONGEST_LIFE = timedelta(days=3650)


@dataclass(frozen=True, slots=True, kw_only=True)
class Post:
    url: str
    headers: tuple[tuple[str, str], ...] = field(repr=False)
    body: bytes = field(repr=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class Reply:
    status: int
    content_type: str
    body: bytes = field(repr=False)
    """As much of it as was read."""


Fetch: TypeAlias = Callable[[Post], Awaitable[Reply]]
"""Sends it and follows no redirect. Raises: NetworkRefused: no answer, or not to be reached."""


class HttpResponse(Struct, frozen=True, kw_only=True):
    """An answer as clients are told of it."""

    status_code: int
    content_type: str
    body: str
    body_truncated: bool


class Granted(Struct, frozen=True, kw_only=True):
    access_token: str
    refresh_token: str | None = None
    expires_in: float | None = None
    __repr__ = hidden

    def expires_at(self, now: datetime) -> datetime | None:
        if self.expires_in is None or not 0 < self.expires_in < _LONGEST_LIFE.total_seconds():
            return None
        return now + timedelta(seconds=self.expires_in)


_GRANTED = msgspec.json.Decoder(Granted, strict=False)


def refresh_request(refresh: Refresh, secrets: Secrets) -> Post:
    form = {"grant_type": "refresh_token", "refresh_token": secrets.refresh_token or ""}
    headers = [
        ("content-type", "application/x-www-form-urlencoded"),
        ("accept", "application/json"),
    ]
    client_secret = secrets.client_secret or ""
    if isinstance(refresh.token_endpoint_auth, BasicAuth):
        login = f"{quote_plus(refresh.client_id)}:{quote_plus(client_secret)}"
        headers.append(("authorization", f"Basic {b64encode(login.encode()).decode()}"))
    else:
        form["client_id"] = refresh.client_id
    if isinstance(refresh.token_endpoint_auth, PostAuth):
        form["client_secret"] = client_secret
    form |= {name: value for name in ("scope", "resource") if (value := getattr(refresh, name))}
    return Post(url=refresh.token_endpoint, headers=tuple(headers), body=urlencode(form).encode())


def granted(reply: Reply) -> Granted | None:
    """What it grants; `None` if it is no grant, whatever its status."""
    if reply.status != 200:
        return None
    try:
        found = _GRANTED.decode(reply.body)
    except (msgspec.DecodeError, UnicodeDecodeError):
        return None
    return found if found.access_token else None


def is_passing(reply: Reply) -> bool:
    """Whether asking again later may help."""
    return reply.status == 429 or reply.status >= 500


def shown(reply: Reply, secrets: Secrets) -> HttpResponse:
    """A reply without the secrets that it may repeat."""
    text = reply.body.decode(errors="replace")
    for secret in sorted(secrets.all(), key=len, reverse=True):
        for form in {secret, quote(secret, safe=""), quote_plus(secret), _in_json(secret)}:
            text = text.replace(form, "[redacted]")
    return HttpResponse(
        status_code=reply.status,
        content_type=reply.content_type,
        body=text[:MAX_SHOWN],
        body_truncated=len(text) > MAX_SHOWN,
    )


def _in_json(secret: str) -> str:
    return msgspec.json.encode(secret).decode()[1:-1]
