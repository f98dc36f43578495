"""What a subagent asks a person, and what people say to it."""

from collections.abc import AsyncGenerator
from dataclasses import replace
from pathlib import Path

import anyio
import pytest
from tests.runtime.subagents.scripted_threads import (
    LEAD,
    ask,
    births,
    newest,
    once,
    reply,
    staged,
    task_of,
    troupe,
    turn_of,
)
from tests.senders import TESTER

from mainspring import tool
from mainspring.capabilities.providers.scripted import ScriptAnswer, Scripted
from mainspring.core.events import ThreadStatusTerminated, UserInterrupt
from mainspring.core.model import Delta, Reply, Request
from mainspring.function_tools.wrap import renamed, with_approval
from mainspring.harness.state.thread_tree import ThreadTree
from mainspring.testing import calls, says


@tool
def _deploy(where: str) -> str:
    """Deploy."""
    return f"deployed to {where}"


deploy = with_approval(renamed(_deploy, "deploy"))


@pytest.mark.parametrize("is_background", [False, True])
async def test_a_subagents_approval_request_is_answered_and_the_subagent_continues(
    tmp_path: Path, is_background: bool
):
    lead = replace(LEAD, tools=[deploy])

    def main(request: Request) -> ScriptAnswer:
        if turn_of(request) == 0:
            return ask("ship", run_in_background=is_background)
        return says(f"so: {newest(request)}")

    ship = once(calls("deploy", where="prod"), "shipped")
    async with staged(tmp_path, troupe({"begin": main, "task ship": ship})) as runtime:
        session = await runtime.start(lead, "begin")
        waiting = await session.run()
        assert waiting is not None
        assert waiting.reason == "requires_action"
        [asked] = waiting.waiting_for
        await session.answer(asked, "allow")
        other = await runtime.resume(lead, session.id)  # by a process that knows nothing of it
        result = await other.run()
    assert result is not None
    assert result.reason == "completed"
    assert "shipped: deployed to prod" in result.text


async def test_a_message_to_an_archived_subagent_does_not_wake_it(tmp_path: Path):
    def main(request: Request) -> ScriptAnswer:
        match turn_of(request):
            case 0:
                return ask("first")
            case 1:
                return says("done")
            case 2:
                return calls("send_message", to="general", message="again")
            case _:
                return says(f"so: {newest(request)}")

    async with staged(tmp_path, troupe({"begin": main, "task first": reply("x")})) as runtime:
        session = await runtime.start(LEAD, "begin")
        await session.run()
        [birth] = births(await session.events())
        gone = ThreadStatusTerminated(
            session_thread_id=birth.session_thread_id, agent_name=birth.agent_name
        )
        await runtime.log.submit(session.id, gone, sender=TESTER)
        await session.send("go on")
        result = await session.run()
    assert result is not None
    assert "'general' was archived by a user" in result.text


async def test_a_subagent_waits_only_for_calls_that_need_approval(tmp_path: Path):
    @tool
    def look(at: str) -> str:
        """Look."""
        return at

    lead = replace(LEAD, tools=[deploy, look])
    ship = once(calls("deploy", where="prod") + calls("look", at="it"), "shipped")
    model = troupe({"begin": once(ask("ship")), "task ship": ship})
    async with staged(tmp_path, model) as runtime:
        session = await runtime.start(lead, "begin")
        waiting = await session.run()
        assert waiting is not None
        [asked] = waiting.waiting_for
        await session.answer(asked, "allow")
        result = await session.run()
    assert result is not None
    assert "shipped: deployed to prod\nit" in result.text


async def test_an_interrupt_of_one_thread_stops_it_during_a_reply(tmp_path: Path):
    blocked = anyio.Event()

    class Stuck(Scripted):
        async def stream(self, request: Request) -> AsyncGenerator[Delta | Reply]:
            if "task" in task_of(request):
                blocked.set()
                await anyio.sleep_forever()
            async for delta in super().stream(request):
                yield delta

    async with staged(tmp_path, Stuck(otherwise=once(ask("endless")))) as runtime:
        session = await runtime.start(LEAD, "begin")
        with anyio.fail_after(60):
            async with anyio.create_task_group() as group:
                group.start_soon(session.run)
                await blocked.wait()
                [birth] = births(await session.events())
                child = birth.session_thread_id
                interrupt = UserInterrupt(session_thread_id=child)
                await runtime.log.submit(session.id, interrupt, thread_id=child, sender=TESTER)
        events = await session.events()
    assert ThreadTree.of(events, events[0].thread_id).main.thread.last_reason == "completed"
