"""One tool call of a recorded session: its input and its outcomes."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal, TypeAlias

import msgspec

from mainspring.core import events
from mainspring.core.content import Block, plain_text
from mainspring.core.tool import InDoubtPolicy
from mainspring.harness.authorizer import Decision
from mainspring.harness.tool_calls.crash_recovery import INTERRUPTED_TEXT

CallEnding: TypeAlias = Literal["settled", "crashed", "interrupted"]
"""The outcome of one attempt at a call."""

CallFact: TypeAlias = events.ToolsLoaded | events.OutputProduced | events.ThreadHandedOff
"""Effects of a call, besides its result, that the loop depends on."""

_ENCODER = msgspec.json.Encoder(order="deterministic")


@dataclass(slots=True, kw_only=True)
class RecordedCall:
    id: str
    name: str
    input: dict[str, object]
    is_custom: bool
    decision: Decision | None = None
    ran_input: dict[str, object] | None = None
    """The input as changed by the authorizer."""
    forbidden: Decision | None = None
    """The decision of a rule that was added while the call waited for a person, who then approved
    it."""
    voids: int = 0
    """How often an approval became void because the call's effect had changed."""
    facts: tuple[CallFact, ...] = ()
    """The facts that the model got besides the result."""
    call_endings: list[CallEnding] = field(default_factory=list[CallEnding])
    policy: InDoubtPolicy | None = None
    is_parallel: bool = False
    content: tuple[Block, ...] | None = None
    is_error: bool = False

    def judge(self, payload: events.ToolCallAuthorized) -> None:
        decision = Decision(
            decision=payload.decision,
            gate=payload.gate,
            rule=payload.rule,
            reason=payload.reason,
            updated_input=payload.updated_input,
        )
        if self.decision is None:
            self.decision, self.ran_input = decision, payload.updated_input
        else:
            self.forbidden = decision

    @property
    def key(self) -> tuple[str, bytes]:
        return key_of(self.name, self.input)

    def is_like(self, name: str, tool_input: Mapping[str, object]) -> bool:
        """Whether this is the requested input, or the input as changed by the authorizer."""
        changed = self.input if self.ran_input is None else self.ran_input
        return key_of(name, tool_input) in (self.key, key_of(self.name, changed))

    @property
    def is_refused(self) -> bool:
        """Whether it settled without being authorized or run: its input was wrong, or the call was
        not allowed there."""
        is_untouched = self.decision is None and not self.call_endings and self.policy is None
        is_dropped = self.content is not None and plain_text(self.content) == INTERRUPTED_TEXT
        return is_untouched and self.content is not None and not is_dropped


def key_of(name: str, tool_input: Mapping[str, object]) -> tuple[str, bytes]:
    return name, _ENCODER.encode(tool_input)
