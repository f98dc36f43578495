"""`mainspring chat` at a terminal: lines that go on, commands, Ctrl-C and leaving."""

import json
import threading
from pathlib import Path

from tests.cli.terminal import Chat
from tests.cli.upstream import Upstream, call
from tests.fork_server import Run


def test_ctrl_d_leaves_the_chat_and_the_turns_are_recorded(
    chat: Chat, upstream: Upstream, mainspring: Run, place: Path
):
    upstream.says("Good day.")
    upstream.says("Still here.")
    with chat() as terminal:
        terminal.type("hello\r")
        terminal.expect("Good day.")
        terminal.expect("1 turn · 1.0k in (90% cached), 20 out · $0.00")
        terminal.expect("> ")
        terminal.type("and now?\r")
        terminal.expect("Still here.")
        terminal.expect("> ")
        terminal.type("\x04")
        terminal.expect("continue: mainspring chat --resume ")
        assert terminal.wait() == 0
    [session] = mainspring("sessions", "ls", "--json").stdout.splitlines()
    assert json.loads(session)["turns"] == 2
    assert (place / ".mainspring/chat_history").read_text() == "hello\nand now?\n"


def test_a_message_continues_after_a_backslash_and_inside_an_open_fence(
    chat: Chat, upstream: Upstream
):
    with chat() as terminal:
        terminal.type("first\\\r")
        terminal.expect("… ")
        terminal.type("second\r")
        terminal.expect("all I know")
        terminal.expect("> ")
        assert upstream.last_words() == "first\nsecond"
        for line in ("look:\x1b\r```", "code", "```"):  # Alt-Enter is a new line
            terminal.type(f"{line}\r")
        terminal.expect("all I know")
        assert upstream.last_words() == "look:\n```\ncode\n```"


def test_chat_commands_show_cost_suggest_names_change_the_model_and_exit(
    chat: Chat, upstream: Upstream
):
    with chat() as terminal:
        terminal.type("/cost\r")
        terminal.expect("nothing yet")
        terminal.type("/modle\r")
        terminal.expect("there is no /modle")
        terminal.expect("did you mean /mode or /model?")
        terminal.type("/model nonsense\r")
        terminal.expect("unknown model 'nonsense'")
        terminal.type("/model ollama:other\r")
        terminal.expect("ollama:other answers from here on")
        terminal.type("hello\r")
        terminal.expect("all I know")
        assert upstream.requests[-1]["model"] == "other"
        terminal.type("/cost\r")
        terminal.expect("1 turn, 1.0k in (90% cached), 20 out, $0.00")
        terminal.type("/exit\r")
        assert terminal.wait() == 0


def test_ctrl_c_interrupts_the_reply_and_the_chat_continues(chat: Chat, upstream: Upstream):
    held = threading.Event()
    upstream.says("I was about to ", held)
    upstream.says("Never mind.")
    with chat() as terminal:
        terminal.type("go\r")
        terminal.expect("about to")
        terminal.type("\x03")
        terminal.expect("interrupted")
        terminal.expect("> ")
        held.set()
        terminal.type("sorry\r")
        terminal.expect("Never mind.")


def test_messages_typed_during_a_reply_wait_in_a_queue_and_can_be_taken_back(
    chat: Chat, upstream: Upstream
):
    held = threading.Event()
    upstream.says("I am counting ", held)
    upstream.says("Yes.")
    with chat() as terminal:
        terminal.type("go\r")
        terminal.expect("I am counting")
        terminal.type("are you done?\r")
        terminal.watch("queued: are you done?")
        terminal.type("forget this\r")
        terminal.watch("queued: forget this")
        terminal.type("\x1b[A")  # Up takes it back into the line
        terminal.watch("> forget this")
        terminal.type("\x15and half")  # Ctrl-U clears the line
        terminal.watch("> and half")
        assert len(upstream.requests) == 1
        held.set()
        terminal.expect("1 turn")
        terminal.expect("> are you done?")
        terminal.expect("Yes.")
        terminal.expect("> and half")
        assert upstream.last_words() == "are you done?"
        assert "forget this" not in json.dumps(upstream.requests)


def test_a_message_typed_while_a_tool_runs_is_read_before_the_next_request(
    chat: Chat, upstream: Upstream, place: Path
):
    upstream.says(call("bash", command="until test -e go; do sleep 0.05; done"))
    upstream.says("Only one, then.")
    with chat("--mode", "acceptEdits", "--allowedTools", "Bash") as terminal:
        terminal.type("list two files\r")
        terminal.watch("bash: until")  # the line that shows what it waits for
        terminal.type("only one\r")
        terminal.watch("queued: only one")
        while "queued: only one" in terminal.text:  # it is sent a moment later
            terminal.read()
        (place / "go").touch()
        terminal.expect("> only one")
        terminal.expect("Only one, then.")
        assert "only one" in str(upstream.requests[1]["messages"])


def test_esc_interrupts_and_does_not_swallow_the_next_key(chat: Chat, upstream: Upstream):
    for ending in ("", "b", "\x1b"):
        held = threading.Event()
        upstream.says("I was about to ", held)
        with chat() as terminal:
            terminal.type("go\r")
            terminal.expect("about to")
            terminal.type(f"\x1b{ending}")  # tmux passes both keys on in one piece
            terminal.expect("interrupted")
            held.set()
            upstream.says("Never mind.")
            terminal.type("uni\r")
            terminal.expect("Never mind.")
            assert upstream.last_words().startswith(f"{ending.strip(chr(27))}uni")


def test_shift_tab_cycles_the_modes_before_and_during_a_session(chat: Chat, upstream: Upstream):
    with chat() as terminal:
        terminal.type("\x1b[Z")
        terminal.watch("mode acceptEdits")
        terminal.type("hello\r")
        terminal.expect("all I know")
        terminal.watch("mode acceptEdits · context")
        terminal.type("\x1b[Z")
        terminal.watch("mode plan · context")


def test_ctrl_c_twice_at_the_prompt_exits_with_status_130(chat: Chat):
    with chat() as terminal:
        terminal.type("half a mess")
        terminal.expect("half a mess")
        terminal.press("\x03", until="Ctrl-C again, Ctrl-D or /exit leaves")
        terminal.press("\x03")
        assert terminal.wait() == 130


def test_chat_resumes_an_earlier_session(chat: Chat, upstream: Upstream, mainspring: Run):
    assert mainspring("run", "remember seven", **upstream.variables).returncode == 0
    session = json.loads(mainspring("sessions", "ls", "--json").stdout)["id"]
    with chat("--resume", session[-8:]) as terminal:
        assert "remember seven" in terminal.text
        terminal.type("what was it?\r")
        terminal.expect("all I know")
    assert "remember seven" in [message["content"] for message in upstream.requests[-1]["messages"]]


def test_without_a_terminal_each_input_line_is_a_message(mainspring: Run, upstream: Upstream):
    upstream.says("One.")
    upstream.says("Two.")
    result = mainspring("chat", stdin="a\nb\n", **upstream.variables)
    assert (result.returncode, result.stdout) == (0, "One.\nTwo.\n")


def test_the_guide_answers_from_the_documentation_outside_the_session(
    mainspring: Run, upstream: Upstream, place: Path
):
    (place / "AGENTS.md").write_text("Be brief.\n")
    upstream.says("hello")
    upstream.says(call("knowledge_search", query="allow a bash command without asking"))
    upstream.says("Add a rule [permissions.md].")
    upstream.says("bye")
    typed = "hi\n/guide How do I allow a command for good?\n/guide\n/help\nthanks\n"
    done = mainspring("chat", stdin=typed, **upstream.variables)
    assert "Add a rule [permissions.md]." in done.stdout, done.stderr
    hi, asked, answered, thanks = upstream.requests
    instructions = json.dumps(asked["messages"][0])
    assert "model ollama:test" in instructions
    assert "AGENTS.md" in instructions, "it knows what is set up here"
    quotes = json.dumps(answered["messages"][-2:])
    assert "permissions.md" in quotes
    for request in (hi, thanks):
        assert "guide of Mainspring" not in json.dumps(request)
        assert "knowledge_search" not in json.dumps(request["tools"])
    assert {tool["function"]["name"] for tool in asked["tools"]}.isdisjoint({"bash", "write"})
    assert "/guide QUESTION" in done.stderr
    assert "error: ask a question" in done.stderr
