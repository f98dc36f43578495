"""A session with several threads in bad weather: at any instant a person speaks, stops one thread
or all, answers, or the process dies. An instant is a write to the log or a part of a reply.
"""

from collections.abc import AsyncGenerator, Mapping, Sequence
from contextlib import aclosing
from dataclasses import dataclass, field
from typing import Literal, TypeAlias, cast

import anyio
from anyio import CancelScope
from tests.harness.random_world import Killed, Life
from tests.runtime.subagents.thread_states import check_live, folded
from tests.senders import TESTER

from mainspring import Agent, Runtime
from mainspring.core.content import TextBlock
from mainspring.core.envelope import Event
from mainspring.core.events import (
    ClientPayload,
    StatusIdle,
    UserInterrupt,
    UserMessage,
    UserToolConfirmation,
)
from mainspring.core.model import Delta, Model, Reply, Request
from mainspring.log.store import Append, Lease, Store
from mainspring.runtime.session.run_result import RunResult

Happening: TypeAlias = Literal["say", "say to one", "stop all", "stop one", "allow", "deny", "die"]


@dataclass(kw_only=True)
class Storm:
    runtime: Runtime
    agent: Agent
    model: Model
    session_id: str
    happenings: Mapping[int, Sequence[tuple[Happening, int]]] = field(
        default_factory=dict[int, Sequence[tuple[Happening, int]]]
    )
    """By instant, from 1; with a number that chooses the thread."""
    requests: list[Request] = field(default_factory=list[Request])
    life: Life = field(default_factory=Life)
    instants: int = 0
    heads: list[int] = field(default_factory=list[int])
    """Where the log ended after each write."""

    def __post_init__(self) -> None:
        self._store = self.runtime.log.store
        self.runtime.models.put(self.agent.model, self)

    async def stream(self, request: Request) -> AsyncGenerator[Delta | Reply]:
        self.requests.append(request)
        async with aclosing(self.model.stream(request)) as deltas:
            async for delta in deltas:
                await self.instant()
                yield delta

    async def instant(self) -> None:
        self.life.breathe()
        self.instants += 1
        with CancelScope(shield=True):  # who does this is no part of what it stops
            for what, number in self.happenings.get(self.instants, ()):
                await self._happen(what, number)
        self.life.breathe()

    async def run(self) -> RunResult | None:
        """Until the session ends or waits; after a death, in a new life."""
        while True:
            self.life = Life()
            self.runtime.log.store = cast("Store", Mortal(self._store, self, self.life))
            session = await self.runtime.resume(self.agent, self.session_id)
            result: RunResult | None = None
            try:
                with anyio.fail_after(60):
                    result = await session.run()
            except* Killed:
                assert self.life.is_dead
            finally:
                self.runtime.log.store = self._store
            if not self.life.is_dead:
                await check_live(session)
                return result

    async def to_the_end(self) -> RunResult | None:
        """Answer whatever is asked for, until nothing is."""
        result = await self.run()
        while await self.answer("allow"):
            result = await self.run()
        return result

    async def events(self) -> list[Event]:
        return await self.runtime.log.read(self.session_id)

    async def say(self, text: str) -> None:
        await self._submit(UserMessage(content=(TextBlock(text),)))

    async def answer(self, result: Literal["allow", "deny"]) -> bool:
        idle = [e.payload for e in await self.events() if isinstance(e.payload, StatusIdle)]
        asked = (idle[-1].stop_reason.event_ids or ()) if idle else ()
        for call_id in asked:
            await self._submit(UserToolConfirmation(tool_use_id=call_id, result=result))
        return bool(asked)

    async def _happen(self, what: Happening, number: int) -> None:
        match what:
            case "say":
                await self.say(f"message {self.instants}")
            case "stop all":
                await self._submit(UserInterrupt())
            case "stop one":
                chosen = await self._chosen(number)
                await self._submit(UserInterrupt(session_thread_id=chosen), chosen)
            case "say to one":
                said = UserMessage(content=(TextBlock("just you"),))
                await self._submit(said, await self._chosen(number))
            case "allow" | "deny":
                await self.answer(what)
            case "die":
                self.life.die()

    async def _chosen(self, number: int) -> str:
        threads = list(folded(await self.events()).nodes)
        return threads[number % len(threads)]

    async def _submit(self, payload: ClientPayload, thread_id: str | None = None) -> None:
        store, self.runtime.log.store = self.runtime.log.store, self._store
        try:
            await self.runtime.log.submit(
                self.session_id, payload, thread_id=thread_id, sender=TESTER
            )
        finally:
            self.runtime.log.store = store


class Mortal:
    """The store, for as long as the process lives; the lease of a dead one runs out at once."""

    def __init__(self, store: Store, storm: Storm, life: Life) -> None:
        self._store = store
        self._storm = storm
        self._life = life

    def __getattr__(self, name: str) -> object:
        self._life.breathe()
        return getattr(self._store, name)

    async def renew(self, lease: Lease) -> None:
        await self._store.renew(lease)

    async def append(self, append: Append) -> None:
        await self._storm.instant()
        await self._store.append(append)
        self._storm.heads.append(append.head.seq)
        await self._storm.instant()
