"""A route: how one request is asked and answered, as data. The app serves these, the OpenAPI
document is made of them.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Generic, Literal, TypeAlias, TypeVar

from aiohttp import web
from msgspec import Struct

from mainspring.service.access.principal import Principal, Role

Q = TypeVar("Q")
B = TypeVar("B")

Method: TypeAlias = Literal["GET", "POST", "DELETE"]


class Empty(Struct, frozen=True, kw_only=True):
    """No query, or no body: anything that is sent is ignored."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ApiCall(Generic[Q, B]):
    """An authenticated request, decoded."""

    who: Principal
    path: Mapping[str, str]
    query: Q
    body: B
    request: web.Request
    """For what is not plain JSON: streams, uploads, headers."""
    recheck_access: Callable[[], Awaitable[None]]
    """For long-lived responses. Raises what would refuse the request now."""

    @property
    def tenant(self) -> str:
        return self.who.tenant

    once: Callable[[str, Callable[[], Awaitable[Any]]], Awaitable[Any]]
    """For uploads, which the handler reads itself: does it, or gives the answer of an earlier one
    with the same `Idempotency-Key` and fingerprint."""
    attempt_id: str | None = None
    """The same for every attempt at this request, if its client has chosen an `Idempotency-Key`."""

    def __getitem__(self, name: str) -> str:
        """A parameter of the path."""
        return self.path[name]


Handler: TypeAlias = Callable[[ApiCall[Any, Any]], Awaitable[Any]]


@dataclass(frozen=True, slots=True, kw_only=True)
class Route:
    method: Method
    path: str
    """`/v1/agents/{agent_id}`."""
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
    """Needs no key: it discloses nothing, or authenticates the caller itself."""
    for_agent_keys: bool = False
    """A key of one agent may ask it too: the handler asks `require_agent`. With the agent or the
    session in the path it need not say so; the doorkeeper looks."""
    for_worker_keys: bool = False
    """Keys of self-hosted workers may call it, for their environment and its sessions."""
    handles_idempotency_key: bool = False
    """Its handler handles `Idempotency-Key` itself."""
    is_extension: bool = False
    """An extension that the Managed Agents API does not have."""
    media_type: str = "application/json"
    """Media type of the response."""
    upload: str | None = None
    """Media type of a request that its handler reads itself; `body` then only describes it."""
    status: int = 200
    other_responses: Mapping[int, Any] = field(default_factory=dict[int, Any])
    """Types of JSON responses with other statuses that are not errors."""

    @property
    def operation(self) -> str:
        """`post /v1/agents/{agent_id}`: the name that the audit and the metrics use."""
        return f"{self.method.lower()} {self.path}"
