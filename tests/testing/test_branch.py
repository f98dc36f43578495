"""A recorded session that goes on otherwise: what its tools and hooks gave then is given again."""

from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path

import anyio
import pytest
from tests.harness.session_setup import echo, texts

from mainspring.capabilities.providers.scripted import Scripted, calls, says
from mainspring.core.content import TextBlock
from mainspring.core.events import ToolsLoaded
from mainspring.core.hook import EMPTY_HOOK_RESULT, HookEvent, HookResult
from mainspring.core.tool import Call, ToolResult
from mainspring.harness.authorizer import AllowAll, Decision
from mainspring.harness.state.thread import Thread
from mainspring.harness.toolbox import Toolbox
from mainspring.runtime.agent import Agent
from mainspring.runtime.session.session import Runtime, Session
from mainspring.runtime.session_context import SetupRequest
from mainspring.testing.branch import BranchChange, branch
from mainspring.wiring.runtime_assembly import open_runtime

AGENT = Agent(name="clerk", model="scripted:then")
ROUNDS = (calls("tool_search") + calls("echo", x="1"), calls("far", x="2"), says("done"))


class HookedAuthorizer(AllowAll):
    async def authorize(self, call: Call, tool: object, traits: object) -> Decision:
        return Decision(decision="allow", gate="hook", updated_input={"x": "changed"})

    async def run_hooks(self, thread: Thread, hook_event: HookEvent) -> HookResult:
        match hook_event.event, hook_event.fields.get("prompt"):
            case "UserPromptSubmit", "a secret":
                return HookResult(blocked=True)
            case "UserPromptSubmit", _:
                return HookResult(context=("The branch is main.",))
            case _:
                return EMPTY_HOOK_RESULT


async def search(_: Call) -> ToolResult:
    return ToolResult((TextBlock("loaded far"),), facts=(ToolsLoaded(names=("far",)),))


@asynccontextmanager
async def toolbox_factory(_: SetupRequest) -> AsyncGenerator[Toolbox]:
    tools = [echo(), echo("far"), replace(echo("tool_search"), run=search)]
    yield Toolbox(authorizer=HookedAuthorizer(), tools=tools, deferred=frozenset({"far"}))


async def record_session(runtime: Runtime) -> tuple[Session, Scripted]:
    model = Scripted(*ROUNDS)
    runtime.models.put(AGENT.model, model)
    plain, runtime.toolbox_factory = runtime.toolbox_factory, toolbox_factory
    session = await runtime.start(AGENT, "go")
    assert (await session.run()) is not None
    await session.send("a secret")
    assert (await session.run()) is not None
    runtime.toolbox_factory = plain
    return session, model


@pytest.fixture
async def runtime(tmp_path: Path) -> AsyncGenerator[Runtime]:
    async with open_runtime(store=str(tmp_path / "log.db")) as opened:
        yield opened


async def test_a_branch_whose_model_says_the_same_gets_the_recorded_results(runtime: Runtime):
    with anyio.fail_after(60):
        session, before = await record_session(runtime)
        now = Scripted(*ROUNDS)
        runtime.models.put("scripted:now", now)
        found = await branch(runtime, session.id, BranchChange(model="scripted:now"))
        assert found.messages == ("go",)  # what was withheld then is not said now
        await found.session.send("go")
        result = await found.session.run()
    assert result is not None
    assert result.text == "done"
    assert [r.tools for r in now.requests] == [r.tools for r in before.requests]
    assert [len(request.tools) for request in now.requests] == [4, 5, 5]
    assert "The branch is main." in str(now.requests[0].messages)
    then = texts(await session.events(), "agent.tool_result")
    assert then == ["loaded far", "echo changed", "echo changed"]
    assert texts(await found.session.events(), "agent.tool_result") == then


async def test_a_branch_with_another_prompt_gets_no_recorded_context(runtime: Runtime):
    with anyio.fail_after(60):
        session, _ = await record_session(runtime)
        now = Scripted(says("well"))
        runtime.models.put("scripted:now", now)
        change = BranchChange(model="scripted:now", prompt="wait")
        found = await branch(runtime, session.id, change)
        assert found.messages == ("wait",)
        await found.session.send("wait")
        await found.session.run()
    assert "The branch is main." not in str(now.requests[0].messages)
