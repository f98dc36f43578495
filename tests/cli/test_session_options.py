"""Options of `run` and `chat` that change the session: they hold with and without `-p`, in new,
resumed and forked sessions, or the command ends before anything runs."""

import json
from pathlib import Path
from typing import Any

import pytest
from tests.cli.terminal import Chat
from tests.cli.upstream import Upstream, call
from tests.fork_server import Run

FORMS = {
    "run": ("run", "go"),
    "-p": ("-p", "go"),
    "resumed": ("run", "go", "-c"),
    "resumed -p": ("-p", "go", "-c"),
    "forked": ("run", "go", "-c", "--fork-session"),
}


def system(upstream: Upstream) -> str:
    return str(upstream.requests[-1]["messages"][0]["content"])


def tools(upstream: Upstream) -> set[str]:
    return {item["function"]["name"] for item in upstream.requests[-1].get("tools", [])}


@pytest.fixture(params=FORMS)
def form(
    request: pytest.FixtureRequest, mainspring: Run, upstream: Upstream, place: Path
) -> tuple[str, ...]:
    """A form of the command, with a session to resume whose agent is pinned."""
    (place / "AGENTS.md").write_text("You are a clerk.\n")
    if "-c" in FORMS[request.param]:
        assert mainspring("run", "first", **upstream.variables).returncode == 0
    return FORMS[request.param]


def test_rules_tools_and_instructions_hold_in_every_form(
    form: tuple[str, ...], mainspring: Run, upstream: Upstream, place: Path
):
    (place / "b.txt").write_text("secret")
    upstream.says(call("write", file_path="a.txt", content="x"), call("read", file_path="b.txt"))
    upstream.says("So.")
    result = mainspring(
        *form,
        *("--allowedTools", "Edit", "--disallowed-tools", "Read", "--tools", "Read,Write"),
        *("--append-system-prompt", "Be terse."),
        **upstream.variables,
    )
    assert result.returncode == 0, result.stderr
    assert (place / "a.txt").read_text() == "x"
    assert "secret" not in json.dumps(upstream.requests)
    assert "write" in tools(upstream)
    assert not {"bash", "edit", "glob"} & tools(upstream)
    assert system(upstream).index("You are a clerk.") < system(upstream).index("Be terse.")
    replaced = mainspring(*form, "--system-prompt", "You are a cook.", **upstream.variables)
    assert replaced.returncode == 0, replaced.stderr
    assert "You are a cook." in system(upstream)
    assert "You are a clerk." not in system(upstream)


def test_fork_session_leaves_the_session_as_it_is(mainspring: Run, upstream: Upstream):
    mainspring("run", "one", **upstream.variables)
    for form in (("run", "two"), ("-p", "two")):
        [first, *_] = lines(mainspring("log", "ls", "--json").stdout)
        assert mainspring(*form, "-c", "--fork-session", **upstream.variables).returncode == 0
        after = {line["id"]: line for line in lines(mainspring("log", "ls", "--json").stdout)}
        assert after[first["id"]] == first


def lines(output: str) -> list[dict[str, Any]]:
    return [json.loads(line) for line in output.splitlines()]


def test_chat_has_the_same_options(chat: Chat, upstream: Upstream, place: Path):
    (place / "b.txt").write_text("secret")
    for _ in range(2):
        upstream.says(call("read", file_path="b.txt"))
        upstream.says("So.")
    with chat("--disallowedTools", "Read", "--append-system-prompt", "Be terse.") as terminal:
        terminal.type("go\n")
        terminal.expect("So.")
        terminal.type("/clear\n")
        terminal.expect("a new session begins")
        terminal.type("go\n")
        terminal.expect("So.")
        terminal.type("/exit\n")
        assert terminal.wait() == 0
    assert "secret" not in json.dumps(upstream.requests)
    assert "Be terse." in system(upstream)


@pytest.mark.parametrize(
    ("arguments", "problem"),
    [
        (("run", "go", "--fork-session"), "needs --resume or --continue"),
        (("chat", "--fork-session"), "needs --resume or --continue"),
        (("-p", "go", "--json"), "--output-format json"),
        (("run", "go", "--include-partial-messages"), "needs --output-format stream-json"),
        (("run", "go", "--verbose"), "needs --output-format stream-json"),
        (("-p", "go", "--permission-prompt-tool", "stdio"), "needs --input-format stream-json"),
        (("run", "go", "--permission-prompt-tool", "stdio"), "needs --input-format stream-json"),
        (("run", "go", "--max-iterations", "2"), "needs --outcome"),
        (("-p", "go", "--max-iterations", "2"), "needs --outcome"),
        (("run", "-c", "--outcome", "rubric.md"), "needs PROMPT"),
        (("run", "go", "--tools", "Read,Wirte"), "no built-in tool Wirte"),
        (("run", "go", "--allowedTools", "Bash("), "parenthesis"),
        (("run", "go", "--workspace", "nowhere"), "there is no such folder"),
        (("chat", "--workspace", "nowhere"), "there is no such folder"),
        (("run", "go", "-c", "--workspace", "other"), "and keeps it"),
        (("-p", "go", "-c", "--workspace", "other"), "and keeps it"),
        (("run", "go", "-c", "--agent", "other"), "and keeps it"),
    ],
)
def test_an_option_without_effect_is_refused_before_anything_runs(
    arguments: tuple[str, ...], problem: str, mainspring: Run, upstream: Upstream, place: Path
):
    (place / "other").mkdir()
    (place / "rubric.md").write_text("- It is short.\n")
    mainspring("run", "first", **upstream.variables)
    before = mainspring("log", "ls", "--json").stdout
    upstream.requests.clear()
    result = mainspring(*arguments, **upstream.variables)
    assert (result.returncode in (1, 2), problem in result.stderr) == (True, True), result.stderr
    assert upstream.requests == []
    assert mainspring("log", "ls", "--json").stdout == before
