"""A subagent is never freer than who has called it, however it is called."""

import re
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path

import anyio
from tests.harness.session_setup import echo
from tests.runtime.subagents.scripted_threads import LEAD, newest, staged, troupe, turn_of

from mainspring.capabilities.providers.scripted import ScriptAnswer, Scripted, ScriptLine
from mainspring.core.model import Request
from mainspring.harness.permissions.policy import Mode
from mainspring.harness.toolbox import Toolbox
from mainspring.runtime.session_context import SetupRequest
from mainspring.runtime.subagent import GENERAL, Subagent
from mainspring.testing import calls, says

READER = Subagent(
    name="reader",
    description="Reads.",
    prompt="Read.",
    tools=("agent", "nothing"),
    permission_mode="plan",
)


async def test_subagents_of_a_restricted_subagent_are_equally_restricted(tmp_path: Path):
    modes: dict[str, Mode | None] = {}

    ran: list[str] = []

    def reader(request: Request) -> ScriptAnswer:
        if "as a fork" in newest(request):
            return calls("echo", x="freer")
        if turn_of(request):
            return says("done")
        return (
            calls("agent", subagent_type="fork", description="f", prompt="as a fork"),
            calls("agent", subagent_type="general", description="g", prompt="as another"),
        )[0 if "one" in str(request.messages[0]) else 1]

    def lead(request: Request) -> ScriptAnswer:
        kinds = ("one", "two")
        if turn_of(request) < len(kinds):
            task = f"task {kinds[turn_of(request)]}"
            return calls("agent", subagent_type="reader", description="r", prompt=task)
        return says("done")

    model = troupe({"begin": lead, "as another": lambda _: says("ok"), "task": reader})
    async with staged(tmp_path, model) as runtime:
        usual = runtime.toolbox_factory

        @asynccontextmanager
        async def for_thread(opening: SetupRequest) -> AsyncGenerator[Toolbox]:
            modes[str(opening.subagent)] = opening.mode
            async with usual(opening) as toolbox:
                yield replace(toolbox, tools=[echo(ran=ran)])

        @asynccontextmanager
        async def toolbox_factory(opening: SetupRequest) -> AsyncGenerator[Toolbox]:
            async with usual(opening) as toolbox:
                yield replace(toolbox, tools=[echo(ran=ran)], for_thread=for_thread)

        runtime.toolbox_factory = toolbox_factory
        session = await runtime.start(replace(LEAD, subagents=(READER, GENERAL)))
        await session.send("begin")
        with anyio.fail_after(60):
            await session.run()
    assert modes == {"reader": "plan", "fork": "plan", "general": "plan"}
    assert any("echo" in newest(item) for item in model.requests)  # it was told that there is none
    assert ran == []


async def test_a_call_cannot_choose_another_model_if_the_model_is_fixed(tmp_path: Path):
    def lead(request: Request) -> ScriptAnswer:
        if turn_of(request):
            return says("done")
        return calls("agent", description="g", prompt="task", model="dear")

    model, dear = troupe({"begin": lead, "task": lambda _: says("ok")}), Scripted(says("dear"))
    async with staged(tmp_path, model) as runtime:
        runtime.models.put("dear", dear)
        session = await runtime.start(replace(LEAD, has_one_model=True))
        await session.send("begin")
        with anyio.fail_after(60):
            await session.run()
    assert len(model.requests) == 3
    assert dear.requests == []


async def test_waking_subagents_respects_the_concurrency_limit(tmp_path: Path):
    told: list[str] = []

    def lead(request: Request) -> ScriptAnswer:
        told.append(newest(request))
        match turn_of(request):
            case 0:
                return calls("agent", description="one", prompt="task one")
            case 1:
                return calls("agent", description="two", prompt="task two")
            case 2:
                ids = dict.fromkeys(re.findall(r"sthr_\w+", str(request.messages)))
                sent = [calls("send_message", to=item, message="again") for item in ids]
                return ScriptLine(tuple(block for item in sent for block in item.content))
            case _:
                return says("done")

    model = troupe({"begin": lead, "task": lambda _: says("ok")})
    async with staged(tmp_path, model) as runtime:
        session = await runtime.start(replace(LEAD, max_at_once=1))
        await session.send("begin")
        with anyio.fail_after(60):
            await session.run()
    assert told[3].count("Sent.") == 1
    assert told[3].count("1 subagents are already running") == 1
