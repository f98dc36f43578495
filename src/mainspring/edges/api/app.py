"""The HTTP application: authenticate a request, decode it, run its route's handler, encode the
response and notify the observers.
"""

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
from mainspring.edges.api.connections import (
    ConnectionLimits,
    bind_sockets,
    discard_unread_body,
    limited_runner,
)
from mainspring.edges.api.errors import error_body, error_details, error_type_of, http_status
from mainspring.edges.api.idempotency import Idempotency, Operation, fingerprint
from mainspring.edges.api.openapi import OPENAPI_PATH
from mainspring.edges.api.request_decoding import MAX_BODY_BYTES, read_body, read_query
from mainspring.edges.api.route import ApiCall, Route
from mainspring.service.access.idempotency import IdempotentRequests
from mainspring.service.access.principal import Principal
from mainspring.service.authorization.authentication import (
    AuthenticationResult,
    DecodedPart,
    RequestCredentials,
    client_address,
    join_headers,
)
from mainspring.service.telemetry.logging_setup import log_context

_LOG = logging.getLogger("mainspring.api")
_ENCODER = msgspec.json.Encoder()
REQUEST_ID_HEADER = "request-id"
_STARTED_RESPONSE = web.RequestKey("started", web.StreamResponse)
_DEFAULT_HEADERS = {"cache-control": "no-store", "x-content-type-options": "nosniff"}
"""Headers of every response: some contain secrets, and some contain content of third parties."""
_UNAVAILABLE = "the service is temporarily unavailable; try again in a moment"
_INTERNAL_ERROR = "internal error; the log of the server has the details"


class AccessControl(Protocol):
    async def admit(self, credentials: RequestCredentials, route: Route) -> AuthenticationResult:
        """Authenticate a request; check its permission for the route and its rate.

        Raises: Unauthenticated, and RateLimited after too many failed attempts.
        """
        ...

    async def check_named(
        self,
        principal: Principal,
        path: Mapping[str, str],
        query: DecodedPart,
        body: DecodedPart,
        /,
    ) -> None:
        """Check that the principal may name the ids in its path, query and body.

        Raises: Forbidden, NotFound.
        """
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class HandledRequest:
    """A request and its outcome, for the audit, the metrics and the logs."""

    route: Route | None
    who: Principal | None
    path: Mapping[str, str]
    status: int
    seconds: float
    request_id: str
    address: str = ""
    """The address of the client."""
    object_id: str | None = None
    """The id of the object in the response, if it has one."""


RequestObserver = Callable[[HandledRequest], Awaitable[None]]
"""Called after each request; it does not raise."""


@dataclass(slots=True)
class _RequestState:
    """The state of one request while it is handled."""

    request: web.Request
    request_id: str
    credentials: RequestCredentials
    route: Route | None = None
    who: Principal | None = None
    headers: Mapping[str, str] = field(default_factory=dict[str, str])
    """Headers for the response, which state the remaining rate limit."""
    object_id: str | None = None


_STATE_KEY = web.RequestKey("state", _RequestState)


_REDIRECTS = {"/docs": OPENAPI_PATH, "/openapi.json": OPENAPI_PATH}
"""Where people and generators look first for what an API can do."""


class Api:
    """Serves routes; `application` builds the aiohttp application."""

    def __init__(
        self,
        routes: Sequence[Route],
        *,
        access_control: AccessControl,
        request_observers: Sequence[RequestObserver] = (),
        proxies: frozenset[str] = frozenset(),
        limits: ConnectionLimits | None = None,
        repeated: IdempotentRequests | None = None,
    ) -> None:
        """`proxies` are addresses of trusted proxies, whose `x-forwarded-for` is used."""
        self.routes = tuple(routes)
        self._access_control = access_control
        self._request_observers = request_observers
        self._proxies = proxies
        self._limits = limits or ConnectionLimits()
        self._idempotency = Idempotency(repeated)

    def application(self) -> web.Application:
        app = web.Application(client_max_size=MAX_BODY_BYTES)
        app.on_response_prepare.append(_on_response_prepare)
        for route in self.routes:
            app.router.add_route(
                route.method, route.path, self._handler(route), expect_handler=_defer_continue
            )
        anything = "/{anything:(?s:.*)}"
        app.router.add_route("*", anything, self._handler(None), expect_handler=_defer_continue)
        return app

    def _handler(self, route: Route | None) -> Callable[[web.Request], Awaitable[Any]]:
        async def handle(request: web.Request) -> web.StreamResponse:
            start = time.monotonic()
            headers = join_headers(request.headers.items())
            address = client_address(request.remote or "", headers, self._proxies)
            credentials = RequestCredentials(
                headers=headers, path=request.match_info, address=address
            )
            state = _RequestState(request, ids.new_id("req"), credentials, route)
            request[_STATE_KEY] = state
            with log_context(request_id=state.request_id):
                response = await self._respond_or_error(state)
            started = request.get(_STARTED_RESPONSE)
            if started is not None and started is not response:
                response = started  # it was cut off, and no other response can follow
                if request.transport is not None:
                    request.transport.close()
            handled = HandledRequest(
                route=route,
                who=state.who,
                path=request.match_info,
                status=response.status,
                seconds=time.monotonic() - start,
                request_id=state.request_id,
                address=address,
                object_id=state.object_id,
            )
            for observe in self._request_observers:
                await observe(handled)
            await discard_unread_body(request, response, self._limits)
            return response

        return handle

    async def _respond_or_error(self, state: _RequestState) -> web.StreamResponse:
        try:
            return await self._respond(state)
        except MainspringError as error:
            return _error_response(error, state.request_id)
        except web.HTTPException as error:  # raised by aiohttp while it reads a body
            return _message_response(error.status, error.reason, state.request_id)
        except TimeoutError:
            return _message_response(408, "the body did not arrive in time", state.request_id)
        except ConnectionError:
            return _message_response(499, "the client closed the connection", state.request_id)
        except Exception:  # noqa: BLE001 (the HTTP error handler)
            _LOG.exception("request %s failed", state.request_id)
            return _message_response(500, _INTERNAL_ERROR, state.request_id)

    async def _respond(self, state: _RequestState) -> web.StreamResponse:
        request, route = state.request, state.route
        if route is None:
            return self._no_route(state)
        admission = await self._access_control.admit(state.credentials, route)
        state.who, state.headers = admission.who, admission.headers
        if admission.refusal is not None:
            raise admission.refusal
        if request.headers.get("expect", "").lower() == "100-continue":  # others are ignored
            await request.writer.write(b"HTTP/1.1 100 Continue\r\n\r\n")
            request.writer.output_size = 0
        query = read_query(route, request.query)
        body = await read_body(route, request)
        await self._access_control.check_named(
            admission.who, request.match_info, (query, route.query), (body, route.body)
        )
        call = ApiCall(
            who=admission.who,
            path=request.match_info,
            query=query,
            body=body,
            request=request,
            recheck_access=partial(self._recheck_access, state.credentials, route),
            once=lambda print_, operation: self._run_once(state, print_, lambda _: operation()),
        )
        answer = await self._run_handler(state, call)
        if isinstance(answer, web.StreamResponse):
            return answer
        state.object_id = getattr(answer, "id", None)
        return web.Response(body=_ENCODER.encode(answer), content_type="application/json")

    async def _run_handler(self, state: _RequestState, call: ApiCall[Any, Any]) -> Any:  # noqa: ANN401 (any route's)
        route = state.route
        assert route is not None
        if route.upload is not None or self._idempotency.key(route, state.request) is None:
            return await route.handle(call)
        return await self._run_once(
            state,
            fingerprint(call.query, call.body),
            lambda attempt_id: route.handle(replace(call, attempt_id=attempt_id)),
        )

    async def _run_once(self, state: _RequestState, print_: str, operation: Operation) -> Any:  # noqa: ANN401 (any route's)
        assert state.route is not None
        assert state.who is not None
        return await self._idempotency.once(
            state.who, state.route, state.request, print_, operation
        )

    async def _recheck_access(self, credentials: RequestCredentials, route: Route) -> None:
        admission = await self._access_control.admit(replace(credentials, is_recheck=True), route)
        if admission.refusal is not None:
            raise admission.refusal

    def _no_route(self, state: _RequestState) -> web.Response:
        request = state.request
        allowed = {route.method for route in self.routes if _matches(route.path, request.path)}
        if allowed:
            methods = ", ".join(sorted(allowed))
            response = _message_response(
                405, f"{request.path} supports {methods}", state.request_id
            )
            response.headers["allow"] = methods
            return response
        target = _REDIRECTS.get(request.path)
        if target is not None and any(route.path == target for route in self.routes):
            return web.Response(status=307, headers={"location": target})
        return _message_response(404, f"there is no endpoint {request.path}", state.request_id)


async def _on_response_prepare(request: web.Request, response: web.StreamResponse) -> None:
    request[_STARTED_RESPONSE] = response
    response.headers.popall("server", None)  # does not disclose the software
    for name, value in _DEFAULT_HEADERS.items():
        response.headers.setdefault(name, value)
    if (state := request.get(_STATE_KEY)) is not None:
        response.headers.update(state.headers)
        response.headers[REQUEST_ID_HEADER] = state.request_id


async def _defer_continue(_request: web.Request) -> None:
    """Do not send `100 Continue` before the client is authenticated."""


def _matches(pattern: str, path: str) -> bool:
    parts = re.split(r"\{[^}]*\}", pattern)
    return re.fullmatch("[^/]+".join(re.escape(part) for part in parts), path) is not None


def _error_response(error: MainspringError, request_id: str) -> web.Response:
    status = http_status(error)
    if status >= 500:
        _LOG.error("request %s failed: %s", request_id, error)
        message = _UNAVAILABLE if status == 503 else _INTERNAL_ERROR  # discloses no details
    else:
        message = str(error)
    body = error_body(
        status, message, request_id, type_=error_type_of(error), details=error_details(error)
    )
    response = web.Response(status=status, body=body, content_type="application/json")
    if isinstance(error, RateLimited):
        response.headers["retry-after"] = str(max(1, round(error.retry_after_seconds)))
    return response


def _message_response(status: int, message: str, request_id: str) -> web.Response:
    body = error_body(status, message, request_id)
    return web.Response(status=status, body=body, content_type="application/json")


@asynccontextmanager
async def http_server(
    app: web.Application,
    listeners: Sequence[socket.socket] = (),
    *,
    limits: ConnectionLimits | None = None,
) -> AsyncGenerator[str, None]:
    """Serve on these sockets, or on a free port of this machine, until the block ends; yields the
    URL.
    """
    runner = limited_runner(app, limits or ConnectionLimits())
    await runner.setup()
    try:
        for listener in listeners or await bind_sockets("127.0.0.1", 0):
            await web.SockSite(runner, listener).start()
        [address, *_] = runner.addresses
        host = f"[{address[0]}]" if ":" in address[0] else address[0]
        yield f"http://{host}:{address[1]}"
    finally:
        await runner.cleanup()
