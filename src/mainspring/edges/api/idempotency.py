"""`Idempotency-Key` on any POST: the first request is executed, repetitions get its response."""

from __future__ import annotations

import hashlib
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Any

import msgspec
from aiohttp import web

from mainspring.core.errors import InvalidInput, MainspringError
from mainspring.edges.api.route import Route
from mainspring.service.access.idempotency import IdempotentRequests
from mainspring.service.access.principal import Principal

IDEMPOTENCY_KEY = "idempotency-key"
REPLAYED_HEADER = "idempotent-replayed"
_ENCODER = msgspec.json.Encoder()

Operation = Callable[[str | None], Awaitable[Any]]
"""Executes a request. Its argument is an id that is the same for every attempt at this request, if
the client sent a key."""


def fingerprint(query: object, body: object) -> str:
    """Fingerprint of the decoded request, independent of its formatting."""
    return hashlib.sha256(_ENCODER.encode([query, body])).hexdigest()


@dataclass(frozen=True, slots=True)
class Idempotency:
    requests: IdempotentRequests | None
    """`None` if keys are ignored."""

    def key(self, route: Route, request: web.Request) -> str | None:
        """Raises: InvalidInput: the header is repeated."""
        keys = request.headers.getall(IDEMPOTENCY_KEY, [])
        if self.requests is None or not keys or route.method != "POST":
            return None
        if route.is_open or route.handles_idempotency_key:
            return None
        if len(keys) > 1:
            raise InvalidInput("Idempotency-Key: send this header only once")
        return keys[0]

    async def once(
        self,
        principal: Principal,
        route: Route,
        request: web.Request,
        fingerprint: str,
        run: Operation,
    ) -> Any:  # noqa: ANN401 (the handler's value, or the response)
        key = self.key(route, request)
        if key is None or self.requests is None:
            return await run(None)
        operation = f"{request.method} {request.path}"
        record = await self.requests.begin(principal, operation, key, fingerprint)
        if (answer := self.requests.answer(record)) is not None:
            headers = {REPLAYED_HEADER: "true"}
            return web.Response(body=answer, content_type="application/json", headers=headers)
        try:
            result = await run(record.attempt_id)
        except MainspringError:
            await self.requests.release(principal.tenant, record)
            raise
        if isinstance(result, web.StreamResponse):  # a stream cannot be stored
            await self.requests.release(principal.tenant, record)
        else:
            await self.requests.finish(principal.tenant, record, _ENCODER.encode(result))
        return result
