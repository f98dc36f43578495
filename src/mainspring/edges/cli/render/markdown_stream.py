"""Streams an agent's text to standard output: as Markdown at a terminal, else as plain text."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Generator, Iterable, Sequence
from contextlib import AbstractContextManager, contextmanager
from typing import TYPE_CHECKING, Protocol

from rich.cells import cell_len, set_cell_size
from rich.padding import Padding
from rich.text import Text

from mainspring.core.lazy_module import LazyModule
from mainspring.edges.cli.render.markdown_blocks import (
    BlockSplitter,
    CodeLine,
    ListItem,
    MarkdownBlock,
    MarkdownPiece,
)
from mainspring.edges.cli.render.printing import Screen, TerminalCode, sanitize_line, sanitize_text

if TYPE_CHECKING:
    from rich.syntax import Syntax

    from mainspring.edges.cli.render import theme
else:
    theme = LazyModule("mainspring.edges.cli.render.theme")

_BEGIN_UPDATE, _END_UPDATE = TerminalCode("\x1b[?2026h"), TerminalCode("\x1b[?2026l")
"""A terminal that supports synchronized output shows the text between them at once."""
_MAX_LIVE_ROWS = 12  # drawn again while a block grows; more flicker
_INDENT = 3
"""The columns by which an inner list is indented."""


class LiveRows:
    """The wrapped end of a growing text. The cost of adding text does not depend on its length so
    far."""

    def __init__(self) -> None:
        self._rows: deque[str] = deque([""], maxlen=_MAX_LIVE_ROWS)
        self._width = 0

    def replace(self, text: str, width: int) -> None:
        self._rows.clear()
        self._rows.append("")
        self._width = width
        self.append(text, width)

    def append(self, text: str, width: int) -> None:
        if width != self._width:  # the window was resized: wrap again
            self.replace("\n".join(self._rows), width)
        for index, line in enumerate(text.expandtabs(4).split("\n")):
            if index:
                self._rows.append("")
            self._extend(line)

    def last(self, count: int) -> list[str]:
        rows = [*self._rows]
        return rows[-count:] if any(rows) else []

    def _extend(self, line: str) -> None:
        row = self._rows[-1] + line
        while (fitting := _fitting_chars(row, self._width)) < len(row):
            end = row.rfind(" ", 0, fitting + 1)
            end = end if end > 0 else fitting
            self._rows[-1] = row[:end].rstrip()
            row = row[end:].lstrip(" ")
            self._rows.append("")
        self._rows[-1] = row


def _fitting_chars(row: str, width: int) -> int:
    """How many characters fit into the width; at least one."""
    if row.isascii():
        return min(len(row), width)
    cells = 0
    for index, character in enumerate(row):
        cells += cell_len(character)
        if cells > width:
            return max(index, 1)
    return len(row)


class LiveArea(Protocol):
    """Rows below everything that was printed. They are redrawn in place."""

    def draw(self, rows: tuple[str, ...]) -> None: ...

    def erase(self) -> None: ...

    def printing(self) -> AbstractContextManager[None]:
        """Erases the rows; what is printed in the block appears at once, in their place."""
        ...


class CursorArea:
    """Draws by moving the cursor: for a terminal on which nothing else draws."""

    def __init__(self, screen: Screen) -> None:
        self._screen = screen
        self._drawn: tuple[str, ...] = ()
        self._drawn_width = 0

    def draw(self, rows: tuple[str, ...]) -> None:
        columns = self._screen.size[0]
        if rows == self._drawn and self._drawn_width == columns:
            return
        self._screen.raw(self._transition(rows, columns))  # at once, so that nothing flickers
        self._drawn, self._drawn_width = rows, columns

    def erase(self) -> None:
        if self._drawn:
            self._screen.raw(self._erasure(self._screen.size[0]))
            self._drawn = ()

    @contextmanager
    def printing(self) -> Generator[None]:
        if self._screen.can_redraw:
            self._screen.raw(_BEGIN_UPDATE)
        self.erase()
        yield
        if self._screen.can_redraw:
            self._screen.raw(_END_UPDATE)

    def _transition(self, lines: tuple[str, ...], columns: int) -> TerminalCode:
        """The output that turns the drawn rows into `lines`."""
        old_rows = self._drawn
        if not old_rows or not lines or columns < self._drawn_width:
            return TerminalCode(self._erasure(columns) + "\n".join(lines))
        same = _common_lines(old_rows, lines)
        is_last = same == len(old_rows) - 1 and same < len(lines)
        if is_last and lines[same].startswith(old_rows[same]):
            rest = [lines[same][len(old_rows[same]) :], *lines[same + 1 :]]
            return TerminalCode("\n".join(rest))
        same = min(same, len(lines) - 1, len(old_rows) - 1)
        rows = "\n".join(lines[max(same, 0) :])
        erased = _erase_rows(len(old_rows) - same)
        return TerminalCode(f"{_BEGIN_UPDATE}{erased}{rows}{_END_UPDATE}")

    def _erasure(self, columns: int) -> TerminalCode:
        if not self._drawn:
            return TerminalCode("")
        if columns < self._drawn_width:
            # the window is narrower: how many rows they take now is unknown
            return TerminalCode("\n")
        return _erase_rows(len(self._drawn))


class HiddenArea:
    """Draws nothing: for output that is read later."""

    def draw(self, rows: tuple[str, ...]) -> None:
        pass

    def erase(self) -> None:
        pass

    @contextmanager
    def printing(self) -> Generator[None]:
        yield


class MarkdownStream:
    """Writes text to a screen. Live rows at its end show the incomplete text, above a footer. Both
    are redrawn in place."""

    def __init__(
        self, screen: Screen, begin: Callable[[str], None], area: LiveArea | None = None
    ) -> None:
        """`begin` is called with `prose`, `item` or `code` before each is shown."""
        self._screen = screen
        self._area = area or CursorArea(screen)
        self._begin = begin
        self._blocks = BlockSplitter()
        self._code: Syntax | None = None
        self._live = LiveRows()
        self._status = ""
        self._footer: tuple[str, ...] = ()
        self._activity = ""
        self._is_open = False
        self._ends_line = True

    def write(self, text: str) -> None:
        text = sanitize_text(text)
        if not text:
            return
        if self._screen.width is None:
            if not self._is_open:
                self._begin("prose")
            self._screen.text(text)
            self._is_open, self._ends_line = True, text.endswith("\n")
            return
        self._status = ""
        width = self._room
        if pieces := self._blocks.feed(text):
            self._show(pieces)
            self._live.replace(self._blocks.pending, width)
        else:
            self._live.append(text, width)
        self._draw()

    def end(self) -> None:
        """Complete the text; later text begins on a new line."""
        if self._screen.width is None:
            if not self._ends_line:
                self._screen.text("\n")
            self._is_open, self._ends_line = False, True
            return
        self._show(self._blocks.close())
        self._status = ""
        self._live.replace("", self._room)
        self._area.erase()

    def restore(self) -> None:
        """Draw the footer again, after `end` and other output."""
        self._draw()

    def set_status(self, text: str) -> None:
        """Show the end of a text in one dim line until something else is written."""
        if not self._screen.can_redraw:
            return
        status, room = sanitize_line(text).strip(), self._room
        if cell_len(status) > room:
            status = status[-room + 1 :]
            while cell_len(status) >= room:  # characters may be two columns wide
                status = status[1:]
            status = f"…{status}"
        self._status = status
        self._draw()

    def set_activity(self, text: str) -> None:
        """Show what the session does in a dim line below the text; "" removes it."""
        if self._screen.can_redraw and (text or self._activity):
            self._activity = _fit_width(sanitize_line(text), self._room)
            self._draw()

    def set_footer(self, lines: Sequence[str]) -> None:
        """Show these lines below everything else; none removes the footer."""
        if self._screen.can_redraw:
            self._footer = tuple(_fit_width(sanitize_line(line), self._room) for line in lines)
            self._draw()

    @property
    def _room(self) -> int:
        return max(self._screen.size[0] - 2, 2)

    def _draw(self) -> None:
        if not self._screen.can_redraw:
            return
        live = self._live.last(max(self._screen.size[1] - len(self._footer) - 3, 1))
        below = (self._status, self._activity, *self._footer)
        self._area.draw((*live, *map(self._screen.dim, filter(None, below))))

    def _show(self, pieces: Iterable[MarkdownPiece]) -> None:
        pieces = [*pieces]
        if not pieces:
            return
        with self._area.printing():
            for piece in pieces:
                self._show_piece(piece)

    def _show_piece(self, piece: MarkdownPiece) -> None:
        match piece:
            case MarkdownBlock(text=text):
                self._begin("prose")
                self._screen.block(theme.render_markdown(text, is_light=self._screen.is_light))
            case ListItem(text=text, depth=depth):
                if piece.is_first or piece.has_gap:
                    self._begin("prose")
                item = theme.render_markdown(text, is_light=self._screen.is_light)
                self._screen.block(Padding(item, (0, 0, 0, _INDENT * depth)) if depth else item)
            case CodeLine():
                self._show_code(piece)

    def _show_code(self, line: CodeLine) -> None:
        if line.is_first:
            self._begin("code")
            self._code = theme.syntax_for(line.language, is_light=self._screen.is_light)
        text = Text("  ", no_wrap=True, overflow="ignore")
        text.append(
            Text(line.text, "blue" if self._screen.is_light else "cyan")
            if self._code is None
            else self._code.highlight(line.text)
        )
        text.rstrip()
        self._screen.show(text)


def _erase_rows(count: int) -> TerminalCode:
    """Erase this many rows; the cursor is in the last one."""
    return TerminalCode(f"\r\x1b[{count - 1}A\x1b[J" if count > 1 else "\r\x1b[J")


def _common_lines(before: Sequence[str], after: Sequence[str]) -> int:
    for index, (old, new) in enumerate(zip(before, after, strict=False)):
        if old != new:
            return index
    return min(len(before), len(after))


def _fit_width(text: str, room: int) -> str:
    return text if cell_len(text) <= room else f"{set_cell_size(text, room - 1).rstrip()}…"
