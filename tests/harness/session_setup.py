"""A real loop on a real log with a scripted model: what harness tests play on."""

from collections.abc import AsyncGenerator, Callable, Iterable, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import TypeVar

import anyio
from tests.senders import TESTER

from mainspring.core import ids
from mainspring.core.content import TextBlock
from mainspring.core.envelope import Event
from mainspring.core.events import (
    ClientPayload,
    LoopContinued,
    StatusIdle,
    UserInterrupt,
    UserMessage,
)
from mainspring.core.model import Delta, Model, ToolSpec
from mainspring.core.model_facts import ModelFacts
from mainspring.core.ports import Snapshots
from mainspring.core.tool import Call, Tool, ToolResult, Traits
from mainspring.harness.authorizer import AllowAll, Authorizer
from mainspring.harness.budget import BudgetTier
from mainspring.harness.context.prompts import system_prompt
from mainspring.harness.context.request_builder import PromptPrefix, sorted_specs
from mainspring.harness.event_sink import EventSink
from mainspring.harness.limits import Limits
from mainspring.harness.loop import run
from mainspring.harness.state.thread_tree import ThreadTree
from mainspring.harness.stop_reasons import Ended
from mainspring.harness.thread_context import ThreadContext
from mainspring.harness.toolbox import Toolbox
from mainspring.log.session_log import SessionLog
from mainspring.log.sqlite import open_sqlite

T = TypeVar("T")
FACTS = ModelFacts(id="scripted:test", window=200_000, max_output=64_000)


def echo(name: str = "echo", traits: Traits | None = None, ran: list[str] | None = None) -> Tool:
    """A tool that says what it was given, and notes that it ran."""

    async def answer(call: Call) -> ToolResult:
        if ran is not None:
            ran.append(call.id)
        return ToolResult.text(f"echo {call.input.get('x', '')}")

    return Tool(
        spec=ToolSpec(name=name, description="Says it again.", input_schema={"type": "object"}),
        run=answer,
        traits=lambda _: traits or Traits(),
    )


def always(answer: T) -> Callable[[Mapping[str, object]], T]:
    """The same for every input."""
    return lambda _: answer


@dataclass(kw_only=True)
class Stage:
    """One session. `play` runs its loop as a new worker would: from the log alone."""

    log: SessionLog
    session_id: str
    model: Model
    tools: Mapping[str, Tool] = field(default_factory=dict[str, Tool])
    custom_tools: frozenset[str] = frozenset()
    deferred: frozenset[str] = frozenset()
    aliases: Mapping[str, str] = field(default_factory=dict[str, str])
    snapshots: Snapshots | None = None
    authorizer: Authorizer = field(default_factory=AllowAll)
    limits: Limits = field(default_factory=Limits)
    facts: ModelFacts = FACTS
    rules: tuple[str, ...] = ()
    deltas: list[Delta] = field(default_factory=list[Delta])
    emit: Callable[[Delta], None] | None = None

    async def send(self, *payloads: ClientPayload | str) -> None:
        for payload in payloads:
            if isinstance(payload, str):
                payload = UserMessage(content=(TextBlock(payload),))
            await self.log.submit(self.session_id, payload, sender=TESTER)

    async def context(self) -> ThreadContext:
        session = await self.log.session(self.session_id)
        seen = None if session.owner is None else (session.owner, session.epoch)
        writer = await self.log.hold(self.session_id, owner="worker", instead_of=seen)
        log = await self.log.read(self.session_id)
        record = EventSink(writer=writer, thread_tree=ThreadTree.of(log, writer.thread_id))
        context = ThreadContext(
            event_sink=record,
            thread=record.thread_tree.main.thread,
            model=self.model,
            facts=self.facts,
            prompt_prefix=PromptPrefix(
                model=self.facts.id,
                system=system_prompt(rules=self.rules),
                tools=sorted_specs(
                    tool.spec for name, tool in self.tools.items() if name not in self.deferred
                ),
            ),
            toolbox=Toolbox(
                authorizer=self.authorizer,
                tools=[*self.tools.values()],
                client_tools=[
                    ToolSpec(name=name, description="", input_schema={})
                    for name in self.custom_tools
                ],
                deferred=self.deferred,
                aliases=self.aliases,
                snapshots=self.snapshots,
            ),
            tiers=[BudgetTier(record.thread_tree.main.spend_account, self.limits)],
            emit=self.emit or self.deltas.append,
            new_id=ids.new_id,
        )
        context.load(context.thread.session_state.loaded_tools or ())
        return context

    async def play(self, *payloads: ClientPayload | str) -> Ended | None:
        await self.send(*payloads)
        return await run(await self.context())

    async def end_of(self, *payloads: ClientPayload | str) -> Ended:
        """How a run ends that does end."""
        ended = await self.play(*payloads)
        assert ended is not None
        return ended

    async def interrupted(self, when: anyio.Event, *payloads: ClientPayload | str) -> Ended:
        """How a run ends that a person interrupts once something has happened."""

        async def interrupt() -> None:
            await when.wait()
            await self.send(UserInterrupt())

        ends: list[Ended] = []
        with anyio.fail_after(60):
            async with anyio.create_task_group() as group:
                group.start_soon(interrupt)
                ends.append(await self.end_of(*payloads))
        return ends[0]

    async def events(self) -> list[Event]:
        return await self.log.read(self.session_id)

    async def kinds(self) -> list[str]:
        return [event.type for event in await self.events()]

    async def continued(self) -> list[str]:
        """Why the loop went on, each time."""
        return [
            e.payload.reason for e in await self.events() if isinstance(e.payload, LoopContinued)
        ]

    async def ended(self) -> list[str | None]:
        """Why each run ended, as the log has it."""
        return [e.payload.reason for e in await self.events() if isinstance(e.payload, StatusIdle)]


@asynccontextmanager
async def stage(
    path: Path, model: Model, *tools: Tool, **settings: object
) -> AsyncGenerator[Stage]:
    async with open_sqlite(path / "log.db") as store:
        log = SessionLog(store)
        session = await log.create()
        yield Stage(
            log=log,
            session_id=session.id,
            model=model,
            tools={tool.spec.name: tool for tool in tools},
            **settings,  # pyright: ignore[reportArgumentType] (fields of Stage, by name)
        )


def texts(events: Iterable[Event], kind: str) -> list[str]:
    """What was said in events of a type."""
    found: list[str] = []
    for event in events:
        if event.type == kind:
            blocks = getattr(event.payload, "content", ())
            found.append("".join(block.text for block in blocks if isinstance(block, TextBlock)))
    return found
