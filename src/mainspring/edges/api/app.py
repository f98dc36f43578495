"""The HTTP app. Every request goes one way: who is it, what is asked, do it, answer, note it."""

from __future__ import annotations

import logging
import re
import socket
import time
from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any, Protocol

import msgspec
from aiohttp import web

from mainspring.core import ids
from mainspring.core.errors import MainspringError, RateLimited
from mainspring.edges.api.connections import ConnectionLimits, discard_rest, limited_runner
from mainspring.edges.api.errors import details_of, error_body, status_of, type_of
from mainspring.edges.api.idempotency import Act, Idempotency, fingerprint
from mainspring.edges.api.listening import bind
from mainspring.edges.api.reading import MAX_BODY_BYTES, read_body, read_query
from mainspring.edges.api.route import Call, Route
from mainspring.service.access.door import Decoded
from mainspring.service.access.knock import Admission, Knock, client_address, joined
from mainspring.service.access.principal import Principal
from mainspring.service.access.repeated_requests import RepeatedRequests
from mainspring.service.keeping.about import about

_LOG = logging.getLogger("mainspring.api")
_ENCODER = msgspec.json.Encoder()
REQUEST_ID = "request-id"
_BEGUN = web.RequestKey("begun", web.StreamResponse)
_HEADERS = {"cache-control": "no-store", "x-content-type-options": "nosniff"}
"""Of every answer: some have secrets in them, and some what others wrote."""
_UNAVAILABLE = "the service cannot do this now; try again in a moment"


class Doorkeeper(Protocol):
    async def admit(self, knock: Knock, route: Route) -> Admission:
        """Who it is, and whether it may ask for this, and as often as it does.

        Raises: Unauthenticated, and RateLimited for who was it too often.
        """
        ...

    async def check_named(
        self, who: Principal, path: Mapping[str, str], query: Decoded, body: Decoded, /
    ) -> None:
        """Whether it may name what it does in its query and body.

        Raises: Forbidden, NotFound.
        """
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class Answered:
    """A request and what came of it, for the audit, the metrics and the logs."""

    route: Route | None
    who: Principal | None
    path: Mapping[str, str]
    status: int
    seconds: float
    request_id: str
    address: str = ""
    """Of the client."""
    made: str | None = None
    """The id of what the answer is about, if it says one."""


Witness = Callable[[Answered], Awaitable[None]]


async def unwitnessed(_answered: Answered) -> None:
    pass


@dataclass(slots=True)
class _Exchange:
    """One request on its way."""

    request: web.Request
    request_id: str
    knock: Knock
    route: Route | None = None
    who: Principal | None = None
    headers: Mapping[str, str] = field(default_factory=dict[str, str])
    """For the answer: how much more may be asked."""
    made: str | None = None


_EXCHANGE = web.RequestKey("exchange", _Exchange)


class Api:
    """Serves routes. Make an application of it with `application`."""

    def __init__(
        self,
        routes: Sequence[Route],
        *,
        doorkeeper: Doorkeeper,
        witness: Witness = unwitnessed,
        proxies: frozenset[str] = frozenset(),
        limits: ConnectionLimits | None = None,
        repeated: RepeatedRequests | None = None,
    ) -> None:
        """`proxies` are the addresses of our own, whose `x-forwarded-for` is believed."""
        self.routes = tuple(routes)
        self._doorkeeper = doorkeeper
        self._witness = witness
        self._proxies = proxies
        self._limits = limits or ConnectionLimits()
        self._idempotency = Idempotency(repeated)

    def application(self) -> web.Application:
        app = web.Application(client_max_size=MAX_BODY_BYTES)
        app.on_response_prepare.append(_note_begun)
        for route in self.routes:
            app.router.add_route(
                route.method, route.path, self._handler(route), expect_handler=_later
            )
        anything = "/{anything:(?s:.*)}"
        app.router.add_route("*", anything, self._handler(None), expect_handler=_later)
        return app

    def _handler(self, route: Route | None) -> Callable[[web.Request], Awaitable[Any]]:
        async def handle(request: web.Request) -> web.StreamResponse:
            begun = time.monotonic()
            exchange = _Exchange(request, ids.new_id("req"), self._knock(request), route)
            request[_EXCHANGE] = exchange
            with about(request_id=exchange.request_id):
                response = _begun_or(await self._answered(exchange), request)
            await self._witness(
                Answered(
                    route=route,
                    who=exchange.who,
                    path=request.match_info,
                    status=response.status,
                    seconds=time.monotonic() - begun,
                    request_id=exchange.request_id,
                    address=exchange.knock.address,
                    made=exchange.made,
                )
            )
            await discard_rest(request, response, self._limits)
            return response

        return handle

    def _knock(self, request: web.Request) -> Knock:
        headers = joined(request.headers.items())
        address = client_address(request.remote or "", headers, self._proxies)
        return Knock(headers=headers, path=request.match_info, address=address)

    async def _answered(self, exchange: _Exchange) -> web.StreamResponse:
        try:
            return await self._answer(exchange)
        except MainspringError as error:
            return _refusal(error, exchange.request_id)
        except web.HTTPException as error:  # aiohttp's own, while it reads a body
            return _told(error.status, error.reason, exchange.request_id)
        except (ConnectionError, TimeoutError):  # the client has gone: nobody reads this
            return _told(499, "the client closed the connection", exchange.request_id)
        except Exception:  # noqa: BLE001 (the HTTP error handler)
            _LOG.exception("request %s failed", exchange.request_id)
            return _told(500, "an internal error; the log has it", exchange.request_id)

    async def _answer(self, exchange: _Exchange) -> web.StreamResponse:
        request, route = exchange.request, exchange.route
        if route is None:
            return self._nowhere(exchange)
        admission = await self._doorkeeper.admit(exchange.knock, route)
        exchange.who, exchange.headers = admission.who, admission.headers
        if admission.refusal is not None:
            raise admission.refusal
        await _go_on(request)
        query = read_query(route, request.query)
        body = await read_body(route, request)
        await self._doorkeeper.check_named(
            admission.who, request.match_info, (query, route.query), (body, route.body)
        )
        call = Call(
            who=admission.who,
            path=request.match_info,
            query=query,
            body=body,
            request=request,
            require_welcome=partial(self._require_welcome, exchange.knock, route),
            once=lambda print_, act: self._once(exchange, print_, lambda _: act()),
        )
        answer = await self._handled(exchange, call)
        if isinstance(answer, web.StreamResponse):
            return answer
        exchange.made = getattr(answer, "id", None)
        return web.Response(
            status=route.status,
            body=_ENCODER.encode(answer),
            content_type="application/json",
        )

    async def _handled(self, exchange: _Exchange, call: Call[Any, Any]) -> Any:  # noqa: ANN401 (any route's)
        route = exchange.route
        assert route is not None
        if route.upload is not None or self._idempotency.key(route, exchange.request) is None:
            return await route.handle(call)
        return await self._once(
            exchange,
            fingerprint(call.query, call.body),
            lambda attempt_id: route.handle(replace(call, attempt_id=attempt_id)),
        )

    async def _once(self, exchange: _Exchange, print_: str, act: Act) -> Any:  # noqa: ANN401 (any route's)
        assert exchange.route is not None
        assert exchange.who is not None
        return await self._idempotency.once(
            exchange.who, exchange.route, exchange.request, print_, act
        )

    async def _require_welcome(self, knock: Knock, route: Route) -> None:
        admission = await self._doorkeeper.admit(replace(knock, is_inside=True), route)
        if admission.refusal is not None:
            raise admission.refusal

    def _nowhere(self, exchange: _Exchange) -> web.Response:
        request = exchange.request
        allowed = {each.method for each in self.routes if _matches(each.path, request.path)}
        if allowed:
            methods = ", ".join(sorted(allowed))
            told = _told(405, f"{request.path} takes {methods}", exchange.request_id)
            told.headers["allow"] = methods
            return told
        return _told(404, f"there is nothing at {request.path}", exchange.request_id)


async def _note_begun(request: web.Request, response: web.StreamResponse) -> None:
    request[_BEGUN] = response
    response.headers.popall("server", None)  # what we are made of is nobody's business
    for name, value in _HEADERS.items():
        response.headers.setdefault(name, value)
    if (exchange := request.get(_EXCHANGE)) is not None:
        response.headers.update(exchange.headers)
        response.headers[REQUEST_ID] = exchange.request_id


async def _later(_request: web.Request) -> None:
    """Nobody is told to send a body before we know who it is."""


async def _go_on(request: web.Request) -> None:
    """Who waits to be told to send the body is told so; what else is expected is nothing to us."""
    if request.headers.get("expect", "").lower() == "100-continue":
        await request.writer.write(b"HTTP/1.1 100 Continue\r\n\r\n")
        request.writer.output_size = 0


def _begun_or(response: web.StreamResponse, request: web.Request) -> web.StreamResponse:
    """An answer that was begun and broke off cannot be followed by another: the connection ends."""
    begun = request.get(_BEGUN)
    if begun is None or begun is response:
        return response
    if request.transport is not None:
        request.transport.close()
    return begun


def _matches(pattern: str, path: str) -> bool:
    parts = re.split(r"\{[^}]*\}", pattern)
    return re.fullmatch("[^/]+".join(re.escape(part) for part in parts), path) is not None


def _refusal(error: MainspringError, request_id: str) -> web.Response:
    status = status_of(error)
    if status >= 500:
        _LOG.error("request %s failed: %s", request_id, error)
    message = str(error) if status < 500 else _UNAVAILABLE  # ours is nobody's business outside
    told = _response(
        status,
        error_body(status, message, request_id, type_=type_of(error), details=details_of(error)),
    )
    if isinstance(error, RateLimited):
        told.headers["retry-after"] = str(max(1, round(error.retry_after_seconds)))
    return told


def _told(status: int, message: str, request_id: str) -> web.Response:
    return _response(status, error_body(status, message, request_id))


def _response(status: int, body: bytes) -> web.Response:
    return web.Response(
        status=status,
        body=body,
        content_type="application/json",
    )


@asynccontextmanager
async def serving(
    app: web.Application,
    listeners: Sequence[socket.socket] = (),
    *,
    limits: ConnectionLimits | None = None,
) -> AsyncGenerator[str, None]:
    """Serve at these sockets, or at any free port of this machine, until the block ends; says at
    which address.
    """
    runner = limited_runner(app, limits or ConnectionLimits())
    await runner.setup()
    try:
        for listener in listeners or await bind("127.0.0.1", 0):
            await web.SockSite(runner, listener).start()
        [address, *_] = runner.addresses
        shown = f"[{address[0]}]" if ":" in address[0] else address[0]
        yield f"http://{shown}:{address[1]}"
    finally:
        await runner.cleanup()
