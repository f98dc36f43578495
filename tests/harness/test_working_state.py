"""The working state: saved before a compaction, read by the model after it, never saved twice."""

from pathlib import Path

from hypothesis import given
from hypothesis import strategies as st
from tests.harness.session_setup import Stage, stage

from mainspring.capabilities.providers.scripted import Scripted, calls, fails, says
from mainspring.core.events import CompactionRequested, ContextAdded, ContextCompacted
from mainspring.core.model import ToolSpec
from mainspring.core.tool import Call, Tool, ToolResult
from mainspring.harness.context.working_state import WORKING_STATE, WorkingState, parse_state
from mainspring.harness.stop_reasons import Ended


def reader() -> Tool:
    async def read(call: Call) -> ToolResult:
        if call.input.get("path") == "gone.txt":
            return ToolResult.text("no such file", ok=False, error="failed")
        return ToolResult.text(f"page {call.input.get('path')} " + "word " * 400)

    return Tool(
        spec=ToolSpec(name="read", description="Reads.", input_schema={"type": "object"}), run=read
    )


async def states(play: Stage) -> list[str]:
    return [
        event.payload.text
        for event in await play.events()
        if isinstance(event.payload, ContextAdded) and event.payload.source == WORKING_STATE
    ]


async def test_without_a_model_the_working_state_is_extracted_from_the_conversation(tmp_path: Path):
    model = Scripted(
        calls("read", path="1.txt"),
        says("Which format do you want, JSON or YAML?"),
        calls("read", path="gone.txt"),
        says("I'll use PyYAML instead of writing a parser. Next, I will write the tests."),
        fails("forbidden"),
        *(calls("read", path=f"{page}.txt") for page in (2, 3, 4)),
        says("Fine."),
        says("Who will review this change?"),
        fails("forbidden"),
        says("As I said."),
    )
    async with stage(tmp_path, model, reader()) as play:
        await play.play("Convert the pages.")
        await play.play("YAML, and let's keep the old names.")
        await play.play(CompactionRequested())
        (first,) = await states(play)
        sections = parse_state(first)[0]
        assert sections.answered == (
            "Which format do you want, JSON or YAML? -> YAML, and let's keep the old names.",
        )
        assert sections.decided == (
            "the user: YAML, and let's keep the old names.",
            "you: I'll use PyYAML instead of writing a parser.",
        )
        assert sections.open == ("failed: read gone.txt: no such file",)
        assert sections.next == ("Next, I will write the tests.",)
        kinds = [type(event.payload) for event in await play.events()]
        assert kinds.index(ContextAdded) < kinds.index(ContextCompacted)
        await play.play("Read on.")
        assert "I'll use PyYAML instead of" in str(model.requests[-1].messages)
        await play.play("Continue.")
        await play.play(CompactionRequested())
        last = parse_state((await states(play))[-1])[0]
        assert last.answered == sections.answered
        assert last.decided == sections.decided
        assert set(last.open) == {*sections.open, "Who will review this change?"}


async def test_a_summary_updates_the_known_working_state(tmp_path: Path):
    summary = (
        "Pages were read.\n\n**Decided:**\n- tabs, as the style guide says\nOpen:\n* the tests"
    )
    model = Scripted(
        *(calls("read", path=f"{page}.txt") for page in range(3)),
        says("We agreed on spaces everywhere."),
        says(summary),
        says("Yes."),
    )
    async with stage(tmp_path, model, reader()) as play:
        await play.play("Read them.")
        assert await play.play(CompactionRequested()) == Ended("compacted")
        assert "- you: We agreed on spaces everywhere." in model.requests[-1].system[-1]
        (text,) = await states(play)
        assert parse_state(text)[0] == WorkingState(
            decided=("tabs, as the style guide says",), open=("the tests",)
        )
        await play.play("Continue.")
        sent = str(model.requests[-1].messages)
        assert "Pages were read." in sent
        assert sent.count("as the style guide says") == 1


async def test_a_crash_between_state_and_compaction_repeats_nothing(tmp_path: Path):
    def script() -> Scripted:
        pages = (calls("read", path=f"{page}.txt") for page in range(3))
        return Scripted(*pages, says("We agreed on spaces."), fails("forbidden"), says("Yes."))

    (tmp_path / "whole").mkdir()
    async with stage(tmp_path / "whole", script(), reader()) as play:
        await play.play("Read them.")
        await play.play(CompactionRequested())
        (saved,) = await states(play)
    model = script()
    async with stage(tmp_path, model, reader()) as play:
        await play.play("Read them.")
        killed = await play.context()
        killed.note(ContextAdded(text=saved, source=WORKING_STATE))
        await killed.event_sink.commit()
        await play.play(CompactionRequested())
        assert await states(play) == [saved]
        assert any(isinstance(event.payload, ContextCompacted) for event in await play.events())
        await play.play("Go on.")
        assert str(model.requests[-1].messages).count("- you: We agreed on spaces.") == 1


LINES = st.lists(
    st.text(st.characters(codec="ascii", exclude_categories=("Cc",)), min_size=1, max_size=60)
    .map(lambda line: " ".join(line.split()).strip("-*• :#"))
    .filter(lambda line: bool(line) and not parse_state(line + ":\n- x")[0]),
    max_size=8,
).map(tuple)


@given(st.builds(WorkingState, LINES, LINES, LINES, LINES), st.integers(0, 2_000))
def test_a_state_is_parsed_back_as_written_or_without_its_oldest_lines(
    state: WorkingState, max_bytes: int
):
    assert parse_state(state.text(1_000_000))[0] == state
    text = state.text(max_bytes)
    assert len(text.encode()) <= max_bytes
    for shown, whole in zip(parse_state(text)[0].sections(), state.sections(), strict=True):
        assert shown == (whole[-len(shown) :] if shown else ())
