"""Calls that begin while the reply that asks for them still streams: reads, and only reads.

What counts is the reply: if it never comes, or says something else, what was begun is forgotten,
and nothing was done that anybody could notice. So nothing of this is in the log until the reply is.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field

import anyio
from anyio.abc import TaskGroup

from mainspring.core.model import ToolUse
from mainspring.core.tool import Call, Outcome
from mainspring.harness.gates import Decision
from mainspring.log.background import unwrapped


@dataclass(slots=True)
class Begun:
    """One call that did not wait for the end of the reply."""

    use: ToolUse
    """As the model has asked, perhaps by another name than ours."""
    call: Call
    scope: anyio.CancelScope
    decision: Decision | None = None
    outcome: Outcome | None = None
    decided: anyio.Event = field(default_factory=anyio.Event)
    finished: anyio.Event = field(default_factory=anyio.Event)

    @property
    def may_run(self) -> bool:
        decision = self.decision
        return (
            decision is not None and decision.decision == "allow" and decision.updated_input is None
        )


class Early:
    def __init__(self, group: TaskGroup) -> None:
        self._group = group
        self._by_use: dict[str, Begun] = {}
        self._by_call: dict[str, Begun] = {}
        self._is_closed = False

    def begin(
        self,
        use: ToolUse,
        call: Call,
        *,
        authorize: Callable[[], Awaitable[Decision]],
        perform: Callable[[], Awaitable[Outcome]],
    ) -> None:
        begun = Begun(use, call, anyio.CancelScope())
        self._by_use[use.id] = self._by_call[call.id] = begun

        async def run() -> None:
            with begun.scope:
                decision = await authorize()
                # a grant may be good for one call only: those are judged again, one by one
                begun.decision = None if decision.gate == "grant" else decision
                begun.decided.set()
                if begun.may_run:
                    begun.outcome = await perform()
            begun.decided.set()
            begun.finished.set()

        self._group.start_soon(run)

    @property
    def is_closed(self) -> bool:
        """Something that must run alone has been asked for: what follows waits for it."""
        return self._is_closed

    def close(self) -> None:
        self._is_closed = True

    def known(self, use: ToolUse) -> Call | None:
        """What was begun for a part of the reply, if that is still what the reply says."""
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

    async def outcome(self, call_id: str) -> Outcome | None:
        """What it has given; `None` if it was not begun, or was not allowed to run."""
        begun = self._by_call.get(call_id)
        if begun is None:
            return None
        try:
            await begun.finished.wait()
        except anyio.get_cancelled_exc_class():
            begun.scope.cancel()
            raise
        return begun.outcome

    def forget(self) -> None:
        """The round is over, or there will be none."""
        for begun in self._by_call.values():
            begun.scope.cancel()
        self._by_use.clear()
        self._by_call.clear()
        self._is_closed = False


@asynccontextmanager
async def early_calls() -> AsyncGenerator[Early, None]:
    """Calls may begin early for as long as the block lasts; none outlives it."""
    with unwrapped():
        async with anyio.create_task_group() as group:
            early = Early(group)
            yield early
            early.forget()
