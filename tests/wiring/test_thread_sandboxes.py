"""Programs of several threads of a session, in real sandboxes over one workspace."""

from dataclasses import replace
from pathlib import Path

import anyio
from tests.environ import boundary

from mainspring import Agent, open_runtime
from mainspring.capabilities.providers.scripted import ScriptAnswer, Scripted
from mainspring.config import read_settings
from mainspring.core.model import Assistant, Request
from mainspring.runtime.run_options import RunOptions
from mainspring.runtime.subagent import BUILT_IN_SUBAGENTS
from mainspring.testing import calls, says

WAITS = "for i in $(seq 400); do [ -e go ] && break; sleep 0.05; done; ls go"


async def test_a_program_of_one_thread_does_not_block_others(tmp_path: Path):
    place = tmp_path / "work"
    place.mkdir()
    own = read_settings(store=str(tmp_path / "own" / "log.db"), environ=boundary(), folder=place)
    settings = replace(own, home=str(tmp_path / "home"))

    def answer(request: Request) -> ScriptAnswer:
        task = str(request.messages[0])
        is_first = not any(isinstance(message, Assistant) for message in request.messages)
        if "begin" in task:
            first = calls("agent", description="waits", prompt="wait")
            return (
                first + calls("agent", description="goes", prompt="go") if is_first else says("!")
            )
        if not is_first:
            return says("done")
        return calls("bash", command=WAITS if "wait" in task else "touch go")

    lead = Agent(name="lead", model="scripted:x", built_ins=("*",), subagents=BUILT_IN_SUBAGENTS)
    async with open_runtime(settings, options=RunOptions(mode="bypassPermissions")) as runtime:
        runtime.models.put("scripted:x", Scripted(otherwise=answer))
        session = await runtime.start(lead, "begin")
        with anyio.fail_after(60):
            result = await session.run()
        events = await session.events()
    assert result is not None
    assert result.ok
    waited = [event for event in events if event.type == "agent.tool_result"]
    assert any(b'"text":"go"' in event.body for event in waited)
