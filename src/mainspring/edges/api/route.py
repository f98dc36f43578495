"""A route: the request and response of one operation, as data, declared at its handler. The app
serves routes; the OpenAPI document is built from them.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import (
    Annotated,
    Any,
    Generic,
    Literal,
    TypeAlias,
    TypedDict,
    TypeVar,
    Unpack,
    cast,
    get_args,
    get_type_hints,
)

import msgspec
from aiohttp import web
from msgspec import Meta, Struct

from mainspring.service.access.principal import Principal, Role
from mainspring.service.storage.pagination import Limit, created_bounds
from mainspring.service.storage.repository import ListQuery

Q = TypeVar("Q")
B = TypeVar("B")

Method: TypeAlias = Literal["GET", "POST", "DELETE"]


Timestamp = Annotated[datetime, Meta(tz=True)]
_SHARED_FIELDS = ("limit", "page", "include_archived")


class Empty(Struct, frozen=True, kw_only=True):
    """No query, or no body: anything that is sent is ignored."""


class PageQuery(Struct, frozen=True, kw_only=True):
    limit: Limit = 20
    page: str | None = None


class ShortPageQuery(Struct, frozen=True, kw_only=True):
    limit: Annotated[int, Meta(ge=1, le=100)] = 20
    page: str | None = None


def list_query(query: Struct, **fields: Any) -> ListQuery:  # noqa: ANN401 (of any field)
    """The list that a route's query asks for. `fields`: those of `ListQuery` that it has by other
    names."""
    values = msgspec.structs.asdict(query)
    shared: dict[str, Any] = {name: values[name] for name in _SHARED_FIELDS if name in values}
    shared["created_from"], shared["created_upto"] = created_bounds(query)
    return ListQuery(**shared | fields)


@dataclass(frozen=True, slots=True, kw_only=True)
class ApiCall(Generic[Q, B]):
    """An authenticated request, decoded."""

    who: Principal
    path: Mapping[str, str]
    query: Q
    body: B
    request: web.Request
    """The raw request, for everything that is not plain JSON: streams, uploads, headers."""
    recheck_access: Callable[[], Awaitable[None]]
    """For long-lived responses: raises an error if the request would now be refused."""

    @property
    def tenant(self) -> str:
        return self.who.tenant

    once: Callable[[str, Callable[[], Awaitable[Any]]], Awaitable[Any]]
    """For uploads, which the handler reads itself: runs the operation, or returns the response of
    an earlier request with the same `Idempotency-Key` and fingerprint."""
    attempt_id: str | None = None
    """The same for every attempt at this request; `None` without an `Idempotency-Key`."""

    def __getitem__(self, name: str) -> str:
        """A parameter of the path."""
        return self.path[name]


Handler: TypeAlias = Callable[[ApiCall[Any, Any]], Awaitable[Any]]


@dataclass(frozen=True, slots=True, kw_only=True)
class Route:
    method: Method
    path: str
    """Such as `/v1/agents/{agent_id}`."""
    handle: Handler
    """Returns the response value, or a `web.StreamResponse` that it has prepared itself."""
    summary: str
    response_type: Any = None
    """Type of the JSON response; `None` if the response is not JSON."""
    query: type[Struct] = Empty
    body: Any = Empty
    role: Role = "viewer"
    """The minimum role."""
    is_open: bool = False
    """Whether it needs no key: it discloses nothing, or authenticates the caller itself."""
    for_agent_keys: bool = False
    """Whether keys of one agent may call it, too: the handler calls `require_agent`, unless the
    path has the agent or the session, which authentication checks."""
    for_worker_keys: bool = False
    """Whether keys of self-hosted workers may call it, for their environment and its sessions."""
    handles_idempotency_key: bool = False
    """Whether its handler handles `Idempotency-Key` itself."""
    is_extension: bool = False
    """Whether it is an extension that the Managed Agents API does not have."""
    is_documented: bool = True
    """Whether it is in the OpenAPI document; `False` for a protocol with its own description."""
    media_type: str = "application/json"
    """Media type of the response."""
    upload: str | None = None
    """Media type of a request that its handler reads itself; `body` then only describes it."""
    other_responses: Mapping[int, Any] = field(default_factory=dict[int, Any])
    """Types of JSON responses with other statuses that are not errors."""

    operation: str = field(init=False)
    """`post /v1/agents/{agent_id}`: the name that the audit and the metrics use."""

    def __post_init__(self) -> None:
        object.__setattr__(self, "operation", f"{self.method.lower()} {self.path}")


class RouteOptions(TypedDict, total=False):
    """Fields of `Route` that do not follow from the endpoint and the signature of its handler. A
    class of handlers may declare those of all its routes as `route_options`."""

    role: Role
    """Default: `viewer` to read, `user` to change a session, `operator` to change anything else."""
    is_open: bool
    for_agent_keys: bool
    for_worker_keys: bool
    handles_idempotency_key: bool
    is_extension: bool
    is_documented: bool
    media_type: str
    upload: str
    other_responses: Mapping[int, Any]
    body: Any
    """For uploads: the type that describes the form."""
    response_type: Any
    """For handlers that return a `web.Response`."""


HandlerMethod = TypeVar("HandlerMethod", bound=Callable[..., Awaitable[object]])
_DECLARATIONS = "declared_routes"
"""The attribute of a handler that stores its declarations."""


def route(
    endpoint: str, summary: str, **options: Unpack[RouteOptions]
) -> Callable[[HandlerMethod], HandlerMethod]:
    """Declare a method as the handler of an endpoint such as `GET /v1/agents/{agent_id}`. The types
    of the query, the body and the response are those of its signature."""

    def declare(function: HandlerMethod) -> HandlerMethod:
        vars(function).setdefault(_DECLARATIONS, []).insert(0, (endpoint, summary, options))
        return function

    return declare


def routes_of(*handlers: object) -> tuple[Route, ...]:
    """The routes that the methods of these objects declare, in the order of the methods."""
    return tuple(
        _bind(getattr(handler, name), endpoint, summary, shared | options)
        for handler in handlers
        for shared in [cast("RouteOptions", getattr(handler, "route_options", {}))]
        for name, function in vars(type(handler)).items()
        for endpoint, summary, options in getattr(function, _DECLARATIONS, ())
    )


def _bind(handle: Handler, endpoint: str, summary: str, options: RouteOptions) -> Route:
    method, _, path = endpoint.partition(" ")
    # Any: types of requests and responses, and the values of all options
    hints: list[Any] = [*get_type_hints(handle).values()]
    call, response = hints
    query, body = get_args(call)
    is_in_session = "{session_id}" in path
    is_raw = isinstance(response, type) and issubclass(response, web.StreamResponse)
    fields: dict[str, Any] = {
        "query": query,
        "body": body,
        "response_type": None if is_raw else response,
        "role": "viewer" if method == "GET" else "user" if is_in_session else "operator",
        "for_agent_keys": is_in_session,
        "is_extension": path.startswith("/v1/mainspring/"),
        **options,
    }
    return Route(method=cast("Method", method), path=path, handle=handle, summary=summary, **fields)
