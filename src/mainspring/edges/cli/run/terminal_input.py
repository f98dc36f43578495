"""Terminal and standard input: messages and lines, the echo while an agent replies, and piped
text.
"""

from __future__ import annotations

import os
import readline
import select
import signal
import stat
import sys
import termios
from collections.abc import Callable, Generator
from contextlib import contextmanager, suppress
from types import FrameType
from typing import Protocol

from mainspring.core.errors import TooLarge
from mainspring.error_table import with_hints

_FENCE = "```"


class MessageEditor(Protocol):
    async def message(self) -> str: ...


class Keyboard:
    """Reads from standard input. While it reads, it owns the terminal, Ctrl-C included."""

    def __init__(self, *, colour: bool) -> None:
        self._editor: MessageEditor | None = None
        self.is_terminal = sys.stdin.isatty()
        self._colour = colour and self.is_terminal

    def open(self) -> None:
        if not self.is_terminal:
            return
        readline.set_auto_history(False)  # answers to questions are not messages

    def edit_with(self, editor: MessageEditor) -> None:
        """Read messages with this editor, if there is a terminal."""
        self._editor = editor if self.is_terminal else None

    def discard_typed(self) -> None:
        """Discard keys that were typed before a question was asked."""
        if self.is_terminal:
            termios.tcflush(sys.stdin, termios.TCIFLUSH)

    async def message(self) -> str:
        """Read one message. It continues after a line that ends with a backslash, and in an open
        code fence.

        Raises:
            EOFError: the input has ended. KeyboardInterrupt: the user pressed Ctrl-C.
        """
        if self._editor is not None:
            return await self._editor.message()
        lines = [self.line("> ")]
        while _is_continued(lines):
            if lines[-1].endswith("\\"):
                lines[-1] = lines[-1][:-1]
            lines.append(self.line("… "))
        return "\n".join(lines)

    def line(self, prompt: str) -> str:
        """Raises: EOFError, KeyboardInterrupt: see `message`."""
        if not self.is_terminal:
            line = sys.stdin.readline()
            if not line:
                raise EOFError
            return line.rstrip("\n")
        before = signal.signal(signal.SIGINT, signal.default_int_handler)
        try:
            # readline needs marks around codes that take no room, to place the cursor
            return input(f"\x01\x1b[1;32m\x02{prompt}\x01\x1b[0m\x02" if self._colour else prompt)
        finally:
            signal.signal(signal.SIGINT, before)


def _is_continued(lines: list[str]) -> bool:
    fences = sum(line.lstrip().startswith(_FENCE) for line in "\n".join(lines).split("\n"))
    return lines[-1].endswith("\\") or fences % 2 == 1


_LOCAL_MODES = 3
"""The index of the local modes in the result of `tcgetattr`."""


@contextmanager
def pause_echo() -> Generator[Callable[[], None], None, None]:
    """Turn the echo off. The yielded function turns it on again early, before the process ends."""
    if not _owns_terminal():
        yield _do_nothing
        return
    before = termios.tcgetattr(sys.stdin)

    def resume() -> None:
        if _owns_terminal():
            with suppress(termios.error):  # the terminal may be gone
                termios.tcsetattr(sys.stdin, termios.TCSANOW, before)

    def end(signum: int, _frame: FrameType | None) -> None:
        resume()
        signal.signal(signum, signal.SIG_DFL)
        os.kill(os.getpid(), signum)

    paused = [*before]
    paused[_LOCAL_MODES] &= ~termios.ECHO
    is_unhandled = signal.getsignal(signal.SIGTERM) is signal.SIG_DFL
    if is_unhandled:
        signal.signal(signal.SIGTERM, end)
    try:
        termios.tcsetattr(sys.stdin, termios.TCSANOW, paused)
        yield resume
    finally:
        resume()
        if is_unhandled:
            signal.signal(signal.SIGTERM, signal.SIG_DFL)


def _owns_terminal() -> bool:
    """Whether this process may change its terminal; one in the background would be stopped."""
    try:
        return sys.stdin.isatty() and os.tcgetpgrp(sys.stdin.fileno()) == os.getpgrp()
    except (OSError, ValueError):  # no controlling terminal, or standard input is closed
        return False


def _do_nothing() -> None:
    pass


MAX_PIPED_BYTES = 2_000_000


def is_piped() -> bool:
    """Whether standard input is a pipe or a file, rather than a terminal or nothing."""
    try:
        mode = os.fstat(sys.stdin.fileno()).st_mode
    except (OSError, ValueError, AttributeError):  # closed, or not a file at all
        return False
    return stat.S_ISFIFO(mode) or stat.S_ISREG(mode)


def read_piped(seconds: float | None) -> str:
    """Read all of standard input. Blocks. A pipe that is silent for `seconds` counts as empty.

    Raises: TooLarge.
    """
    if seconds is not None and not select.select([sys.stdin], [], [], seconds)[0]:
        return ""
    content = sys.stdin.buffer.read(MAX_PIPED_BYTES + 1)
    if len(content) > MAX_PIPED_BYTES:
        long = TooLarge(f"standard input has more than {MAX_PIPED_BYTES:,} bytes")
        raise with_hints(long, "write it to a file, and name the file in the prompt")
    return content.decode(errors="replace").strip()
