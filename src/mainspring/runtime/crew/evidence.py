"""Gates of a subagent that gives verdicts: it may not stop before it has run something."""

from __future__ import annotations

from dataclasses import dataclass

from mainspring.core.hook import Occasion, Ruling
from mainspring.core.tool import Call, Tool, Traits
from mainspring.harness.gates import Decision, Gates
from mainspring.harness.permissions.names import ours
from mainspring.harness.reasons import Continue, Ended
from mainspring.harness.thread import Thread

_RUNNING = frozenset(("bash", "python", "service_start"))
_NOTHING_RAN = (
    "You have not run anything, so you have shown nothing. Run the work or its tests and give the"
    " commands with what they printed; if that is impossible here, say so with VERDICT: PARTIAL."
)


@dataclass(frozen=True, slots=True)
class Evidence:
    gates: Gates

    async def authorize(self, call: Call, tool: Tool, traits: Traits) -> Decision:
        return await self.gates.authorize(call, tool, traits)

    def still_forbidden(self, call: Call, traits: Traits) -> Decision | None:
        return self.gates.still_forbidden(call, traits)

    async def tell(self, thread: Thread, occasion: Occasion) -> Ruling:
        return await self.gates.tell(thread, occasion)

    async def after_round(self, thread: Thread) -> Ended | None:
        return await self.gates.after_round(thread)

    async def before_stop(self, thread: Thread) -> Continue | Ended | None:
        if not any(ours(name) in _RUNNING for name, _ in thread.gear.calls):
            return Continue("stop_hook_feedback", _NOTHING_RAN)
        return await self.gates.before_stop(thread)

    async def before_compact(self, thread: Thread) -> None:
        await self.gates.before_compact(thread)
