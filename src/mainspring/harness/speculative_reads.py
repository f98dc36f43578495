"""Read-only calls that start while the reply that requests them is still streaming. The final
reply decides: if it differs, their results are dropped.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable

import anyio
from anyio.abc import TaskGroup
from msgspec import Struct, field

from mainspring.core.model import ToolUse
from mainspring.core.tool import Call, ToolResult
from mainspring.harness.authorizer import Decision


class SpeculativeCall(Struct):
    """A call that started before the reply ended."""

    use: ToolUse
    """The call as the model requested it, perhaps by an alias."""
    call: Call
    scope: anyio.CancelScope
    decision: Decision | None = None
    result: ToolResult | None = None
    decided: anyio.Event = field(default_factory=anyio.Event)
    finished: anyio.Event = field(default_factory=anyio.Event)

    @property
    def may_run(self) -> bool:
        decision = self.decision
        return (
            decision is not None and decision.decision == "allow" and decision.updated_input is None
        )


class SpeculativeReads(Struct):
    group: TaskGroup
    """The task group of the run: no call outlives it."""
    is_closed: bool = False
    """A call that must run alone was requested: later calls wait for it."""
    _by_use: dict[str, SpeculativeCall] = {}
    _by_call: dict[str, SpeculativeCall] = {}

    def begin(
        self,
        use: ToolUse,
        call: Call,
        *,
        authorize: Callable[[], Awaitable[Decision]],
        perform: Callable[[], Awaitable[ToolResult]],
    ) -> None:
        speculative = SpeculativeCall(use, call, anyio.CancelScope())
        self._by_use[use.id] = self._by_call[call.id] = speculative

        async def run() -> None:
            with speculative.scope:
                decision = await authorize()
                # a grant may cover one call only, so these are authorized again one by one
                speculative.decision = None if decision.gate == "grant" else decision
                speculative.decided.set()
                if speculative.may_run:
                    speculative.result = await perform()
            speculative.decided.set()
            speculative.finished.set()

        self.group.start_soon(run)

    def matching_call(self, use: ToolUse) -> Call | None:
        """The call that was started for a part of the reply, if the reply still contains it."""
        speculative = self._by_use.get(use.id)
        if speculative is None or (speculative.use.name, speculative.use.input) != (
            use.name,
            use.input,
        ):
            return None
        return speculative.call

    async def decision(self, call_id: str) -> Decision | None:
        speculative = self._by_call.get(call_id)
        if speculative is None:
            return None
        await speculative.decided.wait()
        return speculative.decision

    async def result(self, call_id: str) -> ToolResult | None:
        """The result of a call; `None` if it was not started or not allowed."""
        speculative = self._by_call.get(call_id)
        if speculative is None:
            return None
        try:
            await speculative.finished.wait()
        except anyio.get_cancelled_exc_class():
            speculative.scope.cancel()
            raise
        return speculative.result

    def discard(self) -> None:
        """Drop all calls: the round is over, or there will be none."""
        for speculative in self._by_call.values():
            speculative.scope.cancel()
        self._by_use.clear()
        self._by_call.clear()
        self.is_closed = False
