"""`mainspring -p`: what scripts that were written for Claude Code give and read."""

import json
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any

import pytest
from tests.cli.upstream import Upstream, call
from tests.fork_server import Run
from tests.repositories import git


def lines(output: str) -> list[dict[str, Any]]:
    return [json.loads(line) for line in output.splitlines()]


def user(content: object) -> str:
    return json.dumps({"type": "user", "message": {"role": "user", "content": content}}) + "\n"


def test_text_output_is_only_the_final_reply(mainspring: Run, upstream: Upstream):
    upstream.says("First I look.", call("glob", pattern="*.md"))
    upstream.says("There are *none*.")
    result = mainspring("-p", "any notes?", **upstream.variables)
    assert (result.returncode, result.stdout) == (0, "There are *none*.\n")


def test_json_output_is_one_object_whose_session_id_can_be_resumed(
    mainspring: Run, upstream: Upstream
):
    upstream.says("Good day.")
    result = mainspring("run", "hi", "-p", "--output-format", "json", **upstream.variables)
    assert result.returncode == 0
    [first] = lines(result.stdout)
    assert first["type"] == "result"
    assert (first["subtype"], first["is_error"], first["result"]) == ("success", False, "Good day.")
    assert (first["num_turns"], first["permission_denials"]) == (1, [])
    assert first["usage"]["output_tokens"] == 20
    assert first["modelUsage"]["test"]["outputTokens"] == 20
    upstream.says("Still here.")
    again = mainspring(
        "-p", "and?", "--resume", first["session_id"], "--output-format=json", **upstream.variables
    )
    [second] = lines(again.stdout)
    assert second["session_id"] == first["session_id"]
    assert (second["num_turns"], second["usage"]["output_tokens"]) == (1, 20)  # of this run


def test_stream_json_has_each_part_of_a_reply_and_each_tool_result(
    mainspring: Run, upstream: Upstream
):
    upstream.says("I write it.", call("write", file_path="a.txt", content="x"))
    upstream.says("Then not.")
    result = mainspring(
        "-p", "write", "--output-format", "stream-json", "--verbose", **upstream.variables
    )
    assert result.returncode == 0
    init, text, use, returned, last, end = lines(result.stdout)
    assert (init["type"], init["subtype"], init["permissionMode"]) == ("system", "init", "default")
    assert {"Bash", "Write", "Read"} <= set(init["tools"])
    assert text["message"]["content"] == [{"type": "text", "text": "I write it."}]
    [block] = use["message"]["content"]
    assert (block["type"], block["name"]) == ("tool_use", "Write")
    assert text["message"]["id"] == use["message"]["id"]
    [outcome] = returned["message"]["content"]
    assert (outcome["tool_use_id"], outcome["is_error"]) == (block["id"], True)
    assert "nobody can be asked" in outcome["content"]
    assert last["message"]["content"][0]["text"] == "Then not."
    [denied] = end["permission_denials"]
    assert denied == {
        "tool_name": "Write",
        "tool_use_id": block["id"],
        "tool_input": {"file_path": "a.txt", "content": "x"},
    }
    assert len({line["session_id"] for line in lines(result.stdout)}) == 1
    assert len({line["uuid"] for line in lines(result.stdout)}) == 6


def test_partial_messages_add_up_to_the_reply(mainspring: Run, upstream: Upstream):
    upstream.says("One, ", "two.", call("glob", pattern="*.md"))
    upstream.says("Three.")
    result = mainspring(
        "-p",
        "count",
        "--output-format=stream-json",
        "--include-partial-messages",
        **upstream.variables,
    )
    pieces = [line["event"] for line in lines(result.stdout) if line["type"] == "stream_event"]
    kinds = [piece["type"] for piece in pieces]
    assert kinds.count("message_start") == kinds.count("message_stop") == 2
    assert kinds.count("content_block_start") == kinds.count("content_block_stop") == 3
    deltas = [piece["delta"] for piece in pieces if piece["type"] == "content_block_delta"]
    text = "".join(delta["text"] for delta in deltas if delta["type"] == "text_delta")
    assert text == "One, two.Three."
    given = "".join(delta["partial_json"] for delta in deltas if "partial_json" in delta)
    assert json.loads(given) == {"pattern": "*.md"}


def test_command_line_rules_allow_and_deny(mainspring: Run, upstream: Upstream, place: Path):
    upstream.says(call("write", file_path="a.txt", content="x"), call("read", file_path="b.txt"))
    upstream.says("So.")
    (place / "b.txt").write_text("secret")
    result = mainspring(
        *("-p", "go", "--output-format=json"),
        *("--allowedTools", "Edit, Bash(git log *)", "--disallowedTools", "Read"),
        **upstream.variables,
    )
    [end] = lines(result.stdout)
    assert (place / "a.txt").read_text() == "x"
    assert "secret" not in json.dumps(upstream.requests)
    assert end["is_error"] is False
    wrong = mainspring("-p", "go", "--allowedTools", "Bash(", **upstream.variables)
    assert wrong.returncode == 1
    assert "parenthesis" in wrong.stderr


def test_failures_have_a_subtype_and_an_exit_status(mainspring: Run, upstream: Upstream):
    upstream.says(call("glob", pattern="*"))
    limited = mainspring(
        *("-p", "go", "--max-turns", "1", "--output-format", "json"), **upstream.variables
    )
    [end] = lines(limited.stdout)
    assert (limited.returncode, end["subtype"], end["is_error"]) == (4, "error_max_turns", True)
    assert "result" not in end
    upstream.says(401)
    failed = mainspring("-p", "go", "--output-format", "stream-json", **upstream.variables)
    *_, end = lines(failed.stdout)
    assert (failed.returncode, end["subtype"]) == (1, "error_during_execution")
    assert "401" in end["errors"][0]


def test_messages_on_standard_input_are_answered_in_order(mainspring: Run, upstream: Upstream):
    upstream.says("To one.")
    upstream.says("To two.")
    block = {"type": "text", "text": "two", "cache_control": {"type": "ephemeral"}}
    unsupported = {"type": "control_request", "request_id": "r1", "request": {"subtype": "dance"}}
    result = mainspring(
        "--input-format=stream-json",
        "--output-format=stream-json",
        stdin=user("one") + "\n" + json.dumps(unsupported) + "\n" + user([block]),
        **upstream.variables,
    )
    assert result.returncode == 0
    got = lines(result.stdout)
    assert [line["result"] for line in got if line["type"] == "result"] == ["To one.", "To two."]
    assert upstream.last_words() == "two"
    [response] = [line["response"] for line in got if line["type"] == "control_response"]
    assert (response["request_id"], response["subtype"]) == ("r1", "error")


@pytest.mark.parametrize(
    "line",
    ["hello", '{"type":"user"}', '{"type":"dance"}', '{"type":"user","message":{"content":[1]}}'],
)
def test_an_invalid_input_line_ends_the_input_with_an_error(
    line: str, mainspring: Run, upstream: Upstream
):
    upstream.says("To one.")
    result = mainspring(
        "--input-format=stream-json",
        "--output-format=stream-json",
        stdin=user("one") + line + "\n",
        **upstream.variables,
    )
    assert result.returncode == 1
    assert "line 2 of standard input" in result.stderr


def test_an_interrupt_on_standard_input_ends_the_run_but_not_the_session(
    upstream: Upstream, place: Path, environ: dict[str, str]
):
    upstream.says("I begin. ", threading.Event(), "never said")
    upstream.says("Here again.")
    arguments = ("--input-format=stream-json", "--output-format=stream-json")
    env = {**environ, **upstream.variables}
    with subprocess.Popen(
        [sys.executable, "-m", "mainspring", *arguments],
        cwd=place,
        env=env,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    ) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        process.stdin.write(user("one"))
        process.stdin.flush()
        assert upstream.asked.acquire(timeout=60)
        stop = {"type": "control_request", "request_id": "r1", "request": {"subtype": "interrupt"}}
        process.stdin.write(json.dumps(stop) + "\n")
        process.stdin.flush()
        got: list[dict[str, Any]] = []
        while not got or got[-1]["type"] != "result":
            got.append(json.loads(process.stdout.readline()))
        assert "control_response" in [line["type"] for line in got]
        assert got[-1]["subtype"] == "error_during_execution"
        process.stdin.write(user("two"))
        process.stdin.close()
        rest = lines(process.stdout.read())
    assert rest[-1]["result"] == "Here again."
    assert process.returncode == 0


def test_incompatible_formats_are_refused(mainspring: Run):
    for arguments, problem in (
        (("-p", "--input-format=stream-json"), "needs --output-format stream-json"),
        (
            ("-p", "hi", "--input-format=stream-json", "--output-format=stream-json"),
            "omit PROMPT",
        ),
        (("-p", "hi", "--include-partial-messages"), "needs --output-format stream-json"),
        (("-p", "hi", "--output-format=xml"), "'xml'"),
    ):
        result = mainspring(*arguments)
        assert (result.returncode, problem in result.stderr) == (2, True), result.stderr


def test_worktree_option_runs_the_session_in_a_git_worktree(
    mainspring: Run, upstream: Upstream, place: Path
):
    upstream.otherwise = lambda _: ("Done.",)
    lonely = mainspring("-p", "go", "--worktree", "feature", **upstream.variables)
    assert lonely.returncode == 1
    for command in ("init -q", "add .", "commit -qm first --allow-empty"):
        git(place, *command.split())
    upstream.says(call("write", file_path="new.txt", content="x"))
    first = mainspring(
        *("run", "-p", "go", "--worktree", "feature", "--mode=acceptEdits"), **upstream.variables
    )
    assert first.returncode == 0, first.stderr
    [folder] = (place / ".mainspring/worktrees").iterdir()
    assert (folder.name, (folder / "new.txt").read_text()) == ("feature", "x")
    assert not (place / "new.txt").exists()
    again = mainspring("-p", "go", "--worktree", "feature", **upstream.variables)
    assert again.returncode == 0
    unnamed = mainspring("-p", "go", "--worktree", **upstream.variables)
    assert unnamed.returncode == 0, unnamed.stderr
    assert len(list((place / ".mainspring/worktrees").iterdir())) == 2
    both = mainspring("-p", "go", "--worktree", "feature", "-w", ".", **upstream.variables)
    assert both.returncode == 2
