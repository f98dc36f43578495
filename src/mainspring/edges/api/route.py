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
    """No query, or no body: what is sent all the same is left alone."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ApiCall(Generic[Q, B]):
    """A request that was let in, with its parts understood."""

    who: Principal
    path: Mapping[str, str]
    query: Q
    body: B
    request: web.Request
    """For what is not plain JSON: streams, uploads, headers."""
    recheck_access: Callable[[], Awaitable[None]]
    """For who stays long. Raises: what refuses the request if it is made now."""

    @property
    def tenant(self) -> str:
        return self.who.tenant

    once: Callable[[str, Callable[[], Awaitable[Any]]], Awaitable[Any]]
    """For uploads, which the handler reads itself: does it, or gives the answer of an earlier one
    with the same `Idempotency-Key` and fingerprint."""
    attempt_id: str | None = None
    """The same for every attempt at this request, if its client has chosen an `Idempotency-Key`."""

    def __getitem__(self, name: str) -> str:
        """A part of the path."""
        return self.path[name]


Handler: TypeAlias = Callable[[ApiCall[Any, Any]], Awaitable[Any]]


@dataclass(frozen=True, slots=True, kw_only=True)
class Route:
    method: Method
    path: str
    """`/v1/agents/{agent_id}`."""
    handle: Handler
    """Gives back the answer, or a `web.StreamResponse` that it has prepared itself."""
    summary: str
    response_type: Any = None
    """Type of the JSON that is answered; `None` if it is something else."""
    query: type[Struct] = Empty
    body: Any = Empty
    role: Role = "viewer"
    """The least that may ask."""
    is_open: bool = False
    """Needs no key: it says nothing, or checks who asks itself."""
    for_agent_keys: bool = False
    """A key of one agent may ask it too: the handler asks `require_agent`. With the agent or the
    session in the path it need not say so; the doorkeeper looks."""
    for_worker_keys: bool = False
    """The key of a self-hosted worker may ask it, for its environment and the sessions in it."""
    handles_idempotency_key: bool = False
    """Its handler sees to `Idempotency-Key` itself."""
    is_extension: bool = False
    """Ours; the Managed Agents API does not have it."""
    media_type: str = "application/json"
    """Of the answer."""
    upload: str | None = None
    """Media type of a request that its handler reads itself; `body` then only describes it."""
    status: int = 200
    other_responses: Mapping[int, Any] = field(default_factory=dict[int, Any])
    """Types of the JSON that is answered with other statuses, where it is no error."""

    @property
    def operation(self) -> str:
        """`post /v1/agents/{agent_id}`: the name that the audit and the metrics use."""
        return f"{self.method.lower()} {self.path}"
