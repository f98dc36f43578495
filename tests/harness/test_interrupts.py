"""Clients in the middle of things: interrupts and messages while the model or tools are busy."""

from collections.abc import AsyncGenerator
from pathlib import Path

import anyio
import msgspec
from tests.harness.session_setup import stage, texts

from mainspring.capabilities.providers.scripted import Scripted, calls, says
from mainspring.core.model import Delta, Reply, Request, TextDelta, ToolSpec
from mainspring.core.tool import Call, Tool, ToolResult
from mainspring.harness.stop_reasons import Ended


async def test_an_interrupt_during_a_reply_keeps_the_text_so_far(tmp_path: Path):
    model = Scripted(says("one two three four five six"), says("again"), chunk_chars=4)
    async with stage(tmp_path, model) as play:
        heard = anyio.Event()
        silent = anyio.Event()

        class Slow:
            async def stream(self, request: Request) -> AsyncGenerator[Delta | Reply]:
                yield TextDelta("one two")
                heard.set()
                await silent.wait()

        play.model = Slow()
        assert await play.interrupted(heard, "go") == Ended("interrupted_streaming")
        assert texts(await play.events(), "agent.message") == ["one two"]
        play.model = model
        assert await play.play("and now?") == Ended("completed")


async def test_an_interrupt_during_tool_calls_settles_every_call(tmp_path: Path):
    started = anyio.Event()

    async def hang(call: Call) -> ToolResult:
        started.set()
        await anyio.sleep_forever()
        return ToolResult.text("never")

    tool = Tool(spec=ToolSpec(name="hang", description="", input_schema={}), run=hang)
    model = Scripted(calls("hang") + calls("hang"), says("stopped"))
    async with stage(tmp_path, model, tool) as play:
        assert await play.interrupted(started, "go") == Ended("interrupted_tools")
        results = texts(await play.events(), "agent.tool_result")
        assert len(results) == 2
        assert all("Interrupted" in result for result in results)
        assert await play.play("go on") == Ended("completed")


async def test_a_message_sent_during_a_tool_round_waits_for_its_end(tmp_path: Path):
    async def answer(call: Call) -> ToolResult:
        await play.send("by the way")
        return ToolResult.text("ok")

    tool = Tool(spec=ToolSpec(name="act", description="", input_schema={}), run=answer)
    model = Scripted(calls("act"), says("done"))
    async with stage(tmp_path, model, tool) as play:
        assert await play.play("go") == Ended("completed")
        assert "inbox_message" in await play.continued()
        sent = msgspec.json.encode(model.requests[1].messages[-1])
        assert sent.index(b"tool_result") < sent.index(b"by the way")
