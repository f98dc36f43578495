"""What an agent says, as it says it: Markdown by blocks at a terminal, plain text elsewhere."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from rich.cells import cell_len, set_cell_size
from rich.text import Text

from mainspring.core.lazy import LazyModule
from mainspring.edges.cli.blocks import Blocks, CodeLine, Piece, Prose
from mainspring.edges.cli.printable import clean, one_line
from mainspring.edges.cli.render import Screen

if TYPE_CHECKING:
    from rich.syntax import Syntax

    from mainspring.edges.cli import marked
else:
    marked = LazyModule("mainspring.edges.cli.marked")

_ERASE = "\r\x1b[2K"
_ERASE_ABOVE = "\x1b[1A\x1b[2K"


class Speech:
    """Writes text to a screen. At its end is a tail: what is not complete yet, in one dim line; and
    below that a foot, of as many lines as it is given. Both are written again in place."""

    def __init__(self, screen: Screen, begin: Callable[[str], None]) -> None:
        """`begin` is told of each `prose` and `code` before it is shown."""
        self._screen = screen
        self._begin = begin
        self._blocks = Blocks()
        self._code: Syntax | None = None
        self._tail = ""
        self._foot: tuple[str, ...] = ()
        self._drawn: tuple[str, ...] = ()
        self._drawn_width = 0
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
        self._tail = ""
        self._erase()

    def restore(self) -> None:
        """The foot comes back, after `end` and what was written then."""
        self._draw()

    def tail(self, text: str) -> None:
        """Something is under way: show its end until something complete takes its place."""
        if not self._screen.moves:
            return
        words, room = one_line(text).strip(), self._screen.size[0] - 2
        if cell_len(words) > room:
            words = words[-room + 1 :]
            while cell_len(words) >= room:  # characters may be two columns wide
                words = words[1:]
            words = f"…{words}"
        self._tail = words
        self._draw()

    def foot(self, lines: Sequence[str]) -> None:
        """What stands below all else from now on; nothing, if there are no lines."""
        if self._screen.moves:
            room = self._screen.size[0] - 2
            self._foot = tuple(_cut(one_line(line), room) for line in lines)
            self._draw()

    def _draw(self) -> None:
        lines = (*([self._tail] if self._tail else []), *self._foot)
        if lines == self._drawn and self._drawn_width == self._screen.size[0]:
            return
        written = "\n".join(map(self._screen.dim, lines))
        self._screen.raw(self._erasure() + written)  # at once, so that nothing flickers
        self._drawn, self._drawn_width = lines, self._screen.size[0]

    def _erase(self) -> None:
        if self._drawn:
            self._screen.raw(self._erasure())
            self._drawn = ()

    def _erasure(self) -> str:
        if not self._drawn:
            return ""
        if self._screen.size[0] < self._drawn_width:
            return "\n"  # narrower than they were, nobody knows on how many rows they stand now
        return _ERASE + _ERASE_ABOVE * (len(self._drawn) - 1)

    def _show(self, pieces: list[Piece]) -> None:
        if pieces:
            self._erase()
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


def _cut(words: str, room: int) -> str:
    return words if cell_len(words) <= room else f"{set_cell_size(words, room - 1).rstrip()}…"
