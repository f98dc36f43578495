"""The errors that people meet first say what is wrong and what to do, each where it is met."""

import sqlite3
from contextlib import closing
from pathlib import Path

import pytest
from tests.fork_server import Run

from mainspring import Agent, run
from mainspring.core.errors import MainspringError
from mainspring.log.sqlite.schema import APPLICATION_ID
from mainspring.testing import Scripted, says


def test_common_errors_come_with_a_hint(mainspring: Run, place: Path):
    (place / "bad").mkdir()
    (place / "bad" / "agent.yaml").write_text("max_turns: [\n")
    newer = place / "newer.db"
    with closing(sqlite3.connect(newer)) as made, made:
        made.execute(f"pragma application_id = {APPLICATION_ID}")
        made.execute("pragma user_version = 999")
    newer.chmod(0o600)
    for arguments, what, fix in (
        (("run", "x", "-m", "sonnet"), "ANTHROPIC_API_KEY is not set", "--model scripted:demo"),
        (
            ("run", "x", "-m", "sonet"),
            "unknown model 'sonet'; did you mean",
            "`mainspring models ls`",
        ),
        (("run", "x", "-m", "acme:m"), "", "models ls"),
        (("run", "x", "-m", "scripted:no.yaml"), "there is no such script", "scripted:demo"),
        (("run", "x", "--agent", "bad"), "agent.yaml:", "`mainspring validate`"),
        (("run", "x", "--agent", "no"), "there is no such folder", "name a folder that exists"),
        (("run", "x", "--store", str(newer)), "written by a newer Mainspring", "upgrade"),
        (("run", "--resume", "x"), "no session", "`mainspring log ls`"),
        (("run",), "no prompt: standard", "mainspring run 'your prompt'"),
    ):
        ended = mainspring(*arguments)
        first, *hints = [s for s in ended.stderr.splitlines() if not s.startswith("warn")]
        assert (ended.returncode, first[:7], what in first) == (1, "error: ", True), arguments
        assert any(hint.startswith("hint: ") and fix in hint for hint in hints), ended.stderr


def test_a_reached_limit_ends_with_status_4_and_the_session_can_continue(
    mainspring: Run, place: Path
):
    replies = "{calls: [{tool: read, input: {file_path: play.yaml}}]}, {says: Done}"
    (place / "play.yaml").write_text(f"[{{steps: [{replies}]}}]")
    script = ("--model", "scripted:play.yaml")
    ended = mainspring("run", "look", *script, "--max-turns", "1")
    assert ended.returncode == 4
    [hint] = [s for s in ended.stderr.splitlines() if s.startswith("hint: ")]
    session = hint.partition("--resume ")[2].split()[0]
    again = mainspring("run", "on", *script, "--resume", session, "--max-turns", "9")
    assert (again.returncode, again.stdout) == (0, "Done\n"), again.stderr


def test_a_session_with_a_python_model_object_says_so_and_continues_with_another(
    mainspring: Run, place: Path
):
    store = str(place / ".mainspring" / "mainspring.db")
    first = run(Agent(name="porter"), "hello", model=Scripted(says("Hi.")), store=store)
    own = run(Agent(name="porter", model="mine"), "hi", model=Scripted(says("Hi.")), store=store)
    for session, model in ((first.session_id, "default"), (own.session_id, "mine")):
        ended = mainspring("run", "more", "--resume", session)
        assert ended.returncode == 1
        assert f"used a model object from a Python program, '{model}'" in ended.stderr
        assert f"runtime.models.put('{model}', model)" in ended.stderr
    again = mainspring("run", "more", "--resume", own.session_id, "--model", "scripted:demo")
    assert again.returncode == 0, again.stderr


def test_an_error_raised_in_python_gives_a_hint_for_python(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
):
    monkeypatch.delenv("ANTHROPIC_API_KEY", raising=False)
    with pytest.raises(MainspringError, match="ANTHROPIC_API_KEY is not set") as raised:
        run(Agent(model="sonnet"), "hello", store=str(tmp_path / "log.db"))
    [note] = raised.value.__notes__
    assert "model=Scripted(...)" in note
    assert "--model" not in note
