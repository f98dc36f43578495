"""A tool call of the newest round, settled or not, as the log records it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal, TypeAlias

from msgspec import Struct
from msgspec.structs import replace

from mainspring.core import events
from mainspring.core.tool import InDoubtPolicy

CallKind: TypeAlias = Literal[
    "tool",
    "custom",  # a tool of the client
    "client",  # one of our tools that the client runs
]


class OpenCall(Struct, frozen=True, kw_only=True):
    """A call of the newest round: proposed, authorized, started, settled."""

    id: str
    name: str
    input: Mapping[str, object]
    kind: CallKind = "tool"
    decision: events.Permission | None = None
    reason: str | None = None
    answer: events.UserToolConfirmation | None = None
    started: str | None = None
    """Its idempotency key, once it has started."""
    attempts: int = 0
    in_doubt: InDoubtPolicy | None = None
    """How to settle it, if the process died between its start and its result."""
    is_foreign: bool = False
    """Started by the session that this one was forked from."""
    call_hash: str | None = None
    """Hash of the call that a person was asked about."""
    preview: str | None = None
    """What it would do, as shown to the person."""
    settled: bool = False
    failure: events.Failure | None = None
    """The kind of failure, if its result is an error."""

    @property
    def is_answered(self) -> bool:
        """Whether a person has approved or denied it; a call that the client runs needs a result
        instead."""
        return self.answer is not None and self.kind == "tool"

    @property
    def wants_answer(self) -> bool:
        """Whether a person or a client must answer before it can be settled."""
        is_asked = self.kind != "tool" or "ask" in (self.decision, self.in_doubt)
        return is_asked and not self.is_answered and not self.settled

    @property
    def is_approved(self) -> bool:
        """Whether a person has approved exactly this call."""
        return self.answer is not None and self.answer.result == "allow"

    def without_decisions(self) -> OpenCall:
        """The same call without a decision and without an answer."""
        return replace(
            self,
            decision=None,
            answer=None,
            in_doubt=None,
            call_hash=None,
            preview=None,
            is_foreign=self.started is not None,
        )
