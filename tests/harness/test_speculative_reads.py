"""Reads that begin while the reply still streams."""

from collections.abc import AsyncGenerator, Sequence
from dataclasses import replace
from pathlib import Path

import anyio
from tests.harness.session_setup import always, echo, stage, texts

from mainspring.core.content import TextBlock
from mainspring.core.errors import ProviderFailed
from mainspring.core.events import Usage
from mainspring.core.model import Delta, Reply, Request, ToolUse, ToolUseReady
from mainspring.core.tool import SAFE_READ, Call, Tool, ToolResult, Traits
from mainspring.harness.authorizer import AllowAll, Decision
from mainspring.harness.stop_reasons import Ended


class StreamingModel:
    """Announces calls one by one, and goes on when it is told to."""

    def __init__(self, *uses: ToolUse, go_on: anyio.Event, fails: bool = False) -> None:
        self.uses: Sequence[ToolUse] = uses
        self.go_on = go_on
        self.fails = fails
        self.asked = 0

    async def stream(self, request: Request) -> AsyncGenerator[Delta | Reply]:
        self.asked += 1
        if self.asked > 1:
            yield Reply(
                content=(TextBlock("done"),), usage=Usage(), reason="end_turn", model="scripted:x"
            )
            return
        for use in self.uses:
            yield ToolUseReady(use)
        await self.go_on.wait()
        if self.fails:
            raise ProviderFailed("scripted", "invalid_request", "it broke")
        yield Reply(content=tuple(self.uses), usage=Usage(), reason="tool_use", model="scripted:x")


def use(name: str, number: int) -> ToolUse:
    return ToolUse(id=f"use_{number}", name=name, input={"x": str(number)})


def reading_tool(ran: list[str], go_on: anyio.Event, *, after: int = 1) -> Tool:
    async def run(call: Call) -> ToolResult:
        ran.append(str(call.input["x"]))
        if len(ran) >= after:
            go_on.set()  # the stream ends only once the reads have begun
        return ToolResult.text(f"read {call.input['x']}")

    return replace(echo("read"), run=run, traits=always(SAFE_READ))


async def test_speculative_reads_start_before_the_reply_ends_and_run_once(tmp_path: Path):
    ran: list[str] = []
    go_on = anyio.Event()
    model = StreamingModel(use("read", 1), use("read", 2), use("read", 3), go_on=go_on)
    async with stage(tmp_path, model, reading_tool(ran, go_on, after=3)) as play:
        with anyio.fail_after(60):
            assert await play.play("go") == Ended("completed")
        assert sorted(ran) == ["1", "2", "3"]
        assert sorted(texts(await play.events(), "agent.tool_result")) == [
            "read 1",
            "read 2",
            "read 3",
        ]
        assert (await play.kinds()).count("tool_call.started") == 3


async def test_no_read_starts_early_after_a_call_that_must_run_alone(tmp_path: Path):
    ran: list[str] = []
    go_on = anyio.Event()
    go_on.set()

    async def write(call: Call) -> ToolResult:
        ran.append("write")
        return ToolResult.text("written")

    writing = replace(echo("write"), run=write, traits=always(Traits()))
    model = StreamingModel(use("write", 1), use("read", 2), go_on=go_on)
    async with stage(tmp_path, model, reading_tool(ran, go_on), writing) as play:
        with anyio.fail_after(60):
            await play.play("go")
        assert ran == ["write", "2"]


async def test_a_denied_call_does_not_start_early(tmp_path: Path):
    class Denies(AllowAll):
        asked = 0

        async def authorize(self, call: Call, tool: Tool, traits: Traits) -> Decision:
            self.asked += 1
            return Decision(decision="deny", gate="rule", reason="no")

    ran: list[str] = []
    go_on = anyio.Event()
    go_on.set()
    authorizer = Denies()
    async with stage(
        tmp_path,
        StreamingModel(use("read", 1), go_on=go_on),
        reading_tool(ran, go_on),
        authorizer=authorizer,
    ) as play:
        with anyio.fail_after(60):
            await play.play("go")
        assert (ran, authorizer.asked) == ([], 1)
        assert texts(await play.events(), "agent.tool_result") == ["Not allowed: no."]


async def test_reads_started_by_a_broken_reply_are_discarded(tmp_path: Path):
    ran: list[str] = []
    go_on = anyio.Event()
    model = StreamingModel(use("read", 1), go_on=go_on, fails=True)
    async with stage(tmp_path, model, reading_tool(ran, go_on)) as play:
        with anyio.fail_after(60):
            assert (await play.end_of("go")).reason == "model_error"
        assert ran == ["1"]
        assert "agent.tool_use" not in await play.kinds()


async def test_if_the_final_reply_differs_from_the_stream_the_final_reply_counts(tmp_path: Path):
    ran: list[str] = []
    go_on = anyio.Event()

    class Fickle(StreamingModel):
        async def stream(self, request: Request) -> AsyncGenerator[Delta | Reply]:
            async for delta in super().stream(request):
                if isinstance(delta, Reply) and self.asked == 1:
                    changed = ToolUse(id="use_1", name="read", input={"x": "9"})
                    yield Reply(
                        content=(changed,), usage=Usage(), reason="tool_use", model="scripted:x"
                    )
                else:
                    yield delta

    async with stage(
        tmp_path, Fickle(use("read", 1), go_on=go_on), reading_tool(ran, go_on)
    ) as play:
        with anyio.fail_after(60):
            await play.play("go")
        assert texts(await play.events(), "agent.tool_result") == ["read 9"]


async def test_a_speculative_read_requested_by_an_alias_runs_once(tmp_path: Path):
    ran: list[str] = []
    go_on = anyio.Event()
    model = StreamingModel(use("Read", 1), go_on=go_on)
    async with stage(tmp_path, model, reading_tool(ran, go_on), aliases={"Read": "read"}) as play:
        with anyio.fail_after(60):
            assert await play.play("go") == Ended("completed")
    assert ran == ["1"]
