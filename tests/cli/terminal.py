"""The command at a terminal of its own: what it shows is read, keys are pressed."""

import fcntl
import os
import pty
import select
import signal
import struct
import termios
from collections.abc import Callable, Generator, Mapping
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from typing import Any, TypeAlias

import pyte
from tests.fork_server import Child, Order

_SECONDS = 60
_ROWS = 40
_UNWRAPPED_COLUMNS = 2000
_HISTORY_ROWS = 100_000
_CURSOR_QUESTION = b"\x1b[6n"
"""Where is the cursor? A terminal answers."""


class Shown:
    """A terminal's screen and what has scrolled off it. Rows that are wider than the terminal are
    not wrapped, so that tests find their words."""

    def __init__(self, columns: int = _UNWRAPPED_COLUMNS, rows: int = _ROWS) -> None:
        self._screen = pyte.HistoryScreen(columns, rows, history=_HISTORY_ROWS, ratio=0.001)
        self._stream = pyte.ByteStream(self._screen)

    def feed(self, output: bytes) -> None:
        self._stream.feed(output)

    def cursor_answer(self) -> bytes:
        cursor: Any = self._screen.cursor  # Any: pyte has no types
        return f"\x1b[{cursor.y + 1};{cursor.x + 1}R".encode()

    @property
    def rows(self) -> list[str]:
        """All rows, the oldest first, without spaces at their ends; the last one has the cursor, or
        is not empty."""
        screen: Any = self._screen  # Any: pyte has no types
        above = [_row_text(line, 0) for line in screen.history.top]
        cursor = screen.cursor
        visible = [
            _row_text(screen.buffer[row], cursor.x if row == cursor.y else 0)
            for row in range(screen.lines)
        ]
        while len(visible) > cursor.y + 1 and not visible[-1]:
            visible.pop()
        return above + visible


def _row_text(line: Any, least: int) -> str:  # noqa: ANN401 (pyte has no types)
    cells = max([index for index, cell in line.items() if cell.data != " "], default=-1) + 1
    text = "".join(line[index].data for index in range(cells))
    return text.ljust(least)


class Terminal:
    def __init__(self, child: Child, handle: int, path: str) -> None:
        self._child = child
        self._handle = handle
        self._path = path
        self._raw = b""
        self._shown = Shown()
        self._text: str | None = None
        self._seen = ""

    def expect(self, words: str) -> str:
        """Read on until the words are there, after those that were expected before."""
        while (at := self.text.find(words, self._begin)) < 0:
            if not self.read():
                raise AssertionError(f"{words!r} did not come after: {self.text[self._begin :]!r}")
        shown = self.text[self._begin : at + len(words)]
        self._seen = self.text[: at + len(words)]
        return shown

    @property
    def _begin(self) -> int:
        """Where that begins which was not expected yet; earlier, if what is before it was written
        anew."""
        pairs = zip(self._seen, self.text, strict=False)
        differing = (index for index, (one, other) in enumerate(pairs) if one != other)
        return next(differing, min(len(self._seen), len(self.text)))

    def watch(self, words: str) -> None:
        """Read on until the words are there, wherever; they may be gone again later."""
        while words not in self.text:
            if not self.read():
                raise AssertionError(f"{words!r} did not come: {self.text!r}")

    def type(self, keys: str) -> None:
        os.write(self._handle, keys.encode())

    def type_ahead(self, lines: str) -> None:
        """Type lines that nobody reads yet, and wait until the terminal has them: it may not echo
        them."""
        self.type(lines)
        theirs = os.open(self._path, os.O_RDONLY | os.O_NOCTTY)
        try:
            assert select.select([theirs], [], [], _SECONDS)[0], f"{lines!r} did not arrive"
        finally:
            os.close(theirs)

    def press(self, key: str, *, until: str | None = None) -> None:
        """Press a key until words come, or it is gone: readline sleeps over a signal that comes
        between its prompt and its first look at the keyboard."""
        self.type(key)
        while until is None or self.text.find(until, self._begin) < 0:
            if not select.select([self._handle], [], [], 2)[0]:
                self.type(key)
            elif not self.read():
                return

    def resize(self, columns: int) -> None:
        _resize(self._handle, columns)

    def send_signal(self, number: signal.Signals) -> None:
        self._child.send_signal(number)

    @property
    def has_echo(self) -> bool:
        """Whether the terminal shows what is typed, as in a shell."""
        return bool(termios.tcgetattr(self._handle)[3] & termios.ECHO)  # 3: local modes

    def wait(self) -> int:
        """The exit status, once everything is read."""
        while self.read():
            pass
        return self._child.wait()

    @property
    def raw(self) -> str:
        return self._raw.decode(errors="replace")

    @property
    def text(self) -> str:
        """What it shows, without colours and without what was erased."""
        if self._text is None:
            self._text = "\n".join(self._shown.rows)
        return self._text

    def screen(self, columns: int, rows: int = _ROWS) -> list[str]:
        """What a window of this size shows at this moment, and what has scrolled off it."""
        shown = Shown(columns, rows)
        shown.feed(self._raw)
        return shown.rows

    def read(self) -> bool:
        """Read a piece; false at the end."""
        ready, _, _ = select.select([self._handle], [], [], _SECONDS)
        if not ready:
            raise AssertionError(f"nothing came for {_SECONDS} s after: {self.text!r}")
        try:
            chunk = os.read(self._handle, 65536)
        except OSError:  # how Linux says that the other end is closed
            return False
        self._raw += chunk
        for part in chunk.split(_CURSOR_QUESTION)[:-1]:
            self._shown.feed(part)
            os.write(self._handle, self._shown.cursor_answer())
        self._shown.feed(chunk.split(_CURSOR_QUESTION)[-1])
        self._text = None
        return bool(chunk)


def _resize(handle: int, columns: int) -> None:
    fcntl.ioctl(handle, termios.TIOCSWINSZ, struct.pack("HHHH", _ROWS, columns, 0, 0))


@contextmanager
def at_terminal(
    *arguments: str, cwd: Path, env: Mapping[str, str], columns: int = 80
) -> Generator[Terminal]:
    ours, theirs = pty.openpty()
    _resize(theirs, columns)
    order = Order(arguments=arguments, cwd=str(cwd), env=env, is_leader=True)
    path = os.ttyname(theirs)
    child = Child(order, theirs, theirs, theirs)
    os.close(theirs)
    try:
        yield Terminal(child, ours, path)
    finally:
        child.kill()
        child.wait()
        os.close(ours)


Chat: TypeAlias = Callable[..., AbstractContextManager[Terminal]]
"""What the fixture `chat` is: begins the command at a terminal."""
