"""A world in which anything may happen at any instant: clients speak, processes die, calls race.

An instant is a write to the log, a part of a reply, or a call that begins or has done its effect.
What happens at which is given by the test; nothing here is random, and nothing waits for a clock.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping, Sequence
from contextlib import aclosing
from dataclasses import dataclass, field
from typing import TypeAlias, cast

import anyio
import anyio.lowlevel
from anyio import CancelScope
from tests.harness.session_setup import Stage
from tests.senders import TESTER

from mainspring.capabilities.providers.scripted import Scripted
from mainspring.core.content import TextBlock
from mainspring.core.envelope import Event
from mainspring.core.events import (
    AgentCustomToolUse,
    StatusIdle,
    UserCustomToolResult,
    UserToolConfirmation,
)
from mainspring.core.model import Delta, Reply, Request, ToolSpec
from mainspring.core.tool import Call, InDoubtPolicy, Tool, ToolResult, Traits
from mainspring.harness.authorizer import AllowAll, Decision
from mainspring.harness.loop import run
from mainspring.harness.state.thread import Thread
from mainspring.harness.stop_reasons import Ended
from mainspring.log.session_log import SessionLog
from mainspring.log.store import Append, Store

POLICIES: Mapping[str, InDoubtPolicy] = {
    "act": "report",
    "find": "probe",
    "again": "retry",
    "sign": "ask",
}
CUSTOM = "client"


class Killed(BaseException):
    """The process is gone. What its tasks still do, they do not do."""


Happening: TypeAlias = Callable[["World"], Awaitable[None]]


@dataclass
class Life:
    """One process: it is dead from the moment it was killed, whatever still unwinds."""

    is_dead: bool = False

    def breathe(self) -> None:
        if self.is_dead:
            raise Killed

    def die(self) -> None:
        self.is_dead = True
        raise Killed


@dataclass(kw_only=True)
class World:
    log: SessionLog
    session_id: str
    script: Scripted
    happenings: Mapping[int, Sequence[Happening]] = field(
        default_factory=dict[int, Sequence[Happening]]
    )
    """By instant, from 1."""
    deaths: Mapping[int, bool] = field(default_factory=dict[int, bool])
    """By write, from 1: whether to die before it is done; else right after."""
    requests: list[Request] = field(default_factory=list[Request])
    """All that the model was given."""
    effects: list[tuple[str, str]] = field(default_factory=list[tuple[str, str]])
    """Tool and idempotency key of each effect, in the order they happened."""
    sent: list[str] = field(default_factory=list[str])
    """What the user said."""
    life: Life = field(default_factory=Life)
    thread: Thread | None = None
    """As the last run left it, unless it died."""
    _instants: int = 0
    _writes: int = 0
    _racing: dict[str, int] = field(default_factory=dict[str, int])
    _finished: anyio.Event = field(default_factory=anyio.Event)

    async def instant(self) -> None:
        self.life.breathe()
        self._instants += 1
        with CancelScope(shield=True):  # clients are not a part of whatever is cancelled here
            for happening in self.happenings.get(self._instants, ()):
                await happening(self)
        self.life.breathe()

    async def say(self, text: str) -> None:
        self.sent.append(text)
        await self._stage().send(text)

    async def submit(self, payload: UserToolConfirmation | UserCustomToolResult) -> None:
        await self.log.submit(self.session_id, payload, sender=TESTER)

    async def asked(self) -> list[Event]:
        """Calls that the session says it waits for."""
        events = await self.log.read(self.session_id)
        idle = [event.payload for event in events if isinstance(event.payload, StatusIdle)]
        ids = (idle[-1].stop_reason.event_ids or ()) if idle else ()
        return [event for event in events if event.id in ids]

    async def answer(self, *, allows: bool, times: int = 1) -> bool:
        """Answer all that it waits for; a person looks before allowing something once more."""
        waiting = await self.asked()
        for event in waiting:
            for _ in range(times):
                await self.submit(self._answer(event, allows=allows))
        return bool(waiting)

    def _answer(self, event: Event, *, allows: bool) -> UserToolConfirmation | UserCustomToolResult:
        if isinstance(event.payload, AgentCustomToolUse):
            return UserCustomToolResult(
                custom_tool_use_id=event.id, content=(TextBlock("from the client"),)
            )
        is_done = any(event.id == key for _, key in self.effects)
        result = "allow" if allows and not is_done else "deny"
        return UserToolConfirmation(tool_use_id=event.id, result=result)

    async def live(self) -> Ended | None:
        """Run until the session ends or waits; after a death, in a new life."""
        while True:
            self.life = Life()
            self._racing.clear()
            context = await self._stage(Mortal(self.log.store, self, self.life)).context()
            ended: Ended | None = None
            try:
                with anyio.fail_after(60):
                    ended = await run(context)
            except* Killed:
                assert self.life.is_dead
            if not self.life.is_dead:
                self.thread = context.thread
                return ended

    def _stage(self, store: Mortal | None = None) -> Stage:
        log = self.log if store is None else SessionLog(cast("Store", store))
        return Stage(
            log=log,
            session_id=self.session_id,
            model=self,
            tools=self._tools(),
            custom_tools=frozenset({CUSTOM}),
            authorizer=ByInput(),
        )

    async def stream(self, request: Request) -> AsyncGenerator[Delta | Reply]:
        self.requests.append(request)
        async with aclosing(self.script.stream(request)) as deltas:
            async for delta in deltas:
                await self.instant()
                yield delta

    async def write(self, append: Append, life: Life) -> None:
        life.breathe()
        self._writes += 1
        dies_before = self.deaths.get(self._writes)
        if dies_before:
            life.die()
        await self.log.store.append(append)
        if dies_before is False:
            life.die()
        await self.instant()

    def _tools(self) -> dict[str, Tool]:
        made = [self._tool(name, policy) for name, policy in POLICIES.items()]
        return {tool.spec.name: tool for tool in made}

    def _tool(self, name: str, policy: InDoubtPolicy) -> Tool:
        def traits(given: Mapping[str, object]) -> Traits:
            return Traits(
                concurrent=bool(given.get("together")),
                in_doubt=policy,
                on_interrupt="block" if given.get("blocks") else "cancel",
            )

        async def find(call: Call) -> ToolResult | None:
            is_done = (name, call.id) in self.effects
            return self._outcome(call) if is_done else None

        return Tool(
            spec=ToolSpec(name=name, description="", input_schema={"type": "object"}),
            run=self._run,
            traits=traits,
            probe=find if policy == "probe" else None,
            invalid=lambda given: "This is wrong." if given.get("wrong") else None,
        )

    async def _run(self, call: Call) -> ToolResult:
        """In a race, the one with the lowest rank is first to do its effect and to end."""
        life = self.life
        rank = cast("int", call.input.get("rank", 0))
        self._racing[call.id] = rank
        try:
            await self.instant()
            for _ in range(3):  # the others of its group begin
                await anyio.lowlevel.checkpoint()
            while any(other < rank for other in self._racing.values()):
                await self._finished.wait()
            life.breathe()
            self.effects.append((call.name, call.id))
            await self.instant()
            return self._outcome(call)
        finally:
            self._racing.pop(call.id, None)
            self._finished.set()
            self._finished = anyio.Event()

    @staticmethod
    def _outcome(call: Call) -> ToolResult:
        return ToolResult.text(f"{call.name} {call.input}", ok=not call.input.get("fails"))


class Mortal:
    """The store, for as long as the process lives."""

    def __init__(self, store: Store, world: World, life: Life) -> None:
        self._store = store
        self._world = world
        self._life = life

    def __getattr__(self, name: str) -> object:
        self._life.breathe()
        return getattr(self._store, name)

    async def append(self, append: Append) -> None:
        await self._world.write(append, self._life)


class ByInput(AllowAll):
    """Judges a call by what it says of itself."""

    async def authorize(self, call: Call, tool: Tool, traits: Traits) -> Decision:
        match call.input.get("gate"):
            case "ask":
                return Decision(decision="ask", gate="rule", rule="Ask")
            case "deny":
                return Decision(decision="deny", gate="rule", rule="Deny", reason="no")
            case _:
                return Decision(decision="allow", gate="default")
