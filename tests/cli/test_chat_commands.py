"""`mainspring chat` at a terminal: subagents as a tree, plans that are approved, slash commands."""

import json
import shutil
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from tests.abilities import require_sandbox
from tests.cli.terminal import Chat
from tests.cli.upstream import Part, Upstream, call
from tests.fork_server import Run
from tests.mcp.peers import NOTES_SERVER
from tests.written_files import write_file


def request_text(request: dict[str, Any]) -> str:
    """All that a model was told in a request."""
    return json.dumps(request["messages"])


def supervisor(go_on: threading.Event) -> Callable[[dict[str, Any]], tuple[Part, ...]]:
    """An agent that calls two; the second one touches a file, the first waits for the test."""

    def answer(request: dict[str, Any]) -> tuple[Part, ...]:
        said, has_results = request_text(request), '"role": "tool"' in request_text(request)
        if "part one" in said and "look at" not in said:
            return (go_on, "CHILD WORDS one.")
        if "part two" in said and "look at" not in said:
            if not has_results:
                return (call("bash", command="touch made.txt"),)
            return ("CHILD WORDS two.",)
        if has_results:
            return ("Both are done.",)
        return tuple(
            call("agent", description=f"look at {name}", prompt=f"part {name}", subagent_type=kind)
            for name, kind in (("one", "explore"), ("two", "general"))
        )

    return answer


def test_the_subagent_tree_shows_which_subagent_asks_for_approval(
    chat: Chat, upstream: Upstream, place: Path
):
    go_on = threading.Event()
    upstream.otherwise = supervisor(go_on)
    with chat(NO_COLOR="1") as terminal:
        terminal.type("go\r")
        terminal.watch("├ explore  thinking · 0 turns, $0.00 · look at one")
        terminal.watch("└ general  asks: bash · 1 turn, $0.00 · look at two")
        terminal.watch("2 subagents, 1 at work")
        terminal.resize(60)  # what is on the screen stays there; it goes on below
        go_on.set()
        shown = terminal.expect("Allow general > bash?")
        assert shown.count("├ explore  done · 1 turn") == 1
        assert "2 subagents · 2 turns, $0.00" in shown
        terminal.expect("[y/")
        terminal.type("y\r")
        shown = terminal.expect("Both are done.")
        assert "└ general  done · 2 turns" in shown
        assert shown.count("general") == 1  # what was drawn before is gone
        terminal.expect("> ")
        assert "CHILD WORDS" not in terminal.text
        rows = [row.rstrip() for row in terminal.screen(100)]
        assert "> go" in rows, "what was asked stays"
        assert "\x1b[2m" not in terminal.raw
        assert "\x1b[1m" not in terminal.raw
        terminal.type("/agents\r")
        terminal.expect("called in this session: 2")
        terminal.expect("look at two")
    assert (place / "made.txt").exists()


def test_without_a_terminal_subagents_are_printed_as_plain_lines(
    mainspring: Run, upstream: Upstream
):
    def answer(request: dict[str, Any]) -> tuple[Part, ...]:
        if "part one" in request_text(request) and "look at" not in request_text(request):
            return ("CHILD WORDS.",)
        if '"role": "tool"' in request_text(request):
            return ("It is done.",)
        return (call("agent", description="look at", prompt="part one", subagent_type="explore"),)

    upstream.otherwise = answer
    result = mainspring("run", "go", **upstream.variables)
    assert (result.returncode, result.stdout) == (0, "It is done.\n")
    lines = result.stderr.splitlines()
    assert lines[:3] == [
        "explore: started · look at",
        "explore: done, 1 turn, $0.00 · look at",
        "1 subagent · 1 turn, $0.00",
    ]
    assert "\x1b" not in result.stderr


def test_a_plan_is_shown_revised_and_carried_out_after_approval(
    chat: Chat, upstream: Upstream, place: Path
):
    upstream.says("What is it for?")
    upstream.says(call("write", file_path="a.txt", content="too early"))
    upstream.says(call("exit_plan_mode", plan="First a.txt, then b.txt."))
    upstream.says(call("exit_plan_mode", plan="Only a.txt."))
    upstream.says("As you like.")
    upstream.says(call("exit_plan_mode", plan="Now a.txt."))
    upstream.says(call("write", file_path="a.txt", content="as planned"))
    upstream.says(call("exit_plan_mode", plan="once more"))
    upstream.says("It is written.")
    with chat() as terminal:
        terminal.type("/plan write it\r")
        terminal.expect("What is it for?")
        terminal.expect("mode plan: nothing is changed; /mode default leaves it")
        terminal.expect("> ")
        assert "exit_plan_mode" in request_text(upstream.requests[0])
        terminal.type("for fun\r")
        terminal.expect("First a.txt")
        terminal.expect("Carry out this plan?")
        terminal.expect("what to change: ")
        assert not (place / "a.txt").exists()
        terminal.type("no b.txt\r")
        terminal.expect("Only a.txt.")
        assert "no b.txt" in request_text(upstream.requests[-1])
        terminal.expect("what to change: ")
        terminal.type("n\r")
        terminal.expect("still in plan mode")
        terminal.expect("As you like.")
        terminal.expect("> ")
        terminal.type("now\r")
        terminal.expect("what to change: ")
        terminal.type("e\r")
        terminal.expect("approved; mode acceptEdits")
        terminal.expect("It is written.")
        terminal.expect("> ")
        assert "The plan is approved; carry it out." in request_text(upstream.requests[-1])
        assert "The permission mode is not plan" in request_text(upstream.requests[-1])
        assert terminal.text.count("Carry out this plan?") == 3
        terminal.type("/mode\r")
        terminal.expect("mode acceptEdits")
    assert (place / "a.txt").read_text() == "as planned"


def test_a_plan_without_a_terminal_prints_the_command_that_carries_it_out(
    mainspring: Run, upstream: Upstream
):
    upstream.says("First this, then that.")
    result = mainspring("run", "--mode", "plan", "think", **upstream.variables)
    assert (result.returncode, result.stdout) == (0, "First this, then that.\n")
    [line] = [s for s in result.stderr.splitlines() if "carry the plan out" in s]
    session = line.split("--resume ")[1].split()[0]
    assert line.endswith(f'mainspring run --resume {session} --mode default "go"')
    again = mainspring("run", "--resume", session, "--mode", "default", "go", **upstream.variables)
    assert again.returncode == 0
    assert "carry the plan out" not in again.stderr


def test_chat_clears_forks_and_compacts_sessions(chat: Chat, upstream: Upstream, mainspring: Run):
    with chat() as terminal:
        for command in ("/fork", "/compact"):
            terminal.type(f"{command}\r")
            terminal.expect("nothing yet")
        terminal.type("remember seven\r")
        terminal.expect("all I know")
        terminal.expect("> ")
        terminal.type("/fork\r")
        terminal.expect("forked: this is session ")
        terminal.type("and eight\r")
        terminal.expect("all I know")
        terminal.expect("> ")
        assert "remember seven" in request_text(upstream.requests[-1])
        terminal.type("/compact the numbers\r")
        terminal.expect("older messages will be summarized")
        terminal.expect("2 turns")
        terminal.expect("> ")
        terminal.type("/clear\r")
        terminal.expect("a new session begins; the previous one: mainspring chat --resume ")
        terminal.type("what was it?\r")
        terminal.expect("all I know")
        assert "remember seven" not in request_text(upstream.requests[-1])
        terminal.expect("> ")
        terminal.type("/exi")
        terminal.watch("/exit  leave")  # the list of completions
        terminal.type("\t")
        terminal.watch("> /exit")
        terminal.type("\r")
        assert terminal.wait() == 0
    assert len(mainspring("sessions", "ls", "--json").stdout.splitlines()) == 3


def test_a_rating_is_logged_and_not_sent_to_the_model(
    chat: Chat, upstream: Upstream, mainspring: Run
):
    with chat() as terminal:
        terminal.type("/good\r")
        terminal.expect("nothing yet")
        terminal.type("hello\r")
        terminal.expect("all I know")
        terminal.expect("> ")
        terminal.type("/bad not what I meant\r")
        terminal.expect("rated bad: the message")
        terminal.expect("> ")
        lines = mainspring("log", "export", "last").stdout.splitlines()
        logged = [event for event in map(json.loads, lines) if "payload" in event]
        [rated] = [event for event in logged if event["payload"]["type"] == "feedback.given"]
        message = next(event for event in logged if event["payload"]["type"] == "agent.message")
        assert rated["payload"]["subject"] == {"type": "message", "id": message["id"]}
        assert rated["payload"]["text"] == "not what I meant"
        assert rated["sender"]["kind"] == "person"
        terminal.type("and now?\r")
        terminal.expect("all I know")
        terminal.expect("> ")
        assert "not what I meant" not in request_text(upstream.requests[-1])


def test_unknown_slash_commands_are_not_sent_to_the_model(
    chat: Chat, upstream: Upstream, place: Path
):
    (place / ".claude/commands").mkdir(parents=True)
    greet = "---\ndescription: Greets.\nargument-hint: NAME\n---\nSay hello to $ARGUMENTS."
    (place / ".claude/commands/greet.md").write_text(greet)
    with chat() as terminal:
        terminal.type("/help\r")
        terminal.expect("/greet NAME")
        terminal.expect("Greets.")
        terminal.type("/gret Ada\r")
        terminal.expect("there is no /gret: nothing was sent. did you mean /greet?")
        assert upstream.requests == []
        terminal.type("/greet Ada\r")
        terminal.expect("all I know")
        terminal.expect("> ")
        assert "Say hello to Ada." in request_text(upstream.requests[-1])
        terminal.type("//greet\r")
        terminal.expect("all I know")
        assert upstream.last_words() == "/greet"


def test_run_expands_an_agent_command_and_titles_the_session_as_typed(
    mainspring: Run, upstream: Upstream, place: Path
):
    write_file(place / ".claude/commands/greet.md", "Say hello to $ARGUMENTS.")
    ran = mainspring("run", "/greet Ada", **upstream.variables)
    assert ran.returncode == 0, ran.stderr
    assert "Say hello to Ada." in request_text(upstream.requests[-1])
    mainspring("run", "/etc/hosts is wrong", **upstream.variables)
    assert upstream.last_words() == "/etc/hosts is wrong"
    listed = mainspring("sessions", "ls", "--json").stdout.splitlines()
    assert {json.loads(line)["title"] for line in listed} == {"/greet Ada", "/etc/hosts is wrong"}


@pytest.mark.slow
def test_mcp_servers_ask_with_a_form_and_can_be_listed_and_reconnected(
    chat: Chat, mainspring: Run, upstream: Upstream, place: Path
):
    require_sandbox()
    shutil.copy(NOTES_SERVER.with_name("asking_server.py"), place / "server.py")
    settings = place / ".claude/settings.json"
    write_file(settings, json.dumps({"permissions": {"allow": ["mcp__air"]}}))
    assert mainspring("mcp", "add", "air", "--", "python3", "server.py", "legacy").returncode == 0
    assert mainspring("policy", "trust").returncode == 0
    upstream.says(call("mcp__air__book"))
    upstream.says("It is booked.")
    upstream.says("Good day.")
    steps = [
        ("/mcp", "they are connected with the first message"),
        ("book", "Which seat?"),
        ("y", "aisle, window"),
        ("floor", "one of aisle, window"),
        ("aisle", "It is booked."),
        ("/mcp", "connected"),
        ("/mcp tools air", "mcp__air__grow"),
        ("/mcp reconnect air", "air is connected"),
        ("/mcp__air__say_hello Ada", "Good day."),
        ("/mcp disable air", "air is disabled"),
    ]
    with chat(NO_COLOR="1") as terminal:
        for keys, words in steps:
            terminal.type(f"{keys}\r")
            terminal.expect(words)
            terminal.expect("[y/n] " if keys == "book" else "> ")
    assert "'content': {'seat': 'aisle'}" in request_text(upstream.requests[1])
    assert "Greet {'who': 'Ada'}" in request_text(upstream.requests[2])


def test_chat_lists_edits_and_disables_memory(
    upstream: Upstream, chat: Chat, mainspring: Run, place: Path
):
    (place / "edit.sh").write_text('#!/bin/sh\necho "We release on Fridays." > "$1"\n')
    (place / "edit.sh").chmod(0o700)
    path = "reference_we_release_on_thursdays.md"
    steps = (
        ("/memory", "there are no memories here"),
        ("/memory add We release on Thursdays.", f"remembered {path}"),
        ("/memory search which day do we release", "We release on Thursdays."),
        ("When do we release?", "That is all I know."),
        (f"/memory edit {path}", "changed"),
        (f"/memory show {path}", "We release on Fridays."),
        ("/memory off", "memory is off from the next message on"),
        ("On which day is our release?", "That is all I know."),
        (f"/memory forget {path}", "forgotten"),
        ("/memory shows", "error: /memory [ls], show"),
    )
    with chat(EDITOR=str(place / "edit.sh")) as terminal:
        for typed, answer in steps:
            terminal.type(f"{typed}\r")
            terminal.expect(answer)
            terminal.expect("> ")
        terminal.type("/exit\r")
        assert terminal.wait() == 0
    first, *_, last = upstream.requests
    assert "> We release on Thursdays." in request_text(first)
    assert "Fridays" not in request_text(last)
    assert mainspring("run", "-c", "Hello", **upstream.variables).returncode == 0
    names = [json.dumps(request["tools"]) for request in (first, last, upstream.requests[-1])]
    assert ["memory_search" in text for text in names] == [True, False, False]
