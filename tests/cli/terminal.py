"""The command at a terminal of its own: what it shows is read, keys are pressed."""

from __future__ import annotations

import fcntl
import os
import pty
import re
import select
import struct
import termios
from collections.abc import Generator, Mapping
from contextlib import contextmanager
from pathlib import Path

from tests.fork_server import Child, Order

_SECONDS = 60
_TOKEN = re.compile(r"\r?\n|\r\x1b\[2K|\x1b\[[0-9;?]*[A-Za-z]|\x1b\][^\x07]*\x07|[\x01\x02]")


class Terminal:
    def __init__(self, child: Child, handle: int, path: str) -> None:
        self._child = child
        self._handle = handle
        self._path = path
        self._raw = b""
        self._seen = 0

    def expect(self, words: str) -> str:
        """Read on until the words are there, after those that were expected before."""
        while (at := self.text.find(words, self._seen)) < 0:
            if not self._read():
                raise AssertionError(f"{words!r} did not come after: {self.text[self._seen :]!r}")
        shown = self.text[self._seen : at + len(words)]
        self._seen = at + len(words)
        return shown

    def watch(self, words: str) -> None:
        """Read on until the words are there, wherever; they may be gone again later."""
        while words not in self.text:
            if not self._read():
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
        while until is None or self.text.find(until, self._seen) < 0:
            if not select.select([self._handle], [], [], 2)[0]:
                self.type(key)
            elif not self._read():
                return

    def resize(self, columns: int) -> None:
        _resize(self._handle, columns)

    def wait(self) -> int:
        """The exit status, once everything is read."""
        while self._read():
            pass
        return self._child.wait()

    @property
    def raw(self) -> str:
        return self._raw.decode(errors="replace")

    @property
    def text(self) -> str:
        """What it shows, without colours and without what was erased."""
        lines, row, at = [""], 0, 0
        for token in _TOKEN.finditer(self.raw):
            lines[row] += self.raw[at : token.start()]
            at = token.end()
            match token[0]:
                case "\n" | "\r\n":
                    row += 1
                    lines += [""] * (row == len(lines))
                case "\x1b[2K" | "\r\x1b[2K":
                    lines[row] = ""
                case "\x1b[1A":
                    row -= 1
                case _:
                    pass
        lines[row] += self.raw[at:]
        return "\n".join(lines[: row + 1])

    def _read(self) -> bool:
        ready, _, _ = select.select([self._handle], [], [], _SECONDS)
        if not ready:
            raise AssertionError(f"nothing came for {_SECONDS} s after: {self.text!r}")
        try:
            chunk = os.read(self._handle, 65536)
        except OSError:  # how Linux says that the other end is closed
            return False
        self._raw += chunk
        return bool(chunk)


def _resize(handle: int, columns: int) -> None:
    fcntl.ioctl(handle, termios.TIOCSWINSZ, struct.pack("HHHH", 40, columns, 0, 0))


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
