"""Tools that send or spend, tools that fail, and agents that hand the conversation over."""

from collections.abc import AsyncGenerator
from pathlib import Path

import pytest
from tests.runtime.test_python_api import Point, price, texts

from mainspring import Agent, InvalidInput, Runtime, ToolError, open_runtime, tool
from mainspring.testing import Request, Scripted, ScriptLine, calls, says
from mainspring.tools import with_fallback


@pytest.fixture
async def runtime(tmp_path: Path) -> AsyncGenerator[Runtime]:
    async with open_runtime(store=str(tmp_path / "log.db")) as runtime:
        yield runtime


async def test_a_repeated_call_gets_the_stored_result(runtime: Runtime):
    sent: list[str] = []

    @tool(dedupe="session", ignore=["at"])
    def send(to: str, at: int) -> str:
        """Send a letter."""
        sent.append(to)
        if to == "Carl":
            raise ToolError("no such person")
        return f"letter {len(sent)}"

    @tool(dedupe=0.0)
    def now() -> int:
        """Count."""
        sent.append("now")
        return len(sent)

    agent = Agent(tools=[send, now])
    asked = [("Ann", 1), ("Ann", 2), ("Bob", 3), ("Carl", 4), ("Carl", 5)]
    steps = [*(calls("send", to=to, at=at) for to, at in asked), calls("now"), calls("now")]
    runtime.models.put(agent.model, Scripted(*steps, says("done")))
    session = await runtime.start(agent, "go")
    await session.run()
    assert sent == ["Ann", "Bob", "Carl", "Carl", "now", "now"]
    assert texts(await session.events())[:3] == ["letter 1", "letter 1", "letter 2"]
    with pytest.raises(InvalidInput, match="ignore= needs dedupe="):
        tool(price, ignore=["at"])


async def test_a_failing_tool_falls_back_to_the_next_and_says_so(runtime: Runtime):
    def live(city: str) -> str:
        """Tell the weather."""
        raise TimeoutError("no answer")

    def cached(city: str) -> str:
        """Tell yesterday's weather."""
        if city == "Oslo":
            raise ToolError("nothing known")
        return "sunny"

    agent = Agent(tools=[with_fallback(tool(live), tool(cached))])
    script = Scripted(calls("live", city="Rome"), calls("live", city="Oslo"), says("done"))
    runtime.models.put(agent.model, script)
    session = await runtime.start(agent, "go")
    await session.run()
    first, second = texts(await session.events())
    assert first.startswith("sunny\n[degraded: this is from cached, since live: TimeoutError")
    assert "Do not call the tool again" in first
    assert second.startswith("All tools failed; do not try again:")


async def test_a_handoff_gives_the_conversation_to_another_agent(runtime: Runtime):
    second = Agent(name="second", description="Answers.", output_type=Point, hooks=[])
    first = Agent(name="first", handoffs=[second], output_type=Point)

    def answer(request: Request) -> ScriptLine:
        return calls("final_result", x=len(request.messages))

    script = Scripted(calls("transfer_to_second", note="Be quick."), otherwise=answer)
    runtime.models.put(first.model, script)
    session = await runtime.start(first, "hello")
    result = await session.run()
    assert result is not None
    assert (result.reason, result.turns) == ("completed", 2)
    assert result.output.x == 3  # the question, the handoff, and the note
    await session.send("more")
    again = await (await runtime.resume(first, session.id)).run()
    assert again is not None
    assert again.output.x == 5
    kinds = [event.type for event in await session.events()]
    assert kinds.count("thread.handed_off") == 1
    with pytest.raises(InvalidInput, match="output types differ"):
        Agent(handoffs=[second])
