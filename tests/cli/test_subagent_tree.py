"""Subagents on a screen: a tree made of events, redrawn in place, plain lines elsewhere."""

from pathlib import Path

import pytest
from tests.runtime.subagents.scripted_threads import LEAD, Play, newest, staged, troupe, turn_of

from mainspring.capabilities.providers.scripted import ScriptAnswer
from mainspring.config import read_settings
from mainspring.core.envelope import Event
from mainspring.core.events import StatusIdle, StatusRunning, ThreadCreated
from mainspring.core.model import Request
from mainspring.edges.cli.render.renderer import TerminalRenderer
from mainspring.edges.cli.render.subagent_tree import SubagentTree
from mainspring.testing import calls, says

CHILDREN = ("explore", "general")


async def record_events(folder: Path) -> tuple[list[Event], str]:
    """A session whose agent calls two at once, one of which calls a third."""

    def lead(request: Request) -> ScriptAnswer:
        if turn_of(request):
            return says(f"All of it: {newest(request)[:11]}")
        two = [
            calls("agent", description=f"the {k} part", prompt=f"part {k}", subagent_type=k)
            for k in CHILDREN
        ]
        return two[0] + two[1]

    def second(request: Request) -> ScriptAnswer:
        if turn_of(request):
            return says("CHILD WORDS")
        return calls("agent", description="deeper", prompt="part deep", subagent_type="verify")

    parts: dict[str, Play] = {
        "begin": lead,
        "part explore": lambda _: says("CHILD WORDS"),
        "part general": second,
        "part deep": lambda _: says("VERDICT: PASS"),
    }
    async with staged(folder, troupe(parts)) as runtime:
        session = await runtime.start(LEAD, "begin")
        await session.run()
        row = await session.log.session(session.id)
        return await session.events(), row.thread_id


def text(tree: SubagentTree, most: int = 100) -> list[str]:
    return ["".join(words for words, _ in line) for line in tree.lines(most)]


async def test_the_tree_grows_with_events_and_ends_with_a_total(tmp_path: Path):
    log, main = await record_events(tmp_path)
    tree = SubagentTree(main)
    seen: set[str] = set()
    for event in log:
        tree.apply(event)
        seen |= {line.split("·")[0].strip() for line in text(tree)}
    assert {"├ explore  thinking", "└ general  thinking", "└ explore  waiting"} <= seen
    assert any(line.startswith("└ general  agent") for line in seen)
    first, second, third, total = text(tree)
    assert first.startswith("├ explore  done · 1 turn, $0.00 · the explore part")
    assert second.startswith("└ general  done · 2 turns")
    assert third.startswith("  └ verify   done")
    assert total.startswith("3 subagents · ")
    assert not tree.is_live


async def test_a_tree_can_be_built_from_any_prefix_of_the_log(tmp_path: Path):
    log, main = await record_events(tmp_path)
    for end in range(len(log)):
        tree = SubagentTree.of(log[:end], main)
        assert tree.lines() == []
        born = [item for item in log[:end] if isinstance(item.payload, ThreadCreated)]
        for event in log[end:]:
            tree.apply(event)
        running = [
            item
            for item in log[end:]
            if isinstance(item.payload, StatusRunning | StatusIdle) and item.thread_id != main
        ]
        assert bool(tree.lines()) == (bool(running) or len(born) < 3)


async def test_when_rows_are_short_running_subagents_are_shown_first(tmp_path: Path):
    log, main = await record_events(tmp_path)
    tree = SubagentTree(main)
    for event in log:
        tree.apply(event)
        lines = text(tree, most=3)
        assert len(lines) <= 4
        if tree.is_live and lines[1].startswith("…"):
            assert "done" not in lines[0]
    assert text(tree, most=3)[1] == "… 2 more"


async def test_without_a_terminal_each_subagent_is_one_line_without_its_text(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
):
    log, main = await record_events(tmp_path)
    settings = read_settings(environ={"NO_COLOR": "1"}, folder=tmp_path)
    renderer = TerminalRenderer(settings, is_live=False, subagents=SubagentTree(main))
    for event in log:
        renderer.event(event)
    renderer.close()
    told = capsys.readouterr()
    assert told.out == "All of it: CHILD WORDS\n"
    lines = told.err.splitlines()
    assert "explore: started · the explore part" in lines
    assert "explore: done, 1 turn, $0.00 · the explore part" in lines
    assert any(line.startswith("general > verify: done, ") for line in lines)
    assert lines[-1].startswith("3 subagents · ")
    assert "✓ agent" not in told.err


async def test_a_background_report_is_printed_as_one_line(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
):
    def lead(request: Request) -> ScriptAnswer:
        if turn_of(request) == 0:
            return calls("agent", description="x", prompt="part explore", run_in_background=True)
        return says(f"I heard {turn_of(request)}.")

    model = troupe({"begin": lead, "part explore": lambda _: says("CHILD WORDS")})
    async with staged(tmp_path, model) as runtime:
        session = await runtime.start(LEAD, "begin")
        row = await session.log.session(session.id)
        settings = read_settings(environ={"NO_COLOR": "1"}, folder=tmp_path)
        renderer = TerminalRenderer(settings, own={""}, subagents=SubagentTree(row.thread_id))
        await session.run(renderer.delta, tell=renderer.event)
        renderer.close()
    told = capsys.readouterr()
    assert "CHILD WORDS" not in told.out
    assert "I heard 2." in told.out
    [line] = [splitline for splitline in told.err.splitlines() if "reports: " in splitline]
    assert line.startswith("general reports: ")
    assert "CHILD WORDS" in line
