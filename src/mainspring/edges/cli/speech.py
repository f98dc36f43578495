"""What an agent says, as it says it: Markdown by blocks at a terminal, plain text elsewhere."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from rich.cells import cell_len
from rich.text import Text

from mainspring.core.lazy import LazyModule
from mainspring.edges.cli.blocks import Blocks, CodeLine, Piece, Prose
from mainspring.edges.cli.render import Screen, one_line

if TYPE_CHECKING:
    from rich.syntax import Syntax

    from mainspring.edges.cli import marked
else:
    marked = LazyModule("mainspring.edges.cli.marked")

_ERASE = "\r\x1b[2K"


class Speech:
    """Writes text to a screen. At its end is a tail: what is not complete yet, in one dim line."""

    def __init__(self, screen: Screen, begin: Callable[[str], None]) -> None:
        """`begin` is told of each `prose` and `code` before it is shown."""
        self._screen = screen
        self._begin = begin
        self._blocks = Blocks()
        self._code: Syntax | None = None
        self._has_tail = False
        self._is_open = False
        self._ends_line = True

    def say(self, text: str) -> None:
        text = clean(text)
        if not text:
            return
        if self._screen.width is None:
            if not self._is_open:
                self._begin("prose")
            self._screen.raw(text)
            self._is_open, self._ends_line = True, text.endswith("\n")
            return
        self._show(self._blocks.feed(text))
        self.tail(self._blocks.tail)

    def end(self) -> None:
        """What was said is complete; whatever comes next begins on a line of its own."""
        if self._screen.width is None:
            if not self._ends_line:
                self._screen.raw("\n")
            self._is_open, self._ends_line = False, True
            return
        self._show(self._blocks.close())
        self.untail()

    def tail(self, text: str) -> None:
        """Something is under way: show its end until something complete takes its place."""
        if self._screen.width is None or not self._screen.moves:
            return
        words, room = one_line(text).strip(), self._screen.width - 2
        if cell_len(words) > room:
            words = words[-room + 1 :]
            while cell_len(words) >= room:  # characters may be two columns wide
                words = words[1:]
            words = f"…{words}"
        if words:
            self._screen.raw(f"{_ERASE}\x1b[2m{words}\x1b[0m")
            self._has_tail = True
        else:
            self.untail()

    def untail(self) -> None:
        if self._has_tail:
            self._screen.raw(_ERASE)
            self._has_tail = False

    def _show(self, pieces: list[Piece]) -> None:
        if pieces:
            self.untail()
        for piece in pieces:
            match piece:
                case Prose(text):
                    self._begin("prose")
                    self._screen.block(marked.marked(text))
                case CodeLine():
                    self._show_code(piece)

    def _show_code(self, line: CodeLine) -> None:
        if line.is_first:
            self._begin("code")
            self._code = marked.syntax_of(line.language)
        shown = Text("  ", no_wrap=True, overflow="ignore")
        shown.append(
            Text(line.text, "cyan") if self._code is None else self._code.highlight(line.text)
        )
        shown.rstrip()
        self._screen.show(shown)


def clean(text: str) -> str:
    """Text without what could steer a terminal; lines and tabs stay."""
    if text.isprintable():
        return text
    kept = text.replace("\r\n", "\n")
    return "".join(
        each if each.isprintable() or each in "\n\t" else "\N{REPLACEMENT CHARACTER}"
        for each in kept
    )
