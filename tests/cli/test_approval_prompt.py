"""A person at the terminal is asked: what will happen, why, and what comes of each answer."""

import json
import threading
from collections.abc import Callable, Generator
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from typing import Any, TypeAlias

import pytest
from tests.cli.terminal import Terminal, at_terminal
from tests.cli.upstream import Upstream, call
from tests.fork_server import Run

Begin: TypeAlias = Callable[..., AbstractContextManager[Terminal]]


@pytest.fixture
def begin(upstream: Upstream, place: Path, environ: dict[str, str]) -> Begin:
    @contextmanager
    def begun(*arguments: str) -> Generator[Terminal]:
        env = {**environ, **upstream.variables}
        with at_terminal("run", *arguments, cwd=place, env=env) as terminal:
            yield terminal

    return begun


def tool_results(upstream: Upstream) -> list[str]:
    """The results of calls that the model has read, in order."""
    messages: list[dict[str, Any]] = upstream.requests[-1]["messages"]
    return [message["content"] for message in messages if message["role"] == "tool"]


def test_an_allowed_command_is_shown_and_runs_once(begin: Begin, upstream: Upstream, place: Path):
    for _ in range(2):
        upstream.says(call("bash", command="echo more >> count.txt"))
    with begin("count") as terminal:
        shown = terminal.expect("[y/")
        assert "Allow bash?" in shown
        assert "echo more >> count.txt" in shown
        assert "asked because " in shown
        assert not (place / "count.txt").exists()
        terminal.type("y\r")
        terminal.expect("Allow bash?")  # once is once
        assert (place / "count.txt").read_text() == "more\n"
        terminal.expect("[y/")
        terminal.type("perhaps\r")
        terminal.expect("[y/")
        terminal.type("y\r")
        terminal.expect("all I know")
        assert terminal.wait() == 0
    assert (place / "count.txt").read_text() == "more\nmore\n"


def test_a_denial_reaches_the_model_with_its_reason(begin: Begin, upstream: Upstream, place: Path):
    upstream.says(call("bash", command="touch made.txt"))
    with begin("make it") as terminal:
        terminal.expect("[y/")
        terminal.type("n\r")
        terminal.expect("why not?")
        terminal.type("not on a Friday\r")
        terminal.expect("all I know")
        assert terminal.wait() == 0
    assert "not on a Friday" in tool_results(upstream)[-1]
    assert not (place / "made.txt").exists()


@pytest.mark.parametrize("word", ["stop", "abort", "yikes"])
def test_an_answer_other_than_yes_allows_nothing(
    begin: Begin, upstream: Upstream, place: Path, word: str
):
    upstream.says(call("bash", command="touch made.txt"))
    with begin("make it") as terminal:
        terminal.expect("[y/")
        terminal.type(f"{word}\r")
        terminal.expect("nothing is allowed yet: type y/n/s/a")
        assert not (place / "made.txt").exists()
        terminal.expect("[y/")
        terminal.type("no\r")
        terminal.expect("why not?")
        terminal.type("\r")
        terminal.expect("all I know")
        assert terminal.wait() == 0
    assert not (place / "made.txt").exists()


def test_a_command_allowed_for_the_session_is_not_asked_about_again(
    begin: Begin, upstream: Upstream, place: Path
):
    for _ in range(2):
        upstream.says(call("bash", command="touch made.txt"))
    with begin("make it") as terminal:
        assert "allow Bash(" in terminal.expect("in this session")
        terminal.expect("[y/")
        terminal.type("s\r")
        terminal.expect("all I know")
        assert terminal.wait() == 0
        assert terminal.text.count("Allow bash?") == 1
    assert len(tool_results(upstream)) == 2
    assert not (place / ".mainspring/settings.local.json").exists()


def test_an_always_allow_rule_applies_in_the_next_session(
    begin: Begin, upstream: Upstream, place: Path
):
    upstream.says(call("bash", command="touch made.txt"))
    with begin("make it") as terminal:
        terminal.expect("always allow Bash(")
        terminal.expect("[y/")
        terminal.type("a\r")
        terminal.expect("added Bash(")
        terminal.expect("all I know")
        assert terminal.wait() == 0
    kept = json.loads((place / ".mainspring/settings.local.json").read_text())
    [rule] = kept["permissions"]["allow"]
    assert rule.startswith("Bash(touch")
    (place / "made.txt").unlink()
    upstream.says(call("bash", command="touch made.txt"))
    with begin("again") as terminal:
        terminal.expect("all I know")
        assert terminal.wait() == 0
        assert "Allow bash?" not in terminal.text
        assert "not trusted" not in terminal.text
    assert (place / "made.txt").exists()


def test_an_always_allow_rule_is_written_to_the_workspace_of_the_session(
    begin: Begin, upstream: Upstream, place: Path, tmp_path: Path
):
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    upstream.says(call("bash", command="touch made.txt"))
    with begin("make it", "--workspace", str(elsewhere)) as terminal:
        terminal.expect("[y/")
        terminal.type("a\r")
        terminal.expect("all I know")
        assert terminal.wait() == 0
    assert (elsewhere / "made.txt").exists()
    assert (elsewhere / ".mainspring/settings.local.json").exists()
    assert not (place / ".mainspring/settings.local.json").exists()


def test_a_long_tool_call_is_shortened_and_can_be_viewed_in_full(begin: Begin, upstream: Upstream):
    content = "".join(f"line {number}\n" for number in range(90))
    upstream.says(call("write", file_path="long.txt", content=content))
    with begin("write it") as terminal:
        first = terminal.expect("more lines")
        assert "line 10" in first
        assert "line 89" not in first
        terminal.expect("[y/")
        terminal.type("v\r")
        terminal.expect("line 89")
        terminal.expect("[y/")
        terminal.type("y\r")
        terminal.expect("all I know")


def test_input_typed_before_the_question_is_not_taken_as_an_answer(
    begin: Begin, upstream: Upstream, place: Path
):
    held = threading.Event()
    upstream.says("Let me see.\n", held, call("bash", command="touch made.txt"))
    with begin("make it") as terminal:
        assert upstream.asked.acquire(timeout=60)
        terminal.type_ahead("y\ry\ry\r")
        held.set()
        terminal.expect("[y/")
        assert not (place / "made.txt").exists()
        terminal.type("n\r")
        terminal.expect("why not?")
        terminal.type("\r")
        terminal.expect("all I know")
    assert not (place / "made.txt").exists()


def test_an_edit_is_shown_as_a_colored_diff(begin: Begin, upstream: Upstream, place: Path):
    (place / "poem.txt").write_text("roses are red\nviolets are blue\n")
    upstream.says(call("read", file_path="poem.txt"))
    upstream.says(call("edit", file_path="poem.txt", old_string="blue", new_string="violet"))
    with begin("mend it") as terminal:
        terminal.expect("Allow edit?")
        terminal.expect("-violets are blue")
        terminal.expect("+violets are violet")
        terminal.expect("[y/")
        assert "\x1b[31m-violets are blue" in terminal.raw
        assert "\x1b[32m+violets are violet" in terminal.raw
        terminal.type("y\r")
        terminal.expect("all I know")
        assert terminal.wait() == 0
    assert (place / "poem.txt").read_text() == "roses are red\nviolets are violet\n"


def test_a_call_left_unanswered_at_ctrl_d_waits_and_can_be_answered_later(
    begin: Begin, upstream: Upstream, mainspring: Run, place: Path
):
    upstream.says(call("bash", command="touch made.txt"))
    with begin("make it") as terminal:
        terminal.expect("[y/")
        terminal.type("\x04")
        terminal.expect("mainspring sessions answer ")
        answer = terminal.expect(" allow|deny").removesuffix(" allow|deny").split()
        assert terminal.wait() == 3
    assert not (place / "made.txt").exists()
    allowed = mainspring("sessions", "answer", *answer, "allow")
    assert allowed.returncode == 0, allowed.stderr
    upstream.says("made it")
    resumed = mainspring("run", "--resume", answer[0], **upstream.variables)
    assert (resumed.returncode, resumed.stdout.splitlines()[-1]) == (0, "made it"), resumed.stderr
    assert (place / "made.txt").exists()


def test_agent_questions_are_answered_by_number_or_in_words(begin: Begin, upstream: Upstream):
    options = [
        {"label": "red", "description": "as roses are"},
        {"label": "blue", "description": ""},
    ]
    questions = [
        {"question": "Which colour?", "header": "Colour", "options": options},
        {"question": "Which others?", "header": "More", "options": options, "multiSelect": True},
        {"question": "And why?", "header": "Why", "options": options},
    ]
    upstream.says(call("ask_user", questions=questions))
    with begin("paint it") as terminal:
        terminal.expect("Which colour?")
        terminal.expect("1  red: as roses are")
        terminal.expect("2  blue")
        terminal.expect("your own words: ")
        terminal.type("2\r")
        terminal.expect("Which others?")
        terminal.expect("your own words: ")
        terminal.type("1, 2\r")
        terminal.expect("And why?")
        terminal.expect("your own words: ")
        terminal.type("because I say so\r")
        terminal.expect("all I know")
        assert terminal.wait() == 0
    assert json.loads(tool_results(upstream)[-1]) == {
        "answers": {
            "Which colour?": "blue",
            "Which others?": "red, blue",
            "And why?": "because I say so",
        }
    }
