"""Read-only calls that start while the reply that requests them is still streaming. The final
reply decides: if it differs, their results are dropped.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import asynccontextmanager

import anyio
from anyio.abc import TaskGroup
from msgspec import Struct, field

from mainspring.core.model import ToolUse
from mainspring.core.tool import Call, ToolResult
from mainspring.harness.authorizer import Decision
from mainspring.log.task_groups import unwrap_single_error


class SpeculativeCall(Struct):
    """A call that started before the reply ended."""

    use: ToolUse
    """As the model requested it, perhaps by an alias."""
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


class SpeculativeReads:
    def __init__(self, group: TaskGroup) -> None:
        self._group = group
        self._by_use: dict[str, SpeculativeCall] = {}
        self._by_call: dict[str, SpeculativeCall] = {}
        self._is_closed = False

    def begin(
        self,
        use: ToolUse,
        call: Call,
        *,
        authorize: Callable[[], Awaitable[Decision]],
        perform: Callable[[], Awaitable[ToolResult]],
    ) -> None:
        begun = SpeculativeCall(use, call, anyio.CancelScope())
        self._by_use[use.id] = self._by_call[call.id] = begun

        async def run() -> None:
            with begun.scope:
                decision = await authorize()
                # a grant may cover one call only, so these are authorized again one by one
                begun.decision = None if decision.gate == "grant" else decision
                begun.decided.set()
                if begun.may_run:
                    begun.result = await perform()
            begun.decided.set()
            begun.finished.set()

        self._group.start_soon(run)

    @property
    def is_closed(self) -> bool:
        """A call that must run alone was requested: later calls wait for it."""
        return self._is_closed

    def close(self) -> None:
        self._is_closed = True

    def matching_call(self, use: ToolUse) -> Call | None:
        """The call that was started for a part of the reply, if the reply still contains it."""
        begun = self._by_use.get(use.id)
        if begun is None or (begun.use.name, begun.use.input) != (use.name, use.input):
            return None
        return begun.call

    async def decision(self, call_id: str) -> Decision | None:
        begun = self._by_call.get(call_id)
        if begun is None:
            return None
        await begun.decided.wait()
        return begun.decision

    async def result(self, call_id: str) -> ToolResult | None:
        """Its result; `None` if it was not started or not allowed."""
        begun = self._by_call.get(call_id)
        if begun is None:
            return None
        try:
            await begun.finished.wait()
        except anyio.get_cancelled_exc_class():
            begun.scope.cancel()
            raise
        return begun.result

    def discard(self) -> None:
        """Drop all calls: the round is over, or there will be none."""
        for begun in self._by_call.values():
            begun.scope.cancel()
        self._by_use.clear()
        self._by_call.clear()
        self._is_closed = False


@asynccontextmanager
async def open_speculative_reads() -> AsyncGenerator[SpeculativeReads, None]:
    """Calls may start early while the block lasts; none outlives it."""
    with unwrap_single_error():
        async with anyio.create_task_group() as group:
            early = SpeculativeReads(group)
            yield early
            early.discard()
