"""One request in progress: progress, log messages, and questions to the client's user.

A question works the same for the handler in both eras. A legacy client is asked while its request
waits. A modern one gets `input_required` as the result and repeats the request with its answers:
the handler then runs again from the start, and gets the answer at the question.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal, Protocol, TypeAlias, get_args

import msgspec
from msgspec import Raw, Struct

from mainspring.capabilities.mcp.protocol.messages import (
    Era,
    InputRequest,
    RequestId,
    encode_notification,
)
from mainspring.capabilities.mcp.server.refusals import missing_capability
from mainspring.capabilities.mcp.server.request_state import RequestState
from mainspring.core.errors import MainspringError

LogLevel: TypeAlias = Literal[
    "debug", "info", "notice", "warning", "error", "critical", "alert", "emergency"
]
LOG_LEVELS: tuple[LogLevel, ...] = get_args(LogLevel)
_CAPABILITY = {
    "elicitation/create": "elicitation",
    "sampling/createMessage": "sampling",
    "roots/list": "roots",
}
_MAX_MESSAGE_CHARS = 2_000  # of the text of a progress notice


class Outlet(Protocol):
    """Sends messages to a client while its request is answered."""

    async def send(self, message: bytes) -> None:
        """Raises: ConnectionError: the client is gone, and so is its request."""
        ...

    async def ask(self, message: bytes) -> None:
        """Send a request of the server's own. Raises: ConnectionError."""
        ...


class Questions(Protocol):
    """Asks a legacy client."""

    async def ask(self, request: InputRequest, outlet: Outlet) -> Raw:
        """Raises: RequestRefused: the client answered with an error."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class ClientTraits:
    """A client's description of itself, which is not trusted."""

    era: Era
    version: str
    capabilities: Mapping[str, object]
    log_level: LogLevel | None
    """The lowest level that it wants; `None`: no log messages."""


class InputRequired(MainspringError):
    """Ends a modern request: the client must answer first, and repeats it."""

    def __init__(
        self, requests: Mapping[str, InputRequest], state: RequestState, digest: bytes
    ) -> None:
        super().__init__("input is required")
        self.requests = requests
        self.state = state
        self.digest = digest


class ElicitResult(Struct, frozen=True, kw_only=True):
    action: Literal["accept", "decline", "cancel"]
    content: dict[str, object] = {}


@dataclass(slots=True, kw_only=True)
class Exchange:
    """One request, for its handler."""

    caller: str
    """The caller, as far as the server knows."""
    client: ClientTraits
    outlet: Outlet
    questions: Questions | None = None
    """Asks a legacy client; `None` for a modern one."""
    progress_token: RequestId | None = None
    digest: bytes = b""
    """The digest of the request: a state is valid for no other."""
    state: RequestState = field(default_factory=RequestState)
    """The state from earlier rounds of this request."""
    inputs: Mapping[str, Raw] = field(default_factory=dict[str, Raw])
    """The client's answers to the last round's questions."""
    _used: dict[str, Raw] = field(default_factory=dict[str, Raw])
    """Answers that this round has already used."""
    _progress: float = -1

    @property
    def note(self) -> bytes:
        """The note that the handler stored with its last question."""
        return self.state.note

    def can_ask(self, method: str = "elicitation/create") -> bool:
        return _CAPABILITY[method] in self.client.capabilities

    async def progress(
        self, done: float, *, total: float | None = None, message: str | None = None
    ) -> None:
        """Send progress if the client wants it. Values that do not increase are skipped."""
        if self.progress_token is None or done <= self._progress:
            return
        self._progress = done
        params: dict[str, object] = {"progressToken": self.progress_token, "progress": done}
        params |= {} if total is None else {"total": total}
        params |= {} if message is None else {"message": message[:_MAX_MESSAGE_CHARS]}
        await self.outlet.send(encode_notification("notifications/progress", params))

    async def step(self, message: str) -> None:
        """Report one more step of an unknown total."""
        await self.progress(self._progress + 1, message=message)

    async def log(self, level: LogLevel, message: object) -> None:
        least = self.client.log_level
        if least is None or LOG_LEVELS.index(level) < LOG_LEVELS.index(least):
            return
        params = {"level": level, "data": message}
        await self.outlet.send(encode_notification("notifications/message", params))

    async def ask(
        self, requests: Mapping[str, InputRequest], *, note: bytes = b""
    ) -> dict[str, Raw]:
        """Ask the client, or the person behind it. `note` is returned when a modern client answers;
        keys must differ between the questions of one request.

        Raises:
            RequestRefused: the client cannot be asked this.
        """
        needed = {_CAPABILITY[request.method] for request in requests.values()}
        if missing_names := sorted(needed - self.client.capabilities.keys()):
            raise missing_capability(*missing_names)
        if self.questions is not None:
            return {
                key: await self.questions.ask(request, self.outlet)
                for key, request in requests.items()
            }
        answers = {**self.state.answers, **_objects(self.inputs)}
        self._used |= {key: answers[key] for key in requests if key in answers}
        if open_ := {key: request for key, request in requests.items() if key not in answers}:
            state = RequestState(answers=self._used, note=note)
            raise InputRequired(open_, state, self.digest)
        return {key: answers[key] for key in requests}

    async def elicit(
        self, key: str, message: str, schema: Mapping[str, object], *, note: bytes = b""
    ) -> ElicitResult:
        """Show a form to the person. An invalid answer counts as `cancel`."""
        answers = await self.ask({key: elicitation(message, schema)}, note=note)
        try:
            return msgspec.json.decode(answers[key], type=ElicitResult)
        except (msgspec.MsgspecError, RecursionError):
            return ElicitResult(action="cancel")


def elicitation(message: str, schema: Mapping[str, object]) -> InputRequest:
    """`schema`: an object with flat properties."""
    params = {"mode": "form", "message": message, "requestedSchema": schema}
    return InputRequest(method="elicitation/create", params=Raw(msgspec.json.encode(params)))


def _objects(inputs: Mapping[str, Raw]) -> dict[str, Raw]:
    """Only objects: every answer of the protocol is an object; other values are ignored."""
    return {key: value for key, value in inputs.items() if bytes(value).lstrip()[:1] == b"{"}
