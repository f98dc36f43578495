"""Screens of chat in windows of 80 and 40 columns: diffs, outputs, the transcript, commands in the
background, set-up commands, notices, and the plain mode for screen readers."""

import signal
import threading
from pathlib import Path

import pytest
from rich.cells import cell_len
from tests.cli.terminal import Chat, at_terminal
from tests.cli.upstream import Upstream, call


@pytest.mark.parametrize("columns", [80, 40])
def test_an_edit_shows_its_diff_and_a_long_output_its_beginning(
    columns: int, upstream: Upstream, place: Path, environ: dict[str, str]
):
    upstream.says(call("write", file_path="a.txt", content="one\ntwo"))
    upstream.says(call("bash", command="seq 1 200"))
    upstream.says("Counted.")
    env = {**environ, **upstream.variables}
    with at_terminal("chat", "--mode", "acceptEdits", cwd=place, env=env, columns=columns) as shown:
        shown.expect("> ")
        shown.type("count\r")
        shown.expect("  +one\n  +two")
        shown.expect("  5\n  … 195 more lines (Ctrl-O)")
        shown.expect("Counted.")
        shown.watch("1 turn" if columns > 80 else "3 turns")
        assert all(cell_len(row) <= columns for row in shown.screen(columns))
        shown.type("\x0f")  # Ctrl-O
        shown.watch("Ctrl-O leaves" if columns == 80 else "lines ·")
        window = "\n".join(shown.screen(columns))
        assert "\n  200\n" in window, "the transcript has the whole output"
        shown.type("q")
        shown.type("/exit\r")
        assert shown.wait() == 0


def test_ctrl_b_puts_a_command_into_the_background_and_its_output_is_sent_later(
    chat: Chat, upstream: Upstream, place: Path
):
    with chat() as terminal:
        terminal.type("!echo begun; until test -e go; do sleep 0.05; done; echo finished\r")
        terminal.expect("begun\n")
        terminal.type("\x02")  # Ctrl-B
        terminal.expect("continues in the background")
        terminal.type("/bashes\r")
        terminal.expect("  runs")
        (place / "go").touch()
        terminal.expect("ended with status 0")
        terminal.type("and?\r")
        terminal.expect("all I know")
        assert "finished" in str(upstream.requests[-1]["messages"])


def test_commands_of_the_set_up_say_what_applies_and_change_the_session(
    chat: Chat, upstream: Upstream, place: Path
):
    (place / "shared").mkdir()
    with chat() as terminal:
        for typed, shown in (
            ("/config", "mode of new sessions"),
            ("/permissions", "only the mode decides"),
            ("/hooks", "no hooks apply here"),
            ("/todos", "no tasks on its list"),
            ("/effort nonsense", "effort is one of"),
            ("/effort high", "effort high from the next message on"),
            ("/output-style nonsense", "there is no output style"),
            ("/add-dir shared", "send a message first"),
            ("/usage", "nothing yet"),
            ("/vim", "keys of vi"),
            ("/vim", "keys of Emacs"),
        ):
            terminal.type(f"{typed}\r")
            terminal.expect(shown)
        terminal.type("/review the tests\r")
        terminal.expect("all I know")
        assert "change nothing. the tests" in str(upstream.requests[-1]["messages"])
        terminal.type("/add-dir nowhere\r")
        terminal.expect("there is no such folder")
        terminal.type("/add-dir shared\r")
        terminal.expect("file tools may work in")


def test_a_screen_reader_gets_lines_that_never_change(
    upstream: Upstream, place: Path, environ: dict[str, str]
):
    upstream.says("Good day.")
    env = {**environ, **upstream.variables, "MAINSPRING_SCREEN_READER": "1"}
    with at_terminal("chat", cwd=place, env=env) as terminal:
        terminal.expect("> ")
        terminal.type("hello\r")
        terminal.expect("Good day.")
        terminal.expect("> ")
        terminal.type("/exit\r")
        assert terminal.wait() == 0
        moving = ("\x1b[2K", "\x1b[J", "\x1b[?2026h", "\x1b[1A", "\x1b[?25l")
        assert not [code for code in moving if code in terminal.raw]


def test_output_of_others_does_not_tear_the_line_that_is_typed(chat: Chat, upstream: Upstream):
    held = threading.Event()
    upstream.says("First. ", held, "\n\n", "".join(f"line {n}\n\n" for n in range(300)))
    with chat() as terminal:
        terminal.type("go\r")
        terminal.watch("First.")
        terminal.type("half a thought")
        terminal.watch("> half a thought")
        held.set()
        terminal.expect("1 turn")
        terminal.watch("> half a thought")
        rows = terminal.text.splitlines()
        assert [row for row in rows if row.startswith("line ")] == [f"line {n}" for n in range(300)]
        assert sum("half a thought" in row for row in rows) == 1
        terminal.resize(60)
        terminal.type("\x0c!")  # Ctrl-L draws the screen again
        terminal.watch("> half a thought!")


@pytest.mark.parametrize("columns", [80, 40])
def test_the_welcome_says_in_five_lines_what_applies_and_what_will_not_work(
    columns: int, upstream: Upstream, place: Path, environ: dict[str, str]
):
    settings = place / ".claude" / "settings.json"
    settings.parent.mkdir()
    settings.write_text('{"permissions": {"allow": ["Bash(make:*)"], "deny": ["Read(secret)"]}}')
    env = {**environ, **upstream.variables}
    with at_terminal("chat", cwd=place, env=env, columns=columns) as terminal:
        terminal.expect("problems")
        terminal.expect("> ")
        rows = [row for row in terminal.screen(columns) if row]
        labels = [row.split()[0] for row in rows[:5]]
        assert labels == ["model", "folder", "rules", "servers", "problems"]
        assert all(cell_len(row) <= columns for row in rows)
        assert rows[1].endswith("project")
        assert "not trusted · 1 rule" in rows[2]
        assert "no MCP servers" in rows[3]
        assert "mainspring policy trust" in terminal.text, "how to fix it is never cut off"
        terminal.type("hello\r")
        terminal.expect("all I know")
        assert terminal.text.count("problems") == 1
        terminal.type("/exit\r")
        assert terminal.wait() == 0


def test_an_error_that_is_not_ours_is_one_line_and_the_chat_goes_on(chat: Chat, tmp_path: Path):
    work = tmp_path / "work"
    work.mkdir()
    with chat("--workspace", str(work)) as terminal:
        work.rmdir()
        terminal.type("!ls\r")
        terminal.expect(f"error: {work}: No such file or directory")
        terminal.type("/help\r")
        terminal.expect("what can be typed")
        terminal.type("/exit\r")
        assert terminal.wait() == 0


def test_sigterm_restores_the_terminal(chat: Chat):
    with chat() as terminal:
        assert not terminal.has_echo
        terminal.send_signal(signal.SIGTERM)
        assert terminal.wait() == -signal.SIGTERM
        assert terminal.has_echo
        assert terminal.raw.rstrip().rfind("\x1b[?2004l") > terminal.raw.rfind("\x1b[?2004h")


def test_questions_and_answers_are_shown_as_people_read_them(chat: Chat, upstream: Upstream):
    options = [{"label": "red"}, {"label": "blue"}]
    colour = {"header": "Colour", "question": "Which colour?", "options": options}
    upstream.says(call("ask_user", questions=[colour]))
    upstream.says("Painted.")
    with chat() as terminal:
        terminal.type("paint it\r")
        terminal.expect("your own words: ")
        terminal.type("2\r")
        terminal.expect("ask_user Which colour?")
        terminal.expect("Painted.")
        terminal.type("\x0f")  # Ctrl-O
        terminal.watch("Which colour? blue")
        assert "{'" not in terminal.text
        assert '"answers"' not in terminal.text
        terminal.type("q")
        terminal.type("/exit\r")
        assert terminal.wait() == 0
