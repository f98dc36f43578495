"""Terminal and standard input: messages and answers, the echo while an agent replies, and piped
text.
"""

from __future__ import annotations

import os
import select
import signal
import stat
import sys
import termios
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Generator, Sequence
from contextlib import asynccontextmanager, contextmanager, suppress
from itertools import chain, repeat
from pathlib import Path
from types import FrameType
from typing import TYPE_CHECKING

import anyio

from mainspring.config import Settings
from mainspring.core.errors import TooLarge
from mainspring.core.lazy_module import LazyModule
from mainspring.edges.cli.render.markdown_stream import LiveArea
from mainspring.edges.cli.render.printing import Screen, TerminalCode, print_note
from mainspring.error_table import with_hints
from mainspring.log.task_groups import run_in_background

if TYPE_CHECKING:
    from mainspring.edges.cli.run import input_loop
    from mainspring.edges.cli.run.input_loop import InputLoop
    from mainspring.edges.cli.run.line_completion import EditorSources
else:
    input_loop = LazyModule("mainspring.edges.cli.run.input_loop")  # only at a terminal

_FENCE = "```"
_USUAL_SCREEN = TerminalCode("\x1b[?2026l\x1b[?1049l\x1b[?2004l\x1b[?25h\r\x1b[J")
"""Shows updates and the cursor, leaves the other screen and marked pastes, erases our rows."""
ESCAPE = "escape"
_MAX_PRESSES = 16
"""Presses that are remembered until somebody looks; more say the same."""


class Keyboard:
    """Reads messages and answers: through the input loop at a terminal, line by line from a pipe,
    from a terminal that cannot redraw, and for a screen reader."""

    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        self.is_terminal = sys.stdin.isatty()
        """Whether a person types."""
        self.loop: InputLoop | None = None
        """The input loop, while `opened` holds the terminal."""

    @property
    def can_redraw(self) -> bool:
        return self.is_terminal and Screen(self._settings, stderr=True).can_redraw

    @asynccontextmanager
    async def opened(
        self, sources: EditorSources | None, history: Path | None
    ) -> AsyncGenerator[None, None]:
        """Holds the terminal in the block, if it can be redrawn."""
        if not self.can_redraw:
            yield
            return
        loop = input_loop.InputLoop(sources, history, colour=self._settings.color)
        before = termios.tcgetattr(sys.stdin)

        def restore() -> None:
            if _owns_terminal():
                with suppress(termios.error, OSError):  # the terminal may be gone
                    loop.above.signal(_USUAL_SCREEN)
                    termios.tcsetattr(sys.stdin, termios.TCSANOW, before)

        with loop.above.redirected(), _restored_on_end(restore):
            async with run_in_background(loop.run):
                self.loop = loop
                try:
                    yield
                finally:
                    self.loop = None

    @property
    def area(self) -> LiveArea | None:
        """Where rows are drawn while the input loop holds the terminal."""
        return self.loop

    async def message(self) -> str:
        """Read one message. It continues after a line that ends with a backslash, and in an open
        code fence.

        Raises:
            EOFError: the input has ended. KeyboardInterrupt: the user pressed Ctrl-C.
        """
        if self.loop is not None:
            line = await self.loop.message()
            notes = Screen(self._settings, stderr=True)
            for mark, text in zip(chain(["> "], repeat("… ")), line.strip().split("\n")):  # noqa: B905
                notes.paragraph((mark, "bold green"), (text, ""))
            return self.loop.unfolded(line)
        lines = [self._line("> ")]
        while _is_continued(lines):
            if lines[-1].endswith("\\"):
                lines[-1] = lines[-1][:-1]
            lines.append(self._line("… "))
        return "\n".join(lines)

    async def ask(self, prompt: str) -> str | None:
        """The answer to a question; `None` if the user leaves it."""
        if self.loop is not None:
            answer = await self.loop.ask(prompt)
            notes = Screen(self._settings, stderr=True)
            notes.paragraph((prompt, "bold yellow"), (answer or "", ""))  # it stays to be read
            return answer
        if self.can_redraw:
            self._discard_typed()
            async with self.opened(None, None):
                return await self.ask(prompt)
        try:
            return self._line(prompt)
        except (EOFError, KeyboardInterrupt):
            print_note(self._settings, "")
            return None

    async def choose(self, prompt: str, rows: Sequence[str]) -> int | None:
        """The index of the row that the user chooses; `None` if the user leaves."""
        if self.loop is not None:
            return await self.loop.choose(prompt, rows)
        for number, row in enumerate(rows, 1):
            print_note(self._settings, f"{number:>3}  {row}", "")
        answer = (await self.ask(prompt) or "").strip()
        return int(answer) - 1 if answer.isdigit() and 1 <= int(answer) <= len(rows) else None

    def notify(self, text: str) -> None:
        """Ring, and show a notice where the terminal can (OSC 9): the user may be elsewhere."""
        if not self._settings.has_notices or not self.can_redraw:
            return
        code = TerminalCode(f"\a\x1b]9;{text}\x07")
        if self.loop is not None:
            self.loop.above.signal(code)
        else:
            Screen(self._settings, stderr=True).raw(code)

    @asynccontextmanager
    async def suspended(self) -> AsyncGenerator[None, None]:
        """Gives the terminal to another program."""
        if self.loop is None:
            yield
            return
        async with self.loop.suspended():
            yield

    def _discard_typed(self) -> None:
        """Discard keys that were typed before a question was asked."""
        termios.tcflush(sys.stdin, termios.TCIFLUSH)

    def _line(self, prompt: str) -> str:
        """Raises: EOFError, KeyboardInterrupt: see `message`."""
        if not self.is_terminal:
            line = sys.stdin.readline()
            if not line:
                raise EOFError
            return line.rstrip("\n")
        before = signal.signal(signal.SIGINT, signal.default_int_handler)
        try:
            return input(prompt)
        finally:
            signal.signal(signal.SIGINT, before)


@contextmanager
def interrupts(keyboard: Keyboard | None) -> Generator[AsyncIterator[object]]:
    """Each press of Ctrl-C, and in the input loop of Esc as `ESCAPE`."""
    if keyboard is None or keyboard.loop is None:
        with anyio.open_signal_receiver(signal.SIGINT) as presses:
            yield presses
        return
    send, receive = anyio.create_memory_object_stream[object](_MAX_PRESSES)

    def take(key: str) -> None:
        with suppress(anyio.WouldBlock):
            send.send_nowait(key)

    with send, receive, keyboard.loop.interrupts_to(take):
        yield receive


def _is_continued(lines: list[str]) -> bool:
    fences = sum(line.lstrip().startswith(_FENCE) for line in "\n".join(lines).split("\n"))
    return lines[-1].endswith("\\") or fences % 2 == 1


_LOCAL_MODES = 3
"""The index of the local modes in the result of `tcgetattr`."""


@contextmanager
def pause_echo(keyboard: Keyboard | None) -> Generator[Callable[[], None], None, None]:
    """Turn the echo off, unless the input loop has done so. The yielded function turns it on again
    early, before the process ends."""
    if (keyboard is not None and keyboard.loop is not None) or not _owns_terminal():
        yield _do_nothing
        return
    before = termios.tcgetattr(sys.stdin)

    def resume() -> None:
        if _owns_terminal():
            with suppress(termios.error):  # the terminal may be gone
                termios.tcsetattr(sys.stdin, termios.TCSANOW, before)

    paused = [*before]
    paused[_LOCAL_MODES] &= ~termios.ECHO
    with _restored_on_end(resume):
        try:
            termios.tcsetattr(sys.stdin, termios.TCSANOW, paused)
            yield resume
        finally:
            resume()


@contextmanager
def _restored_on_end(restore: Callable[[], None]) -> Generator[None]:
    """Restore the terminal before SIGTERM ends the process."""
    if signal.getsignal(signal.SIGTERM) is not signal.SIG_DFL:
        yield
        return

    def end(signum: int, _frame: FrameType | None) -> None:
        restore()
        signal.signal(signum, signal.SIG_DFL)
        os.kill(os.getpid(), signum)

    signal.signal(signal.SIGTERM, end)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, signal.SIG_DFL)


def _owns_terminal() -> bool:
    """Whether this process may change its terminal; one in the background would be stopped."""
    try:
        return sys.stdin.isatty() and os.tcgetpgrp(sys.stdin.fileno()) == os.getpgrp()
    except (OSError, ValueError):  # no controlling terminal, or standard input is closed
        return False


def _do_nothing() -> None:
    pass


MAX_PIPED_BYTES = 2_000_000  # about 500,000 tokens; more is refused


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
