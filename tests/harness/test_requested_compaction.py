"""A compaction that somebody asks for: it comes between steps, once, and survives a crash."""

from pathlib import Path

from tests.harness.session_setup import stage

from mainspring.capabilities.providers.scripted import Scripted, calls, fails, says
from mainspring.core.events import (
    CompactionRequested,
    ContextCompacted,
    ModelRequestStarted,
    UserInterrupt,
)
from mainspring.core.model import ToolSpec
from mainspring.core.tool import Call, Tool, ToolResult
from mainspring.harness.stop_reasons import Ended

SUMMARY = "Three pages were read."


def reader() -> Tool:
    async def read(call: Call) -> ToolResult:
        return ToolResult.text(f"page {call.input.get('path')} " + "word " * 400)

    return Tool(
        spec=ToolSpec(name="read", description="Reads.", input_schema={"type": "object"}), run=read
    )


def pages():
    return [*(calls("read", path=f"{page}.txt") for page in range(3)), says("It is about words.")]


def compaction_layers(layers: list[object]) -> list[str | None]:
    return [layer.layer for layer in layers if isinstance(layer, ContextCompacted)]


async def test_a_requested_compaction_summarizes_at_once_and_does_nothing_else(tmp_path: Path):
    model = Scripted(*pages(), says(SUMMARY), says("As I said."))
    async with stage(tmp_path, model, reader()) as play:
        await play.play("read them")
        wanted = CompactionRequested(instructions="the page numbers")
        assert await play.play(wanted) == Ended("compacted")
        assert "keep above all: the page numbers" in model.requests[-1].system[-1]
        assert compaction_layers([event.payload for event in await play.events()]) == ["auto"]
        assert await play.play() is None  # it is done
        assert await play.play("again?") == Ended("completed")
        sent = str(model.requests[-1].messages)
        assert SUMMARY in sent
        assert "word word" not in sent


async def test_a_requested_compaction_comes_before_a_message_sent_with_it(tmp_path: Path):
    model = Scripted(*pages(), says(SUMMARY), says("As I said."))
    async with stage(tmp_path, model, reader()) as play:
        await play.play("read them")
        assert await play.play(CompactionRequested(), "again?") == Ended("completed")
        purposes = [
            event.payload.purpose
            for event in await play.events()
            if isinstance(event.payload, ModelRequestStarted)
        ]
        assert purposes == [None] * 4 + ["summary", None]


async def test_if_the_summary_fails_the_layers_without_a_model_compact(tmp_path: Path):
    model = Scripted(*pages(), fails("forbidden"))
    async with stage(tmp_path, model, reader()) as play:
        await play.play("read them")
        assert await play.play(CompactionRequested()) == Ended("compacted")
        assert "micro" in compaction_layers([event.payload for event in await play.events()])


async def test_a_requested_compaction_may_find_nothing_to_compact(tmp_path: Path):
    async with stage(tmp_path, Scripted(says("hello"))) as play:
        await play.play("hi")
        assert await play.play(CompactionRequested()) == Ended("compacted")
        assert compaction_layers([event.payload for event in await play.events()]) == []


async def test_an_interrupt_cancels_a_requested_compaction(tmp_path: Path):
    async with stage(tmp_path, Scripted(*pages()), reader()) as play:
        await play.play("read them")
        await play.play(CompactionRequested(), UserInterrupt())
        assert compaction_layers([event.payload for event in await play.events()]) == []
        assert (await play.context()).thread.pending_compaction is None
