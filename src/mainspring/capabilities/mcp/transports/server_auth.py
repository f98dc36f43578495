"""Authentication of requests to an MCP server: by fixed headers, or by a bearer token from a token
source."""

from __future__ import annotations

import re
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from typing import Protocol, TypeAlias

import anyio
import msgspec

from mainspring.core.errors import InvalidInput, McpFailed


@dataclass(frozen=True, slots=True)
class Refusal:
    """A server's refusal of a request's credentials."""

    status: int
    challenge: str
    """The `WWW-Authenticate` headers of the response."""


Renew = Callable[[Refusal], Awaitable[bool]]
"""Gets other credentials, if possible; the request is then sent again with them. Raises: McpFailed:
why it cannot."""

_HEADER_NAME = re.compile(r"[!#$%&'*+.^_`|~0-9A-Za-z-]{1,200}")
_FRESH_SECONDS = 30.0
"""The longest time that a revoked token is still sent."""

Learn: TypeAlias = Callable[[str], None]
"""Gets every secret before a server does, since the server may repeat it."""
TokenSource: TypeAlias = Callable[[str | None], Awaitable[str | None]]
"""The current token. The argument is a token that the server has refused, if any: then another is
returned, if there is one."""


class ServerAuth(Protocol):
    """The credentials of an `HttpTransport`."""

    async def headers(self) -> Mapping[str, str]: ...

    async def renew(self, refusal: Refusal) -> bool: ...


class StaticHeaders:
    def __init__(self, headers: Mapping[str, str]) -> None:
        self._headers = headers

    async def headers(self) -> Mapping[str, str]:
        return self._headers

    async def renew(self, refusal: Refusal) -> bool:
        del refusal
        return False


class HelperHeaders:
    """Headers that a program prints as a JSON object. The program runs again if the server refuses
    them."""

    def __init__(
        self, run: Callable[[], Awaitable[str]], fixed: Mapping[str, str], learn: Learn
    ) -> None:
        """`run` raises: InvalidInput."""
        self._run = run
        self._fixed = fixed
        self._learn = learn
        self._headers: Mapping[str, str] | None = None

    async def headers(self) -> Mapping[str, str]:
        if self._headers is None:
            self._headers = await self._printed()
        return {**self._fixed, **self._headers}

    async def renew(self, refusal: Refusal) -> bool:
        before = self._headers
        if refusal.status == 401:
            self._headers = await self._printed()
        return self._headers != before

    async def _printed(self) -> dict[str, str]:
        try:
            printed = msgspec.json.decode(await self._run(), type=dict[str, str])
        except InvalidInput as error:
            raise McpFailed(str(error), needs_auth=True) from error
        except (msgspec.MsgspecError, RecursionError) as error:
            text = "headersHelper: it must print a JSON object of headers, and nothing else"
            raise McpFailed(text, needs_auth=True) from error
        for name, value in printed.items():
            if not _HEADER_NAME.fullmatch(name) or not value.isprintable():
                raise McpFailed(
                    "headersHelper: it printed something that is not a header", needs_auth=True
                )
            for secret in {value, value.rpartition(" ")[2]}:
                self._learn(secret)
        return printed


class BearerAuthentication:
    def __init__(self, source: TokenSource, learn: Learn) -> None:
        self._source = source
        self._learn = learn
        self._token: str | None = None
        self._fresh_until = 0.0

    async def headers(self) -> Mapping[str, str]:
        if anyio.current_time() >= self._fresh_until:
            await self._get(None)
        return {} if self._token is None else {"Authorization": f"Bearer {self._token}"}

    async def renew(self, refusal: Refusal) -> bool:
        if refusal.status != 401:
            return False
        refused_token = self._token
        await self._get(refused_token)
        return self._token not in (None, refused_token)

    async def _get(self, refused: str | None) -> None:
        self._token = await self._source(refused)
        self._fresh_until = anyio.current_time() + _FRESH_SECONDS
        if self._token is not None:
            self._learn(self._token)
