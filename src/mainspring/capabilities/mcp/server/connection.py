"""One client of the server: its identity, its capabilities, and its requests in progress.

A legacy connection lasts from `initialize` to its end; a modern one over HTTP is one request.
"""

from __future__ import annotations

from collections.abc import Callable, Generator
from contextlib import contextmanager
from dataclasses import dataclass, field

import anyio
import msgspec
from anyio import CancelScope
from msgspec import Raw

from mainspring.capabilities.mcp.protocol.messages import (
    INTERNAL_ERROR,
    CancelledParams,
    InputRequest,
    Message,
    RequestId,
)
from mainspring.capabilities.mcp.server.exchange import ClientTraits, Outlet
from mainspring.capabilities.mcp.server.features import Features
from mainspring.capabilities.mcp.server.refusals import RequestRefused, busy, malformed

MAX_REQUESTS = 64
"""The limit of concurrent requests per connection."""
_MAX_ID_CHARS = 200  # of a request's id; clients send numbers or UUIDs
MAX_SUBSCRIPTIONS = 1_000  # of one connection; each is a key in a set


@dataclass(slots=True)
class _OpenQuestion:
    is_answered: anyio.Event = field(default_factory=anyio.Event)
    answer: Message | None = None


@dataclass(slots=True, kw_only=True)
class McpConnection:
    caller: str
    """The owner of the connection; no other caller may use it."""
    features: Features
    client: ClientTraits | None = None
    """`None` before a legacy client has sent `initialize`."""
    subscriptions: set[str] = field(default_factory=set[str])
    """URIs of resources that a legacy client has subscribed to."""
    _requests: dict[RequestId, CancelScope] = field(default_factory=dict[RequestId, CancelScope])
    _questions: dict[str, _OpenQuestion] = field(default_factory=dict[str, _OpenQuestion])
    _question_count: int = 0

    @contextmanager
    def answering(self, id_: RequestId) -> Generator[CancelScope]:
        """A context for a request that can be cancelled by its id.

        Raises:
            RequestRefused: its id is in use, or there are too many at a time.
        """
        if isinstance(id_, str) and len(id_) > _MAX_ID_CHARS:
            raise malformed(f"an id has {_MAX_ID_CHARS} characters at most")
        if id_ in self._requests:
            raise malformed("another request with this id is still in progress")
        if len(self._requests) >= MAX_REQUESTS:
            raise busy(f"more than {MAX_REQUESTS} requests at a time")
        with CancelScope() as scope:
            self._requests[id_] = scope
            try:
                yield scope
            finally:
                del self._requests[id_]

    def cancel(self, params: Raw) -> None:
        """Cancel a request; unknown or finished ones are ignored."""
        try:
            id_ = msgspec.json.decode(params, type=CancelledParams).request_id
        except (msgspec.MsgspecError, RecursionError):
            return
        if (scope := self._requests.get(id_)) is not None:
            scope.cancel()

    def cancel_all(self) -> None:
        for scope in self._requests.values():
            scope.cancel()

    @property
    def is_idle(self) -> bool:
        return not self._requests

    async def ask(self, request: InputRequest, outlet: Outlet) -> Raw:
        """Send a question to a legacy client, and wait for its answer."""
        self._question_count += 1
        id_ = f"mainspring-{self._question_count}"
        question = self._questions[id_] = _OpenQuestion()
        message = {"jsonrpc": "2.0", "id": id_, "method": request.method, "params": request.params}
        try:
            await outlet.ask(msgspec.json.encode(message))
            await question.is_answered.wait()
        finally:
            del self._questions[id_]
        answer = question.answer
        if answer is None or answer.error is not None:
            why = "" if answer is None or answer.error is None else answer.error.message
            raise RequestRefused(
                f"the client did not answer {request.method}: {why:.500}", code=INTERNAL_ERROR
            )
        return answer.result

    def settle(self, answer: Message) -> bool:
        """Pass on a client's answer; False if there is no such question."""
        question = self._questions.get(str(answer.id))
        if question is None or question.is_answered.is_set():
            return False
        question.answer = answer
        question.is_answered.set()
        return True


_MAX_CONNECTIONS = 1_000  # of all callers together, so that their state stays bounded
_MAX_OF_CALLER = 100  # so that one caller cannot use up the places of all
_IDLE_SECONDS = 3600.0  # without a request; then the client has to begin a new session


@dataclass(slots=True)
class _OpenConnection:
    connection: McpConnection
    used_at: float


class Connections:
    """Legacy connections over HTTP, by the session id in each request. When there are too many, the
    oldest idle one is removed."""

    def __init__(self, *, new_id: Callable[[], str], monotonic: Callable[[], float]) -> None:
        self._new_id = new_id
        self._monotonic = monotonic
        self._open: dict[str, _OpenConnection] = {}

    def add(self, connection: McpConnection) -> str:
        """Raises: RequestRefused: there are too many, and all are in use."""
        self._expire()
        own = [
            id_ for id_, item in self._open.items() if item.connection.caller == connection.caller
        ]
        if len(own) >= _MAX_OF_CALLER:
            self._make_room(own)
        if len(self._open) >= _MAX_CONNECTIONS:
            self._make_room(list(self._open))
        id_ = self._new_id()
        self._open[id_] = _OpenConnection(connection, self._monotonic())
        return id_

    def find(self, id_: str, caller: str) -> McpConnection | None:
        """The connection; `None` also if it belongs to another caller."""
        self._expire()
        item = self._open.get(id_)
        if item is None or item.connection.caller != caller:
            return None
        item.used_at = self._monotonic()
        return item.connection

    def end(self, id_: str, caller: str) -> bool:
        if (connection := self.find(id_, caller)) is None:
            return False
        connection.cancel_all()
        del self._open[id_]
        return True

    def _expire(self) -> None:
        last = self._monotonic() - _IDLE_SECONDS
        for id_, item in list(self._open.items()):
            if item.used_at < last and item.connection.is_idle:
                del self._open[id_]

    def _make_room(self, ids: list[str]) -> None:
        idle = [id_ for id_ in ids if self._open[id_].connection.is_idle]
        if not idle:
            raise busy("too many sessions are open")
        del self._open[min(idle, key=lambda id_: self._open[id_].used_at)]
