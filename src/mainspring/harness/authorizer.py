"""The authorizer, which may stop a call or the loop. The harness asks; rules, hooks and people
decide.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal, Protocol, TypeAlias

from mainspring.core.events import KnownPayload, Permission
from mainspring.core.hook import EMPTY_HOOK_RESULT, HookEvent, HookResult
from mainspring.core.tool import Call, Tool, Traits
from mainspring.harness.state.thread import Thread
from mainspring.harness.stop_reasons import Continue, Ended

DecisionSource: TypeAlias = Literal[
    "rule", "mode", "hook", "guardrail", "person", "grant", "default"
]
AskTarget: TypeAlias = Literal["person", "classifier", "parent"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Decision:
    decision: Permission
    gate: DecisionSource
    rule: str | None = None
    reason: str | None = None
    asks: AskTarget = "person"
    """Who answers an `ask`: the classifier of the mode auto, or a parent session."""
    updated_input: Mapping[str, object] | None = None
    """The input to run instead of the requested one."""
    context: tuple[str, ...] = ()
    """Text that the model reads with the result."""
    stop: str | None = None
    """Why the run ends after this round, if it does."""
    facts: tuple[KnownPayload, ...] = ()
    """Facts to record with the decision."""


class Authorizer(Protocol):
    async def authorize(self, call: Call, tool: Tool, traits: Traits) -> Decision:
        """Decide whether a call may run. Fails closed: a call that cannot be analysed is denied or
        asked about."""
        ...

    def still_forbidden(self, call: Call, traits: Traits) -> Decision | None:
        """Whether the rules now deny a call that a person has approved. Hooks do not run again."""
        ...

    async def run_hooks(self, thread: Thread, hook_event: HookEvent) -> HookResult:
        """Run the hooks of an event."""
        ...

    async def after_round(self, thread: Thread) -> Ended | None:
        """The calls of a turn are settled; `hook_stopped` ends the run here."""
        ...

    async def before_stop(self, thread: Thread) -> Continue | Ended | None:
        """The model is done: send it back (`stop_hook_feedback`, `outcome_revision`), end with
        `stop_hook_prevented`, or let it stop."""
        ...

    async def before_compact(self, thread: Thread) -> None:
        """Called before a compaction removes messages from the context."""
        ...


class AllowAll:
    """No rules: every call may run, unless its tool requires approval. For programs that choose
    every tool themselves."""

    async def authorize(self, call: Call, tool: Tool, traits: Traits) -> Decision:
        if traits.needs_person:
            reason = "the tool requires a person's approval"
            return Decision(decision="ask", gate="guardrail", reason=reason)
        return Decision(decision="allow", gate="default")

    def still_forbidden(self, call: Call, traits: Traits) -> Decision | None:
        return None

    async def run_hooks(self, thread: Thread, hook_event: HookEvent) -> HookResult:
        return EMPTY_HOOK_RESULT

    async def after_round(self, thread: Thread) -> Ended | None:
        return None

    async def before_stop(self, thread: Thread) -> Continue | Ended | None:
        return None

    async def before_compact(self, thread: Thread) -> None:
        return None
