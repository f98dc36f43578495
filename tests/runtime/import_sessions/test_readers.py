"""Readers of other tools' files take anything: what is wrong is a finding, never an exception."""

import json
import random
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, cast

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from mainspring.core.errors import InvalidInput
from mainspring.core.events import ThreadCreated
from mainspring.core.sender import local_user
from mainspring.harness.state.thread_tree import ThreadTree
from mainspring.log.session_log import SessionLog
from mainspring.log.sqlite import open_sqlite
from mainspring.runtime.import_sessions.import_candidates import SessionReaders, find_candidates
from mainspring.runtime.import_sessions.import_plan import plan_import
from mainspring.runtime.import_sessions.import_store import store_session
from mainspring.runtime.import_sessions.source_session import (
    SourceCall,
    SourceCompaction,
    SourceReply,
    SourceSession,
    SourceSubagent,
    SourceText,
    SourceThread,
)

FOREIGN = Path(__file__).parents[2] / "fixtures" / "foreign_sessions"
NOW = datetime(2026, 11, 16, tzinfo=UTC)
FILES = sorted(p for p in FOREIGN.rglob("*.json*") if p.suffix == ".jsonl" or "old" in p.parts[-2])
ODD: list[Any] = [None, True, 0, -1, 10**30, 1.5, "", "x", [], [None], {}, {"type": 7}, "\ud800"]


def mangle(text: str, dice: random.Random) -> bytes:
    """One line cut, doubled, emptied, or with one of its values replaced by something odd."""
    lines = text.splitlines()
    at = dice.randrange(len(lines))
    match dice.randrange(6):
        case 0:
            lines[at] = lines[at][: dice.randrange(len(lines[at]) + 1)]
        case 1:
            lines.insert(at, lines[at])
        case 2:
            lines[at] = json.dumps(dice.choice(ODD))
        case 3:
            del lines[at]
        case 4:
            return b"\n".join(line.encode() for line in lines[:at]) + b"\n\xff\xfe{\n"
        case _:
            lines[at] = with_odd_value(lines[at].rstrip(","), dice)
    return "\n".join(lines).encode()


def with_odd_value(line: str, dice: random.Random) -> str:
    try:
        value: Any = json.loads(line)
    except ValueError:
        return line
    inner: Any = value
    while isinstance(inner, dict | list) and inner:
        key: Any = dice.choice(list(inner) if isinstance(inner, dict) else list(range(len(inner))))  # pyright: ignore[reportUnknownArgumentType]
        if dice.random() < 0.4 or not isinstance(inner[key], dict | list):
            inner[key] = dice.choice(ODD)
            break
        inner = cast("Any", inner[key])
    return json.dumps(value)


def read(path: Path) -> SourceSession | None:
    try:
        [found] = list(find_candidates(path))
    except InvalidInput:
        return None
    return SessionReaders().read(found.path, found.format)


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.stem[:20])
@settings(
    max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(seed=st.integers(0, 2**32))
def test_no_mangled_line_aborts_an_import(path: Path, seed: int, tmp_path: Path):
    file = tmp_path / path.name
    file.write_bytes(mangle(path.read_text(), random.Random(seed)))
    try:
        session = read(file)
    except InvalidInput:
        assert path.suffix == ".json"  # one value, which is JSON as a whole or not at all
        return
    if session is None:
        return
    planned = plan_import(session, scrub=bytes, now=NOW)
    assert len({event.id for event in planned.events}) == len(planned.events)
    for finding in session.findings:
        assert finding.line > 0


async def test_imported_history_grants_nothing_and_counts_against_no_limit(tmp_path: Path):
    async with open_sqlite(tmp_path / "log.db") as opened:
        log = SessionLog(opened)
        for path in FILES:
            source = read(path)
            assert source is not None
            stored = await store_session(log, source, now=NOW, importer=local_user("ada"))
            session = await log.session(stored.session_id)
            tree = ThreadTree.of(await log.read(session.id), session.thread_id)
            thread, spent = tree.main.thread, tree.main.spend_account.spending
            assert thread.turns > 0
            assert (spent.turns, spent.input_tokens, spent.tool_calls) == (0, 0, 0)
            assert not thread.session_state.prompts
            assert not thread.session_state.calls
            assert not thread.session_state.permissions
            assert thread.is_answered
            assert not thread.running
            assert not [c for node in tree.nodes.values() for c in node.thread.unsettled_calls()]


def test_no_imported_event_is_later_than_its_import(tmp_path: Path):
    file = tmp_path / "future.jsonl"
    said = {"type": "user", "uuid": "1", "sessionId": "s", "message": {"content": "hello"}}
    file.write_text(json.dumps({**said, "timestamp": "2999-01-01T00:00:00Z"}))
    session = read(file)
    assert session is not None
    assert {event.time for event in plan_import(session, scrub=bytes, now=NOW).events} == {NOW}


def test_concurrent_calls_keep_their_results_and_belong_to_one_reply():
    path = FOREIGN / "claude/projects/-home-ada-shop/7c1e0a52-0000-4000-8000-000000000001.jsonl"
    session = read(path)
    assert session is not None
    first = next(item for item in session.main.items if isinstance(item, SourceReply))
    calls = [part.id for part in first.parts if isinstance(part, SourceCall)]
    assert calls == ["toolu_read", "toolu_bash"]
    assert session.main.results["toolu_bash"].is_error
    assert set(calls) <= set(session.main.results)
    assert first.usage.output_tokens == 180
    assert [(s.name, s.call_id) for s in session.source_subagents] == [
        ("price-checker", "toolu_task")
    ]
    assert session.left_out["other branch"] == 2


def test_subagents_nested_too_deeply_are_attached_at_the_maximum_depth():
    threads = [
        SourceThread(
            items=[
                SourceReply(
                    id=f"r{n}", time=None, parts=[SourceCall(id=f"c{n}", name="Task", input={})]
                )
            ]
        )
        for n in range(401)
    ]
    session = SourceSession(format="claude-code", path="deep.jsonl", id="s", main=threads[0])
    session.source_subagents = [
        SourceSubagent(id=f"{n}", name="", call_id=f"c{n - 1}", thread=threads[n])
        for n in range(1, 401)
    ]
    depths: dict[str | None, int] = {}
    for event in plan_import(session, scrub=bytes, now=NOW).events:
        if isinstance(event.payload, ThreadCreated):
            above = depths.get(event.payload.parent_thread_id, 0)
            depths[event.payload.session_thread_id] = above + 1
    assert (len(depths), max(depths.values())) == (400, 32)
    assert ["more than 32 deep" in finding.what for finding in session.findings] == [True]


def test_an_imported_compaction_keeps_the_messages_from_its_first_kept_id():
    said = [SourceReply(id=f"r{n}", time=None, parts=[SourceText("x")]) for n in range(2)]
    kept = SourceCompaction(id="k", time=None, summary="s", first_kept_id="r1")
    session = SourceSession(format="pi", path="p", id="s", main=SourceThread(items=[*said, kept]))
    planned = plan_import(session, scrub=bytes, now=NOW).events
    [replaces] = [event.replaces for event in planned if event.replaces is not None]
    sources = {event.id: event.source_id for event in planned}
    assert [sources[replace] for replace in replaces] == ["running:r0", "replied:r0:1"]
