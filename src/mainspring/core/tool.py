"""A tool: its specification, its function, and the traits of each single call."""

from __future__ import annotations

import hashlib
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Generic, Literal, TypeAlias, cast

import msgspec

from mainspring.core.content import Block, TextBlock
from mainspring.core.events import (
    ApprovalAnswered,
    ApprovalSubject,
    Evidence,
    Failure,
    KnownPayload,
)
from mainspring.core.ids import stable_id
from mainspring.core.model import ToolSpec

if TYPE_CHECKING:
    from typing_extensions import TypeVar

    Deps = TypeVar("Deps", covariant=True, default=object)  # noqa: PLC0105
else:
    from typing import TypeVar

    # before Python 3.13, a TypeVar cannot have a default at runtime
    Deps = TypeVar("Deps", covariant=True)  # noqa: PLC0105

Stashed = TypeVar("Stashed")
InDoubtPolicy: TypeAlias = Literal["retry", "probe", "ask", "report"]
_ENCODER = msgspec.json.Encoder(order="deterministic")


@dataclass(frozen=True, slots=True, kw_only=True)
class PersonQuestion:
    """A question to a person during a call. An answer is valid only for exactly this question."""

    key: str
    """Identifies it among the questions of one call."""
    text: str
    form_schema: Mapping[str, object] | None = None
    evidence: tuple[Evidence, ...] = ()

    def subject(self, call_id: str) -> ApprovalSubject:
        parts = (self.text, self.form_schema, self.evidence)
        return ApprovalSubject(
            type="elicitation",
            id=f"{call_id}:{self.key}",
            hash=hashlib.sha256(_ENCODER.encode(parts)).hexdigest(),
            evidence=self.evidence,
            stale_when=("content_changed", "call_ended"),
        )

    def approval_id(self, call_id: str) -> str:
        subject = self.subject(call_id)
        return stable_id("aprv", subject.id, subject.hash)


async def _stash_nothing(_value: object) -> None:
    return None


@dataclass(frozen=True, slots=True, kw_only=True)
class Call(Generic[Deps]):
    id: str
    name: str
    input: Mapping[str, object]
    idempotency_key: str
    """The same for all attempts of this call, unique among calls."""
    session_id: str
    thread_id: str
    is_approved: bool = False
    """A person has approved exactly this `preview`; a different one voids the approval."""
    say: Callable[[str], None] = lambda _: None
    """Shows progress while the call runs; it is not logged."""
    stash: Callable[[object], Awaitable[None]] = _stash_nothing
    """Stores a JSON value durably for the next attempt after a crash."""
    stashed: object = None
    """The last value that this call, or an attempt before a crash, stashed."""
    deps: Deps = cast("Deps", None)  # noqa: RUF009 (a constant)
    """The value of `deps=` of the run."""
    call_tool: Callable[[str, Mapping[str, object]], Awaitable[ToolResult]] | None = None
    """Calls another tool of the session with the same permission checks, for programs."""

    answers: Mapping[str, ApprovalAnswered] = field(default_factory=dict[str, ApprovalAnswered])
    """Answers to questions of this call, by the ids of the approvals."""

    def answer_to(self, question: PersonQuestion) -> ApprovalAnswered | None:
        """The answer to a question; if there is none, return `ToolResult.asking(question)`."""
        return self.answers.get(question.approval_id(self.id))

    def read_stash(self, kind: type[Stashed], default: Stashed) -> Stashed:
        """The stashed value as a type; the default if there is none.

        Raises:
            msgspec.ValidationError: the stashed value has another type.
        """
        return default if self.stashed is None else msgspec.convert(self.stashed, kind)


@dataclass(frozen=True, slots=True)
class ToolResult:
    content: tuple[Block, ...]
    """The content for the model."""
    ok: bool = True
    details: object = None
    """The content for the user; never sent to the model."""
    error: Failure | None = None
    """The kind of failure, if it is not ok."""
    facts: tuple[KnownPayload, ...] = ()
    """Further events to log together with the result."""
    waits_for: tuple[str, ...] = ()
    """No result yet: calls of other threads that wait for a person. The same call is repeated
    afterwards."""
    questions: tuple[PersonQuestion, ...] = ()
    """No result yet: questions that a person must answer first. Then the same call is repeated
    with the answers, perhaps in another process."""

    @classmethod
    def text(cls, text: str, *, ok: bool = True, error: Failure | None = None) -> ToolResult:
        return cls((TextBlock(text),), ok, error=error)

    @classmethod
    def asking(cls, *questions: PersonQuestion) -> ToolResult:
        return cls((), questions=questions)


@dataclass(frozen=True, slots=True, kw_only=True)
class Traits:
    """The traits of one call with its input. The defaults are the safe ones."""

    read_only: bool = False
    concurrent: bool = False
    destructive: bool = False
    in_doubt: InDoubtPolicy = "report"
    """How to settle a call that a crash interrupted."""
    on_interrupt: Literal["cancel", "block"] = "cancel"
    max_chars: int = 30_000
    cascades: bool = False
    """Its failure cancels later calls of the same tool in the same turn."""
    needs_person: bool = False
    """A person must approve it, whatever the mode and the rules allow."""
    by_client: bool = False
    """Once allowed, the client runs it and sends the result."""


SAFE_READ = Traits(read_only=True, concurrent=True, in_doubt="retry")


@dataclass(frozen=True, slots=True)
class ToolOrigin:
    """The MCP server that a tool belongs to, and the tool's name there."""

    server: str
    name: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Tool:
    spec: ToolSpec
    run: Callable[[Call], Awaitable[ToolResult]]
    """Returns a `ToolResult` that is not ok, instead of raising, for failures that the model can
    act on."""
    traits: Callable[[Mapping[str, object]], Traits] = lambda _: Traits()
    probe: Callable[[Call], Awaitable[ToolResult | None]] | None = None
    """The result of an earlier attempt, or `None` if it never started."""
    invalid: Callable[[Mapping[str, object]], str | None] = lambda _: None
    """An error in the input, for the model."""
    objection: Callable[[Call], Awaitable[str | None]] | None = None
    """Why a well-formed call cannot succeed now, for the model."""
    normalize_input: Callable[[Mapping[str, object]], Mapping[str, object]] = lambda args: args
    """The input for permission checks, with absolute paths. The log keeps the original."""
    preview: Callable[[Call], Awaitable[str | None]] | None = None
    """A description or diff of what a call would do, without doing it."""
    origin: ToolOrigin | None = None
    """`None`: it is not a tool of an MCP server."""
