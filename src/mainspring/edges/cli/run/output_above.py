"""Standard output and standard error while an application owns the terminal: what is written
appears above its rows, in whole lines.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Generator
from contextlib import contextmanager
from typing import BinaryIO, TextIO

_BEGIN_UPDATE, _END_UPDATE = "\x1b[?2026h", "\x1b[?2026l"
"""A terminal that supports synchronized output shows the text between them at once."""


class OutputAbove:
    """Collects what is written until the rows are drawn again."""

    def __init__(self, stream: TextIO, redraw_soon: Callable[[], None]) -> None:
        self._stream = stream
        self._redraw_soon = redraw_soon
        self._pending: list[str] = []
        self._partial = ""
        self._is_updating = False
        self.is_owned = False
        """Whether the application draws rows now. Otherwise text is written at once."""
        self.is_held = False
        """Whether something else covers the whole screen: text waits."""

    def write(self, text: str) -> None:
        whole, newline, rest = text.rpartition("\n")
        if newline:
            self._pending.append(f"{self._partial}{whole}\n")
            self._partial = rest
        else:
            self._partial += rest
        if self.is_owned:
            self._redraw_soon()
        elif not self.is_held:
            self.flush()

    def signal(self, code: str) -> None:
        """Write a control sequence that moves nothing, such as the bell."""
        self._stream.write(code)
        self._stream.flush()

    def flush(self) -> None:
        """Write all that is left, even if it does not end a line."""
        if self.is_owned or self.is_held:
            return
        self._stream.write("".join([*self._pending, self._partial]))
        self._stream.flush()
        self._pending.clear()
        self._partial = ""

    def print_pending(self, erase_rows: Callable[[], None]) -> None:
        """Called before the rows are drawn."""
        if not self._pending:
            return
        text = "".join(self._pending)
        self._pending.clear()
        self._stream.write(_BEGIN_UPDATE)
        self._stream.flush()
        erase_rows()
        self._stream.write(text)
        self._stream.flush()
        self._is_updating = True

    def end_update(self) -> None:
        if self._is_updating:
            self._stream.write(_END_UPDATE)
            self._stream.flush()
            self._is_updating = False

    @contextmanager
    def redirected(self) -> Generator[None]:
        """Replace the standard streams that lead to the terminal."""
        before = sys.stdout, sys.stderr
        if sys.stdout.isatty():
            sys.stdout = _AboveStream(sys.stdout, self)
        if sys.stderr.isatty():
            sys.stderr = _AboveStream(sys.stderr, self)
        try:
            yield
        finally:
            sys.stdout, sys.stderr = before
            self.is_owned = self.is_held = False
            self.flush()


class _AboveStream(TextIO):
    """A standard stream whose text is passed on."""

    def __init__(self, stream: TextIO, above: OutputAbove) -> None:
        self._real = stream
        self._above = above

    def write(self, text: str, /) -> int:
        self._above.write(text)
        return len(text)

    def flush(self) -> None:
        self._above.flush()

    def isatty(self) -> bool:
        return True

    @property
    def buffer(self) -> BinaryIO:
        return self._real.buffer

    def fileno(self) -> int:
        return self._real.fileno()

    @property
    def encoding(self) -> str:
        return self._real.encoding

    @property
    def errors(self) -> str | None:
        return self._real.errors
