"""`mainspring sessions`: how sessions stand, what was said, and what can be done to them."""

import json
import signal
from pathlib import Path
from typing import Any

import anyio
import pytest
from tests.cli.conftest import opened
from tests.cli.terminal import at_terminal
from tests.cli.upstream import Upstream, call, interrupted_run
from tests.fork_server import Run

from mainspring.capabilities.providers.scripted import Scripted, ScriptLine, calls, says
from mainspring.core.model import ToolSpec
from mainspring.core.tool import Call, Tool, ToolResult, Traits
from mainspring.harness.authorizer import AllowAll, Decision
from mainspring.runtime.agent import Agent
from mainspring.runtime.session.run_result import RunResult
from mainspring.wiring.runtime_assembly import open_runtime


def list_sessions(mainspring: Run) -> list[dict[str, Any]]:
    return [json.loads(line) for line in mainspring("sessions", "ls", "--json").stdout.splitlines()]


def test_ls_shows_status_turns_and_usage_of_sessions(
    mainspring: Run, upstream: Upstream, session_id: str, fork_id: str
):
    mainspring("run", "count to three", "--max-turns", "1", **upstream.variables)
    upstream.says(call("history_search", query="x"))
    mainspring("run", "look for it", "--max-turns", "1", **upstream.variables)
    head, *rows = mainspring("sessions", "ls").stdout.splitlines()
    assert head.split() == ["SESSION", "STATUS", "TURNS", "COST", "CHANGED", "TITLE"]
    assert "idle (max_turns)" in rows[0]
    assert rows[0].endswith("look for it")
    assert " idle " in rows[1]
    assert rows[1].endswith("count to three")
    assert rows[2].startswith(fork_id)
    assert " running " in rows[2]
    assert rows[3].startswith(session_id)
    views = list_sessions(mainspring)
    assert [view["turns"] for view in views] == [1, 1, 0, 0]
    assert views[1]["usage"]["cache_read_input_tokens"] == 900
    assert (views[1]["model"], views[1]["agent"]) == ("ollama:test", "project")


def test_ls_in_an_empty_folder_says_how_to_start(mainspring: Run, place: Path):
    assert "mainspring run" in mainspring("sessions", "ls").stderr
    assert list(place.iterdir()) == []


def test_show_prints_the_conversation(mainspring: Run, session_id: str):
    shown = mainspring("sessions", "show", session_id)
    assert shown.stdout.splitlines() == [
        "> It fails at midnight.",
        "> Why?",
        "",
        "✗ shell pytest",
        "  1 failed \N{REPLACEMENT CHARACTER}[31mred\N{REPLACEMENT CHARACTER}[0m",
        "",
        "One date is local, the other is UTC.",
    ]
    assert shown.stderr == ""


def test_a_fork_continues_independently_of_its_parent(mainspring: Run, upstream: Upstream):
    mainspring("run", "one", **upstream.variables)
    [first] = list_sessions(mainspring)
    result = mainspring("sessions", "fork", first["id"][-8:], "--title", "other", "--json")
    fork = json.loads(result.stdout)
    assert fork["parent"] == first["id"]
    mainspring("run", "two", "--resume", fork["id"], **upstream.variables)
    views = {view["id"]: view for view in list_sessions(mainspring)}
    assert (views[fork["id"]]["title"], views[fork["id"]]["turns"]) == ("other", 2)
    assert views[first["id"]]["turns"] == 1
    refused = mainspring("sessions", "fork", first["id"], "--at", "99")
    assert "it cannot fork at 99" in refused.stderr


def test_cancel_interrupts_a_session_run_by_another_process(
    mainspring: Run, upstream: Upstream, place: Path, environ: dict[str, str]
):
    with interrupted_run(upstream, place, environ) as process:
        [session] = list_sessions(mainspring)
        assert session["status"] == "running"
        assert mainspring("sessions", "cancel", session["id"]).returncode == 0
        assert process.wait(60) == 130
    [session] = list_sessions(mainspring)
    assert (session["status"], session["reason"]) == ("idle", "interrupted_streaming")
    again = mainspring("sessions", "cancel", session["id"])
    assert again.returncode == 1
    assert "is not running: idle" in again.stdout


def test_cancel_ends_the_turn_left_by_a_killed_process(
    mainspring: Run, upstream: Upstream, place: Path, environ: dict[str, str]
):
    with interrupted_run(upstream, place, environ) as process:
        process.send_signal(signal.SIGKILL)
    [session] = list_sessions(mainspring)
    assert mainspring("sessions", "cancel", session["id"]).returncode == 0
    [session] = list_sessions(mainspring)
    assert (session["status"], session["reason"]) == ("idle", "interrupted_streaming")
    assert len(upstream.requests) == 1


def test_rm_deletes_a_session(mainspring: Run, session_id: str):
    assert mainspring("sessions", "rm", session_id, "--yes").returncode == 0
    assert list_sessions(mainspring) == []


class AskingAuthorizer(AllowAll):
    async def authorize(self, call: Call, tool: Tool, traits: Traits) -> Decision:
        return Decision(decision="ask", gate="mode")


async def _deploy(call: Call) -> ToolResult:
    return ToolResult.text("deployed")


DEPLOYER = Agent(
    model="scripted:test",
    tools=[
        Tool(
            spec=ToolSpec(name="deploy", description="", input_schema={"type": "object"}),
            run=_deploy,
        )
    ],
)


async def _play(store: Path, session_id: str | None, *steps: ScriptLine) -> RunResult:
    async with open_runtime(store=str(store), authorizer=AskingAuthorizer()) as runtime:
        runtime.models.put("scripted:test", Scripted(*steps))
        if session_id is None:
            session = await runtime.start(DEPLOYER, "ship it")
        else:
            session = await runtime.resume(DEPLOYER, session_id)
        with anyio.fail_after(60):
            result = await session.run()
        assert result is not None
        return result


@pytest.fixture
def waiting_run(store: Path) -> RunResult:
    """A session in which two calls wait for a person."""
    steps = calls("deploy", path="prod") + calls("deploy", path="test")
    return anyio.run(_play, store, None, steps)


def test_answers_allow_a_call_or_deny_it_with_a_reason(
    mainspring: Run, waiting_run: RunResult, store: Path
):
    one, other = waiting_run.waiting_for
    assert list_sessions(mainspring)[0]["status"] == "requires_action"
    denied = mainspring(
        "sessions", "answer", waiting_run.session_id, one[-8:], "deny", "--message", "not on Friday"
    )
    assert denied.returncode == 0
    assert denied.stdout.startswith("deny deploy")
    allowed = mainspring("sessions", "answer", waiting_run.session_id, other, "allow")
    assert f"mainspring run --resume {waiting_run.session_id[-8:]}" in allowed.stderr
    assert anyio.run(_play, store, waiting_run.session_id, says("half of it")).reason == "completed"
    shown = mainspring("sessions", "show", waiting_run.session_id).stdout
    assert "✗ deploy prod" in shown
    assert "not on Friday" in shown
    assert "✓ deploy test" in shown


def test_an_answer_to_an_unknown_call_lists_the_waiting_calls(
    mainspring: Run, waiting_run: RunResult
):
    result = mainspring("sessions", "answer", waiting_run.session_id, "nonsense", "allow")
    assert result.returncode == 1
    assert "nonsense is not a call that waits" in result.stderr
    assert f"deploy {waiting_run.waiting_for[0][-8:]}" in result.stderr
    assert mainspring("sessions", "answer", waiting_run.session_id, "x", "perhaps").returncode == 2


def test_run_lists_waiting_calls_with_the_command_that_answers_them(
    mainspring: Run, waiting_run: RunResult
):
    result = mainspring("run", "--resume", waiting_run.session_id, "--model", "demo")
    assert result.returncode == 3
    for call_id, path in zip(waiting_run.waiting_for, ("prod", "test"), strict=True):
        assert f"waits deploy {path}" in result.stderr
        answer = f"mainspring sessions answer {waiting_run.session_id} {call_id} allow|deny"
        assert answer in result.stderr


async def test_a_repeated_answer_is_in_the_inbox_once(
    mainspring: Run, waiting_run: RunResult, store: Path
):
    call_id = waiting_run.waiting_for[0]
    for _ in range(2):
        await anyio.to_thread.run_sync(
            lambda: mainspring("sessions", "answer", waiting_run.session_id, call_id, "allow")
        )
    async with opened(store) as log:
        assert len(await log.store.pending(waiting_run.session_id)) == 1


def test_top_lists_running_and_waiting_sessions(
    mainspring: Run, upstream: Upstream, place: Path, environ: dict[str, str]
):
    assert "no session is running or waiting" in mainspring("top").stderr
    upstream.says(call("write", file_path="a.txt", content="x"))
    waiting = mainspring("run", "write it", **upstream.variables)
    assert waiting.returncode == 3
    mainspring("run", "hello", **upstream.variables)
    _, row = mainspring("top", "--once").stdout.splitlines()
    assert "requires action" in row
    assert "write it" in row
    [listed] = mainspring("top", "--json").stdout.splitlines()
    assert json.loads(listed)["status"] == "requires_action"
    upstream.says("Written.")
    env = {**environ, **upstream.variables}
    with at_terminal("top", cwd=place, env=env) as terminal:
        terminal.watch("requires action")
        terminal.type("\r")  # attach: it asks, and goes on
        terminal.expect("Allow write?")
        terminal.expect("[y/")
        terminal.type("y\r")
        terminal.watch("no session is running or waiting")
        terminal.type("q")
        assert terminal.wait() == 0
    assert (place / "a.txt").read_text() == "x"
