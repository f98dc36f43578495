"""`mainspring sessions rewind`, `snapshots` and `diff`: earlier states of the files come back."""

import json
from functools import partial
from pathlib import Path
from typing import Any

import anyio
import pytest
from tests.cli.conftest import opened
from tests.cli.terminal import at_terminal
from tests.fork_server import Run

from mainspring.capabilities.providers.scripted import Scripted, ScriptLine, calls, says
from mainspring.config import Settings, read_settings
from mainspring.core.events import UserMessage
from mainspring.runtime.agent import Agent
from mainspring.runtime.run_options import RunOptions
from mainspring.wiring.runtime_assembly import open_runtime

WORKER = Agent(model="scripted:test", built_ins=("read", "write"))


@pytest.fixture
def settings(place: Path, environ: dict[str, str]) -> Settings:
    return read_settings(folder=place, environ=environ)


async def _work(
    settings: Settings, session_id: str | None, *asked: str, replies: tuple[ScriptLine, ...]
) -> str:
    """Ask for several things in turn; the session they were asked in."""
    options = RunOptions(workspace=Path(settings.folder), mode="acceptEdits")
    async with open_runtime(settings, options=options) as runtime:
        runtime.models.put("scripted:test", Scripted(*replies))
        if session_id is None:
            session = await runtime.start(WORKER)
        else:
            session = await runtime.resume(WORKER, session_id)
        for message in asked:
            await session.send(message)
            with anyio.fail_after(60):
                result = await session.run()
            assert result is not None
            assert result.ok, result
        return session.id


@pytest.fixture
def worked_session(settings: Settings, place: Path) -> str:
    """A session that has made a file, then changed it and made another."""
    (place / "own.txt").write_text("mine")
    replies = (
        calls("write", file_path="a.txt", content="one"),
        says("made"),
        calls("write", file_path="a.txt", content="two")
        + calls("write", file_path="deep/b.txt", content="b"),
        says("changed"),
    )
    return anyio.run(partial(_work, settings, None, "make it", "change it", replies=replies))


def files(place: Path) -> dict[str, str]:
    return {
        path.relative_to(place).as_posix(): path.read_text()
        for path in sorted(place.rglob("*"))
        if path.is_file() and ".mainspring" not in path.parts
    }


MADE = {"a.txt": "one", "own.txt": "mine"}
CHANGED = {"a.txt": "two", "deep/b.txt": "b", "own.txt": "mine"}


def rewind_session(mainspring: Run, *arguments: str) -> dict[str, Any]:
    result = mainspring("sessions", "rewind", *arguments, "--json")
    assert result.returncode == 0, result.stderr
    return json.loads(result.stdout)


def test_a_rewind_of_files_and_conversation_can_be_undone(
    mainspring: Run, worked_session: str, place: Path
):
    assert files(place) == CHANGED
    (place / "own.txt").write_text("mine, edited since")
    view = rewind_session(mainspring, worked_session[-8:], "--yes")
    assert files(place) == MADE
    assert {item["path"]: item["change"] for item in view["changed"]} == {
        "a.txt": "modified", "deep/b.txt": "removed", "own.txt": "modified",
    }  # fmt: skip
    shown = mainspring("sessions", "show", view["fork"]).stdout
    assert "made" in shown
    assert "change it" not in shown
    assert mainspring("log", "verify", "--all").returncode == 0
    undo = mainspring(
        "sessions", "rewind", worked_session, "--to", str(view["undo"]), "--files-only", "--yes"
    )
    assert undo.stdout.startswith("restored 3 files as after event")
    assert files(place) == {**CHANGED, "own.txt": "mine, edited since"}


def test_a_dry_run_shows_the_changes_and_changes_nothing(
    mainspring: Run, worked_session: str, place: Path
):
    shown = mainspring("sessions", "rewind", worked_session, "--dry-run")
    assert shown.stdout.splitlines()[:2] == ["modified  a.txt", "removed   deep/b.txt"]
    assert files(place) == CHANGED
    refused = mainspring("sessions", "rewind", worked_session)
    assert refused.returncode == 1
    assert "no terminal for a confirmation" in refused.stderr
    assert "--yes" in refused.stderr
    assert files(place) == CHANGED


def test_rewind_at_a_terminal_shows_changes_and_asks(
    worked_session: str, place: Path, environ: dict[str, str]
):
    with at_terminal("sessions", "rewind", worked_session, cwd=place, env=environ) as terminal:
        terminal.expect("removed   deep/b.txt")
        terminal.expect("Go back?")
        terminal.type("n\r")
        terminal.expect("nothing was changed")
        assert terminal.wait() == 1
    assert files(place) == CHANGED
    with at_terminal("sessions", "rewind", worked_session, cwd=place, env=environ) as terminal:
        terminal.expect("Go back?")
        terminal.type("y\r")
        terminal.expect("continue: mainspring run --resume ")
        assert terminal.wait() == 0
    assert files(place) == MADE


def test_turns_are_counted_back_from_the_end(mainspring: Run, worked_session: str, place: Path):
    assert rewind_session(mainspring, worked_session, "--turns", "1", "--yes")["changed"] == []
    assert files(place) == CHANGED
    rewind_session(mainspring, worked_session, "--turns", "2", "--yes", "--files-only")
    assert files(place) == MADE
    rewind_session(mainspring, worked_session, "--turns", "4", "--yes", "--files-only")
    assert files(place) == {"own.txt": "mine"}
    assert (
        "had 4 turns"
        in mainspring("sessions", "rewind", worked_session, "--turns", "5", "--yes").stderr
    )
    nowhere = mainspring("sessions", "rewind", worked_session, "--to", "9999", "--yes")
    assert "has events 1 to" in nowhere.stderr


async def test_a_fork_can_be_rewound(
    mainspring: Run, worked_session: str, place: Path, settings: Settings
):
    first = await anyio.to_thread.run_sync(rewind_session, mainspring, worked_session, "--yes")
    await _work(
        settings,
        first["fork"],
        "another way",
        replies=(calls("write", file_path="c.txt", content="c"), says("done")),
    )
    assert files(place) == {**MADE, "c.txt": "c"}
    second = await anyio.to_thread.run_sync(rewind_session, mainspring, first["fork"], "--yes")
    assert files(place) == MADE
    assert second["changed"] == [{"path": "c.txt", "change": "removed"}]
    # by what it has inherited, as far back as its parent could
    await anyio.to_thread.run_sync(rewind_session, mainspring, second["fork"], "--yes")
    assert files(place) == {"own.txt": "mine"}
    async with opened(Path(settings.store)) as log:
        inherited = await log.read(second["fork"])
    said = [event.payload for event in inherited if isinstance(event.payload, UserMessage)]
    assert len(said) == 1


async def test_a_running_session_is_not_rewound(mainspring: Run, worked_session: str, place: Path):
    async with opened(place / ".mainspring/mainspring.db") as log:
        writer = await log.hold(worked_session, owner="elsewhere", seconds=600)
        refused = await anyio.to_thread.run_sync(
            lambda: mainspring("sessions", "rewind", worked_session, "--yes")
        )
        await writer.release()
    assert refused.returncode == 1
    assert "is held by elsewhere" in refused.stderr
    assert "sessions cancel" in refused.stderr
    assert files(place) == CHANGED


async def test_files_hidden_by_deny_rules_are_never_restored(
    mainspring: Run, place: Path, settings: Settings
):
    (place / ".claude").mkdir()
    rules = {"permissions": {"deny": ["Read(./.env)"]}}
    (place / ".claude/settings.json").write_text(json.dumps(rules))
    (place / ".env").write_text("KEY=1")
    replies = (calls("write", file_path="a.txt", content="one"), says("made"))
    session = await _work(settings, None, "make it", replies=replies)
    (place / ".env").write_text("KEY=2")
    view = await anyio.to_thread.run_sync(rewind_session, mainspring, session, "--yes")
    assert view["changed"] == [{"path": "a.txt", "change": "removed"}]
    assert (place / ".env").read_text() == "KEY=2"


def test_snapshots_and_diffs_are_listed(mainspring: Run, worked_session: str, place: Path):
    head, *rows = mainspring("sessions", "snapshots", worked_session).stdout.splitlines()
    assert head.split() == ["EVENT", "TIME", "TURN", "FILES", "CHANGED"]
    assert [row.split()[3:] for row in rows] == [
        ["1", "1"], ["1", "2", "+1"], ["3", "3", "+1", "~1"],
    ]  # fmt: skip
    views = [
        json.loads(line)
        for line in mainspring(
            "sessions", "snapshots", worked_session, "--json"
        ).stdout.splitlines()
    ]
    first, second, _ = (str(view["seq"]) for view in views)
    between = mainspring("sessions", "diff", worked_session, "--from", first, "--to", second)
    assert between.stdout.startswith("added     a.txt\n@@ -0,0 +1 @@\n+")
    (place / "a.txt").write_text("other\n")
    (place / "own.txt").write_bytes(b"\0\1")
    changed = mainspring("sessions", "diff", worked_session, "--from", second).stdout
    assert "+other\n" in changed
    assert "modified  own.txt\n(not text)\n" in changed
    (place / "own.txt").unlink()
    now = mainspring("sessions", "diff", worked_session, "--names")
    assert now.stdout.splitlines() == [
        "added     a.txt", "added     deep/b.txt", "removed   own.txt",
    ]  # fmt: skip


def test_a_session_without_snapshots_rewinds_only_its_conversation(
    mainspring: Run, session_id: str
):
    assert "there are no snapshots" in mainspring("sessions", "snapshots", session_id).stderr
    refused = mainspring("sessions", "rewind", session_id, "--files-only", "--yes")
    assert refused.returncode == 1
    assert "there are no snapshots" in refused.stderr
    view = rewind_session(mainspring, session_id)
    assert (view["to"], view["snapshot"], view["changed"]) == (1, None, [])
