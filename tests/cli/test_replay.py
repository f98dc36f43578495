"""`mainspring replay` and `mainspring test record`."""

import json
import subprocess
import sys
from pathlib import Path

import pytest
from tests.cli.upstream import Upstream, call
from tests.fork_server import Run
from tests.written_files import write_file


@pytest.fixture
def session(mainspring: Run, upstream: Upstream) -> str:
    upstream.says("I look.", call("history_search", query="key"))
    upstream.says("It is under the mat.")
    mainspring("run", "find the key", **upstream.variables)
    session_id: str = json.loads(mainspring("sessions", "ls", "--json").stdout)["id"]
    mainspring("run", "thanks", "--resume", session_id, **upstream.variables)
    return session_id


def test_an_unchanged_session_replays_identically_without_model_calls(
    mainspring: Run, upstream: Upstream, session: str
):
    asked = len(upstream.requests)
    result = mainspring("replay", session[-8:])
    assert (result.returncode, result.stderr) == (0, "")
    assert result.stdout == f"identical {session}  3 calls of the model\n"
    view = json.loads(mainspring("replay", session, "--from", "20", "--json").stdout)
    assert (view["ok"], view["call"]) == (True, None)
    assert len(upstream.requests) == asked
    assert len(mainspring("sessions", "ls", "--json").stdout.splitlines()) == 1


def test_a_replay_difference_is_shown_with_exit_status_1(
    mainspring: Run, session: str, environ: dict[str, str]
):
    # what a model may say is a fact of this home, and stands in every request
    write_file(
        Path(environ["HOME"]) / ".mainspring/models.toml",
        '[models."ollama:test"]\nwindow = 8_192\nmax_output = 500\n',
    )
    result = mainspring("replay", session)
    assert result.returncode == 1
    assert f"differs {session}  at call 1" in result.stdout
    assert "-max_tokens " in result.stdout
    assert "+max_tokens 500" in result.stdout


def test_replay_with_another_prompt_continues_in_a_fork(
    mainspring: Run, upstream: Upstream, session: str
):
    upstream.says(call("history_search", query="key"))
    upstream.says("Under the stone.")
    result = mainspring("replay", session, "--prompt", "find the stone", **upstream.variables)
    assert result.returncode == 0
    assert "Under the stone." in result.stdout
    assert "forked at event 3" in result.stderr  # after what the session was given to work with
    said = [message["content"] for message in upstream.requests[3]["messages"]]
    assert said[-1] == "find the stone"
    fork, first = mainspring("sessions", "ls", "--json").stdout.splitlines()
    assert json.loads(first)["id"] == session
    assert json.loads(fork)["turns"] == 3


def test_replay_with_another_model_continues_with_live_calls(
    mainspring: Run, upstream: Upstream, session: str
):
    result = mainspring(
        "replay", session, "--model", "ollama:other", "--from", "12", **upstream.variables
    )
    assert result.returncode == 0
    assert {request["model"] for request in upstream.requests[3:]} == {"other"}


def test_a_recorded_test_passes(
    mainspring: Run, session: str, place: Path, environ: dict[str, str]
):
    result = mainspring("test", "record", session, "-o", "replays")
    assert result.returncode == 0
    name = f"find_the_key_{session[-8:]}"
    assert f"replays/test_{name}.py" in result.stdout
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "replays"]
    passed = subprocess.run(command, cwd=place, env=environ, capture_output=True, text=True)
    assert passed.returncode == 0, passed.stdout
    recorded = place / f"replays/{name}.jsonl"
    assert recorded.stat().st_size > 0
