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

    # before 3.13, it can have no default when it runs
    Deps = TypeVar("Deps", covariant=True)  # noqa: PLC0105

Stashed = TypeVar("Stashed")
InDoubtPolicy: TypeAlias = Literal["retry", "probe", "ask", "report"]
_ENCODER = msgspec.json.Encoder(order="deterministic")


@dataclass(frozen=True, slots=True, kw_only=True)
class Question:
    """What a tool asks a person in mid-call. An answer counts only for exactly this question."""

    key: str
    """Names it among the questions of one call."""
    text: str
    form_schema: Mapping[str, object] | None = None
    evidence: tuple[Evidence, ...] = ()

    def subject(self, call_id: str) -> ApprovalSubject:
        shown = (self.text, self.form_schema, self.evidence)
        return ApprovalSubject(
            type="elicitation",
            id=f"{call_id}:{self.key}",
            hash=hashlib.sha256(_ENCODER.encode(shown)).hexdigest(),
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
    """The same for every attempt at this call, and for no other call."""
    session_id: str
    thread_id: str
    is_approved: bool = False
    """A person has agreed to what `preview` says of it; if that has changed, it is void."""
    say: Callable[[str], None] = lambda _: None
    """Shows what it does while it runs; nothing of it is kept."""
    stash: Callable[[object], Awaitable[None]] = _stash_nothing
    """Stores a value in JSON form, durable when it returns: the next attempt has it."""
    stashed: object = None
    """What this call, or an attempt that a crash ended, stashed last."""
    deps: Deps = cast("Deps", None)  # noqa: RUF009 (a constant)
    """What the caller passed as `deps=` to the run."""
    call_tool: Callable[[str, Mapping[str, object]], Awaitable[ToolResult]] | None = None
    """Calls another tool of the session through the same gates: what a program does with it."""

    answers: Mapping[str, ApprovalAnswered] = field(default_factory=dict[str, ApprovalAnswered])
    """What people answered to questions of this call, by the ids of the approvals."""

    def answer_to(self, question: Question) -> ApprovalAnswered | None:
        """The answer to a question; if there is none, return `ToolResult.asking(question)`."""
        return self.answers.get(question.approval_id(self.id))

    def read_stash(self, kind: type[Stashed], default: Stashed) -> Stashed:
        """What was stashed, as a value of a type; the default if nothing was.

        Raises:
            msgspec.ValidationError: something else was stashed.
        """
        return default if self.stashed is None else msgspec.convert(self.stashed, kind)


@dataclass(frozen=True, slots=True)
class ToolResult:
    content: tuple[Block, ...]
    """What the model reads."""
    ok: bool = True
    details: object = None
    """What people see; never sent to the model."""
    error: Failure | None = None
    """What kind of failure it is, when it is not ok."""
    facts: tuple[KnownPayload, ...] = ()
    """What it did that the log has a word for; written together with the result."""
    waits_for: tuple[str, ...] = ()
    """No outcome yet: other threads' calls that people must answer first. The same call is made
    again afterwards."""
    questions: tuple[Question, ...] = ()
    """No outcome yet: what a person must answer first. Then the same call is made again, with
    the answers, in this process or in another one."""

    @classmethod
    def text(cls, text: str, *, ok: bool = True, error: Failure | None = None) -> ToolResult:
        return cls((TextBlock(text),), ok, error=error)

    @classmethod
    def asking(cls, *questions: Question) -> ToolResult:
        return cls((), questions=questions)


@dataclass(frozen=True, slots=True, kw_only=True)
class Traits:
    """What one call, with its input, is like. The defaults are the safe ones."""

    read_only: bool = False
    concurrent: bool = False
    destructive: bool = False
    in_doubt: InDoubtPolicy = "report"
    """How a call that was started and not settled before a crash is settled."""
    on_interrupt: Literal["cancel", "block"] = "cancel"
    max_chars: int = 30_000
    cascades: bool = False
    """Its failure cancels later calls of the same tool in the same turn."""
    needs_person: bool = False
    """A person has to agree to it, whatever the mode and the rules allow."""
    by_client: bool = False
    """Once allowed, the client does it and sends the result: it has hands of its own."""


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
    """A failure that the model can act on is an `Outcome` that is not ok, not an exception."""
    traits: Callable[[Mapping[str, object]], Traits] = lambda _: Traits()
    probe: Callable[[Call], Awaitable[ToolResult | None]] | None = None
    """What became of an earlier attempt: its outcome, or `None` if it never happened."""
    invalid: Callable[[Mapping[str, object]], str | None] = lambda _: None
    """What is wrong with an input, in words for the model."""
    objection: Callable[[Call], Awaitable[str | None]] | None = None
    """What is wrong with a well-formed call as things stand, in words for the model."""
    normalize_input: Callable[[Mapping[str, object]], Mapping[str, object]] = lambda given: given
    """The input as gates are to see it: paths absolute. The log keeps what was asked."""
    preview: Callable[[Call], Awaitable[str | None]] | None = None
    """What a call would do, in words or as a diff, without doing it."""
    origin: ToolOrigin | None = None
    """`None`: it is not a tool of an MCP server."""
