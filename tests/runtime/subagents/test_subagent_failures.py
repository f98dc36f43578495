"""What goes wrong beside the main thread: it ends there, is told, and nothing else suffers."""

from collections.abc import AsyncGenerator, Callable
from contextlib import asynccontextmanager, suppress
from dataclasses import replace
from pathlib import Path
from typing import cast

import anyio
import anyio.lowlevel
import pytest
from tests.harness.random_world import Killed
from tests.runtime.subagents.scripted_threads import (
    LEAD,
    ask,
    births,
    newest,
    once,
    played,
    reply,
    staged,
    task_of,
    troupe,
    turn_of,
)
from tests.runtime.subagents.thread_states import folded
from tests.senders import TESTER

from mainspring import tool
from mainspring.capabilities.providers.scripted import ScriptAnswer, Scripted
from mainspring.core.errors import Fenced, SandboxFailed, StoreFull
from mainspring.core.events import AgentToolUse, SessionWoken, UserInterrupt
from mainspring.core.model import Request
from mainspring.harness.authorizer import AllowAll
from mainspring.harness.toolbox import Toolbox
from mainspring.log.store import Append, InboxItem, Store
from mainspring.runtime.session.session import Runtime
from mainspring.runtime.session_context import SetupRequest
from mainspring.testing import calls, says


class FaultyStore:
    """A store that fails at the first write with an event of a type that tells of a child."""

    def __init__(self, store: Store, kind: str, error: Exception) -> None:
        self._store = store
        self._kind = kind
        self._error: Exception | None = error
        self.looks = 0

    def __getattr__(self, name: str) -> object:
        return getattr(self._store, name)

    async def append(self, append: Append) -> None:
        is_meant = any(row.type == self._kind and "child" in row.body for row in append.rows)
        if is_meant and (error := self._error) is not None:
            self._error = None
            raise error
        await self._store.append(append)

    async def pending(
        self, session_id: str, *, types: frozenset[str] | None = None
    ) -> list[InboxItem]:
        self.looks += 1
        return await self._store.pending(session_id, types=types)


def remove_thread_setup(runtime: Runtime) -> None:
    """No thread but the main one finds a place to work."""

    @asynccontextmanager
    async def refused(_opening: SetupRequest) -> AsyncGenerator[Toolbox]:
        raise SandboxFailed("no room for it here")
        yield

    @asynccontextmanager
    async def toolbox_factory(_opening: SetupRequest) -> AsyncGenerator[Toolbox]:
        yield Toolbox(authorizer=AllowAll(), for_thread=refused)

    runtime.toolbox_factory = toolbox_factory


@pytest.mark.parametrize("is_background", [False, True])
async def test_a_subagent_without_a_workspace_ends_with_a_reason(
    tmp_path: Path, is_background: bool
):
    def lead(request: Request) -> ScriptAnswer:
        if turn_of(request) == 0:
            return ask("go", run_in_background=is_background)
        return says(f"so: {newest(request)}")

    async with staged(tmp_path, troupe({"begin": lead})) as runtime:
        remove_thread_setup(runtime)
        session = await runtime.start(LEAD, "begin")
        with anyio.fail_after(60):
            result = await session.run()
        assert result is not None
        assert "no room for it here" in result.text
        other = await runtime.resume(LEAD, session.id)
        assert await other.run() is None, "nothing is left to be done"
        events = await session.events()
    [birth] = births(events)
    member = folded(events).nodes[birth.session_thread_id]
    assert (member.thread.running, member.is_reported) == (False, True)


@pytest.mark.parametrize("kind", ["agent.message", "session.thread_created"])
async def test_a_failed_write_of_a_subagent_ends_the_run_but_not_its_call(
    tmp_path: Path, kind: str
):
    model = troupe({"begin": once(ask("child")), "task child": reply("a child speaks")})
    async with staged(tmp_path, model) as runtime:
        store = runtime.log.store
        session = await runtime.start(LEAD, "begin")
        runtime.log.store = cast("Store", FaultyStore(store, kind, StoreFull("no room")))
        with anyio.fail_after(60), pytest.raises(StoreFull):
            await session.run()
        runtime.log.store = store
        result = await (await runtime.resume(LEAD, session.id)).run()
    assert result is not None
    assert "a child speaks" in result.text


async def test_a_lease_lost_in_a_subagent_ends_the_run(tmp_path: Path):
    model = troupe({"begin": once(ask("child")), "task child": reply("a child speaks")})
    async with staged(tmp_path, model) as runtime:
        session = await runtime.start(LEAD, "begin")
        fenced = Fenced(session.id, epoch=1, current=2)
        runtime.log.store = cast("Store", FaultyStore(runtime.log.store, "agent.message", fenced))
        with anyio.fail_after(60), pytest.raises(Fenced):
            await session.run()


class DyingModel(Scripted):
    """Its process dies at every second request of a subagent."""

    is_mortal = True

    async def stream(self, request: Request):
        if "task" in task_of(request) and turn_of(request) and self.is_mortal:
            self.is_mortal = False
            raise Killed
        self.is_mortal = True
        async for delta in super().stream(request):
            yield delta


async def test_a_thread_waiting_for_a_busy_subagent_is_not_abandoned(tmp_path: Path):
    @tool
    def step(x: int) -> str:
        """Go one step."""
        return f"step {x}"

    def answer(request: Request) -> ScriptAnswer:
        if "task" not in task_of(request):
            return once(ask("walk"))(request)
        at = turn_of(request)
        return calls("step", x=at) if at < 9 else says("I have arrived")

    lead = replace(LEAD, tools=[step])
    async with staged(tmp_path, DyingModel(otherwise=answer)) as runtime:
        session = await runtime.start(lead, "begin")
        result = None
        for _ in range(30):
            with suppress(Killed):
                result = await (await runtime.resume(lead, session.id)).run()
                break
        events = await session.events()
    main = [event for event in events if event.thread_id == events[0].thread_id]
    assert len([event for event in main if isinstance(event.payload, SessionWoken)]) > 5
    assert result is not None
    assert "I have arrived" in result.text


async def test_an_answer_for_a_busy_thread_does_not_make_others_spin(tmp_path: Path):
    is_holding, is_over = anyio.Event(), anyio.Event()
    looks = 0

    @tool
    async def hold() -> str:
        """Wait."""
        is_holding.set()
        await is_over.wait()
        return "over"

    def main(request: Request) -> ScriptAnswer:
        if turn_of(request) == 0:
            return ask("hold", run_in_background=True)
        return says(f"so: {newest(request)}")

    lead = replace(LEAD, tools=[hold])
    model = troupe({"begin": main, "task hold": once(calls("hold"), "held")})
    async with staged(tmp_path, model) as runtime:
        store = FaultyStore(runtime.log.store, "", StoreFull())
        runtime.log.store = cast("Store", store)
        session = await runtime.start(lead, "begin")
        with anyio.fail_after(60):
            async with anyio.create_task_group() as group:
                group.start_soon(session.run)
                await is_holding.wait()
                events = await session.events()
                [held] = [
                    event.id
                    for event in events
                    if isinstance(event.payload, AgentToolUse) and event.payload.name == "hold"
                ]
                await session.answer(held, "allow")
                before = store.looks
                for _ in range(500):  # the others have time to look
                    await anyio.lowlevel.checkpoint()
                looks = store.looks - before
                is_over.set()
    assert looks < 10


class EndlessModel(Scripted):
    """A subagent whose task says so never answers; before it is reached, the main thread speaks
    only once."""

    def __init__(self, answer: Callable[[Request], ScriptAnswer]) -> None:
        super().__init__(otherwise=answer)
        self.is_reached = anyio.Event()

    async def stream(self, request: Request):
        if "endless" in task_of(request):
            self.is_reached.set()
            await anyio.sleep_forever()
        if "begin" in task_of(request) and turn_of(request):
            await self.is_reached.wait()
        async for delta in super().stream(request):
            yield delta


async def test_interrupting_the_main_thread_stops_the_subagents_it_waits_for(tmp_path: Path):
    model = EndlessModel(once(ask("endless")))
    async with staged(tmp_path, model) as runtime:
        session = await runtime.start(LEAD, "begin")
        main = (await session.events())[0].thread_id
        with anyio.fail_after(60):
            async with anyio.create_task_group() as group:
                group.start_soon(session.run)
                await model.is_reached.wait()
                await runtime.log.submit(
                    session.id, UserInterrupt(session_thread_id=main), sender=TESTER
                )
        events = await session.events()
    reasons = [node.thread.last_reason for node in folded(events).nodes.values()]
    assert reasons == ["interrupted_tools", "interrupted_streaming"]


async def test_a_stopped_thread_stops_its_background_subagents(tmp_path: Path):
    def lead(request: Request) -> ScriptAnswer:
        if "task" in task_of(request):
            return once(ask("endless", run_in_background=True), "it is at work")(request)
        match turn_of(request):
            case 0:
                return ask("middle", run_in_background=True)
            case 1:
                return calls("stop_agent", to="general")
            case _:
                return says(f"then: {newest(request)}")

    result, events = await played(tmp_path, EndlessModel(lead))
    assert "has stopped" in result.text
    assert [node.thread.running for node in folded(events).nodes.values()] == [False] * 3
