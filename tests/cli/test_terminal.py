"""What changes when somebody is looking: colours, cutting, questions."""

import fcntl
import os
import pty
import struct
import termios
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple, TypeAlias

import pytest
from rich.cells import cell_len
from tests.fork_server import Child, Order


class ScreenResult(NamedTuple):
    text: str
    status: int


Look: TypeAlias = Callable[..., ScreenResult]


@pytest.fixture
def run_at_terminal(place: Path, environ: dict[str, str]) -> Look:
    """Run the command at a terminal of 80 columns and type the answer when it asks."""

    def run(*arguments: str, answer: str = "", **variables: str) -> ScreenResult:
        ours, theirs = pty.openpty()
        fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", 24, 80, 0, 0))
        order = Order(arguments=arguments, cwd=str(place), env={**environ, **variables})
        child = Child(order, theirs, theirs, theirs)
        os.close(theirs)
        os.write(ours, answer.encode())
        text = read_all(ours)
        os.close(ours)
        return ScreenResult(text, child.wait())

    return run


def read_all(terminal: int) -> str:
    text = b""
    while True:
        try:
            text += os.read(terminal, 65536)
        except OSError:  # how Linux says that the other end is closed
            return text.decode().replace("\r\n", "\n")


def test_a_terminal_gets_colors_unless_no_color_is_set(run_at_terminal: Look, session_id: str):
    assert "\x1b[" in run_at_terminal("log", "show", session_id).text
    assert "\x1b" not in run_at_terminal("log", "show", session_id, NO_COLOR="1").text
    assert "\x1b" not in run_at_terminal("log", "show", session_id, "--json").text


def test_no_line_is_wider_than_the_terminal(run_at_terminal: Look, session_id: str, fork_id: str):
    for arguments in (("ls",), ("show", session_id), ("show", fork_id), ("search", "clock")):
        assert (
            max(map(cell_len, run_at_terminal("log", *arguments, NO_COLOR="1").text.splitlines()))
            <= 80
        )


def test_a_narrow_list_shows_the_end_of_session_ids(
    run_at_terminal: Look, session_id: str, fork_id: str
):
    _, first, second = run_at_terminal("log", "ls", NO_COLOR="1").text.splitlines()
    assert first.split()[0] == fork_id[-8:]
    assert session_id[-8:] in first
    assert second.split()[0] == session_id[-8:]


def test_rm_at_a_terminal_deletes_only_after_yes(run_at_terminal: Look, session_id: str):
    kept = run_at_terminal("log", "rm", session_id, answer="n\n")
    assert kept.status == 1
    assert "Mend the flaky test" in kept.text
    assert "nothing was deleted" in kept.text
    gone = run_at_terminal("log", "rm", session_id, answer="y\n")
    assert gone.status == 0
    assert f"deleted {session_id}" in gone.text
