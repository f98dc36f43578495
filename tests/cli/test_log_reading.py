"""`mainspring log ls`, `show`, `follow` and `search` on a real store."""

import json
import signal
import subprocess
import sys
from pathlib import Path
from subprocess import CompletedProcess
from typing import Any

import anyio
from anyio.streams.buffered import BufferedByteReceiveStream
from tests.fork_server import Run
from tests.keys import KEY

from mainspring.core.content import TextBlock
from mainspring.core.envelope import encode_line
from mainspring.core.events import UserMessage
from mainspring.log.session_log import SessionLog
from mainspring.log.sqlite import open_sqlite


def lines(result: CompletedProcess[str]) -> list[Any]:
    assert result.returncode == 0, result.stderr
    return [json.loads(line) for line in result.stdout.splitlines()]


def test_ls_in_an_empty_folder_says_so_and_creates_nothing(mainspring: Run, place: Path):
    result = mainspring("log", "ls")
    assert (result.returncode, result.stdout) == (0, "")
    assert "no sessions yet in" in result.stderr
    assert mainspring("log", "ls", "--json").stdout == ""
    assert list(place.iterdir()) == []


def test_ls_shows_newest_first_with_titles(mainspring: Run, session_id: str, fork_id: str):
    head, first, second = mainspring("log", "ls").stdout.splitlines()
    assert " ".join(head.split()) == "SESSION CREATED CHANGED EVENTS HELD BY FORK OF TITLE"
    assert first.startswith(fork_id)
    assert "worker-2" in first
    assert f"{session_id} at 2" in first
    assert second.startswith(session_id)
    assert second.endswith("Mend the flaky test")


def test_ls_as_json_has_whole_ids(mainspring: Run, session_id: str, fork_id: str):
    fork, session = lines(mainspring("log", "ls", "--json"))
    assert (fork["id"], fork["parent"], fork["parent_seq"]) == (fork_id, session_id, 2)
    assert (fork["holder"], fork["title"]) == ("worker-2", "Freeze the clock.")
    assert (session["id"], session["events"], session["holder"]) == (session_id, 6, None)


def test_ls_says_when_there_are_more_sessions(mainspring: Run, fork_id: str):
    result = mainspring("log", "ls", "--limit", "1")
    assert fork_id in result.stdout
    assert "there are more" in result.stderr


def test_show_prints_one_line_per_event(mainspring: Run, session_id: str):
    shown = mainspring("log", "show", session_id).stdout.splitlines()
    assert [line.split()[0] for line in shown] == ["1", "2", "3", "4", "5", "6"]
    assert [line.split()[3] for line in shown] == [
        "session.created", "user.message", "agent.tool_use",
        "agent.tool_result", "agent.message", "session.status_idle",
    ]  # fmt: skip
    assert shown[1].endswith("It fails at midnight. Why?")
    assert shown[2].endswith('shell(command="pytest")')


def test_show_prints_no_control_characters(mainspring: Run, session_id: str):
    shown = mainspring("log", "show", session_id).stdout
    assert "failed: 1 failed \N{REPLACEMENT CHARACTER}[31mred" in shown
    assert "\x1b" not in shown


async def test_show_as_json_prints_events_as_exported(
    mainspring: Run, session_id: str, store: Path
):
    async with open_sqlite(store, key=KEY) as opened:
        expected = [encode_line(event) for event in await SessionLog(opened).read(session_id)]
    assert mainspring("log", "show", session_id, "--json").stdout.encode().splitlines() == expected


def test_show_selects_by_sequence_type_and_thread(mainspring: Run, session_id: str, fork_id: str):
    def shown(*arguments: str) -> list[int]:
        return [line["seq"] for line in lines(mainspring("log", "show", *arguments, "--json"))]

    assert shown(session_id, "--after", "4") == [5, 6]
    assert shown(session_id, "--tail", "2") == [5, 6]
    assert shown(session_id, "--type", "user.message", "--type", "agent.message") == [2, 5]
    assert shown(session_id, "-t", "user.message", "-t", "agent.message", "--tail", "1") == [5]
    assert shown(session_id, "--thread", "sthr_none") == []
    assert shown(fork_id) == [1, 2, 3, 4]


def test_a_mistyped_event_type_gets_a_suggestion(mainspring: Run, session_id: str):
    result = mainspring("log", "show", session_id, "--type", "agent.mesage")
    assert result.stdout == ""
    assert "did you mean agent.message" in result.stderr


def test_a_session_can_be_named_by_part_of_its_id(mainspring: Run, session_id: str):
    whole = mainspring("log", "show", session_id).stdout
    assert mainspring("log", "show", session_id[-8:]).stdout == whole
    assert mainspring("log", "show", session_id[:20]).stdout == whole
    assert mainspring("log", "show", session_id.partition("_")[2][:20]).stdout == whole


def test_an_ambiguous_part_of_an_id_lists_the_matching_sessions(
    mainspring: Run, session_id: str, fork_id: str
):
    result = mainspring("log", "show", "sesn_")
    assert result.returncode == 1
    assert "could be any of 2 sessions" in result.stderr
    assert session_id in result.stderr
    assert fork_id in result.stderr


def test_a_mistyped_session_id_gets_a_suggestion(mainspring: Run, session_id: str):
    assert f"did you mean {session_id}?" in mainspring("log", "show", session_id[:-1] + "~").stderr


def test_a_closed_output_pipe_is_not_an_error(
    session_id: str, place: Path, environ: dict[str, str]
):
    with subprocess.Popen(
        [sys.executable, "-m", "mainspring", "log", "show", session_id, "--json"],
        cwd=place,
        env=environ,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    ) as process:
        assert process.stdout is not None
        assert process.stderr is not None
        process.stdout.close()
        assert process.stderr.read() == b""
        assert process.wait(60) == 141


async def test_follow_prints_events_appended_by_another_process_until_interrupted(
    session_id: str, store: Path, place: Path, environ: dict[str, str]
):
    command = [sys.executable, "-m", "mainspring", "log", "follow", session_id, "--json"]
    with anyio.fail_after(60):
        async with (
            await anyio.open_process(
                [*command, "--after", "5"], cwd=place, env=environ, stderr=subprocess.PIPE
            ) as process,
            open_sqlite(store, key=KEY) as opened,
        ):
            assert process.stdout is not None
            assert process.stderr is not None
            output = BufferedByteReceiveStream(process.stdout)
            assert json.loads(await output.receive_until(b"\n", 10_000))["seq"] == 6
            writer = await SessionLog(opened).hold(session_id, owner="another")
            await writer.append(UserMessage(content=(TextBlock("and now?"),)))
            followed = json.loads(await output.receive_until(b"\n", 10_000))
            assert (followed["seq"], followed["payload"]["content"][0]["text"]) == (7, "and now?")
            process.send_signal(signal.SIGINT)
            assert await process.wait() == 130
            assert [chunk async for chunk in process.stderr] == []


def test_search_finds_message_text(mainspring: Run, session_id: str, fork_id: str):
    del fork_id
    [line] = mainspring("log", "search", "local date").stdout.splitlines()
    assert line.split()[:2] == [session_id, "5"]
    [hit] = lines(mainspring("log", "search", "clock", "--json"))
    assert hit["snippet"] == "Freeze the clock."


def test_search_in_one_session_without_a_match_says_so(
    mainspring: Run, session_id: str, fork_id: str
):
    del fork_id
    result = mainspring("log", "search", "clock", "--session", session_id)
    assert (result.returncode, result.stdout) == (0, "")
    assert "no text contains all of: clock" in result.stderr
