"""What may stop the loop or an action: the harness asks, others decide (rules, hooks, people)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, Protocol, TypeAlias

from mainspring.core.events import Permission
from mainspring.core.tool import Call, Tool, Traits
from mainspring.harness.reasons import Continue, Ended
from mainspring.harness.thread import Thread

Gate: TypeAlias = Literal["rule", "mode", "hook", "guardrail", "person", "grant", "default"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Decision:
    decision: Permission
    gate: Gate
    rule: str | None = None
    reason: str | None = None


class Gates(Protocol):
    async def authorize(self, call: Call, tool: Tool, traits: Traits) -> Decision:
        """May this call run? Fails closed: what cannot be judged is denied or asked about."""
        ...

    async def after_round(self, thread: Thread) -> Ended | None:
        """The calls of a turn are settled; `hook_stopped` ends the run here."""
        ...

    async def before_stop(self, thread: Thread) -> Continue | Ended | None:
        """The model is done: send it back (`stop_hook_feedback`, `outcome_revision`), end with
        `stop_hook_prevented`, or let it be."""
        ...

    async def before_compact(self, thread: Thread) -> None:
        """Last chance to save what a compaction will take out of sight."""
        ...


class OpenGates:
    """No rules: every call may run. For tools that their caller has chosen one by one."""

    async def authorize(self, call: Call, tool: Tool, traits: Traits) -> Decision:
        return Decision(decision="allow", gate="default")

    async def after_round(self, thread: Thread) -> Ended | None:
        return None

    async def before_stop(self, thread: Thread) -> Continue | Ended | None:
        return None

    async def before_compact(self, thread: Thread) -> None:
        return None
