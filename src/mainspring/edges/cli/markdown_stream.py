"""Streams an agent's text to the terminal: Markdown block by block, plain text elsewhere."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, TypeAlias

from rich.cells import cell_len, set_cell_size
from rich.text import Text

from mainspring.core.lazy_module import LazyModule
from mainspring.edges.cli.printing import Screen, sanitize_line, sanitize_text

if TYPE_CHECKING:
    from rich.syntax import Syntax

    from mainspring.edges.cli import theme
else:
    theme = LazyModule("mainspring.edges.cli.theme")


_FENCE = re.compile(r"( {0,3})(`{3,}|~{3,})[ \t]*([^\s`]*)[^`]*$")
_INNER_FENCE = re.compile(r"[ \t>]*(?:(?:[-*+]|\d{1,9}[.)])[ \t]+)?(`{3,}|~{3,})")
_LIST_ITEM = re.compile(r" {0,3}(?:[-*+]|\d{1,9}[.)])(?:[ \t]|$)")
_TAIL_CHARS = 200


@dataclass(frozen=True, slots=True)
class MarkdownBlock:
    """Whole blocks: paragraphs, a list, a table, a heading."""

    text: str


@dataclass(frozen=True, slots=True)
class CodeLine:
    """A line of a fenced block, which is shown line by line: it may be long."""

    text: str
    language: str
    is_first: bool


MarkdownPiece: TypeAlias = MarkdownBlock | CodeLine


class BlockSplitter:
    """Feed it text; it gives out what is complete."""

    def __init__(self) -> None:
        self.tail = ""
        """The end of what is not complete."""
        self._partial: list[str] = []
        self._lines: list[str] = []
        self._is_list = False
        self._has_gap = False
        self._inner: str | None = None
        self._code: tuple[str, str] | None = None
        self._is_first = False

    def feed(self, text: str) -> list[MarkdownPiece]:
        *complete, rest = text.split("\n")
        pieces: list[MarkdownPiece] = []
        for line in complete:
            given = self._line("".join(self._partial) + line)
            self._partial = []
            pieces += given
            self.tail = "" if given or not self._lines else f"{self.tail}{line} "[-_TAIL_CHARS:]
        if rest:
            self._partial.append(rest)
            self.tail = (self.tail + rest)[-_TAIL_CHARS:]
        return pieces

    def close(self) -> list[MarkdownPiece]:
        """The rest, complete or not."""
        pieces = self._line("".join(self._partial)) if self._partial else []
        pieces += self._flush()
        self.__init__()
        return pieces

    def _line(self, line: str) -> list[MarkdownPiece]:
        if self._code is not None:
            return self._code_line(line, *self._code)
        if self._inner is not None:
            self._lines.append(line)
            if _closes_fence(line.strip(" \t>"), self._inner):
                self._inner = None
            return []
        if not line.strip():
            self._has_gap = bool(self._lines)
            return [] if self._is_list else self._flush()
        return self._text_line(line)

    def _code_line(self, line: str, fence: str, language: str) -> list[MarkdownPiece]:
        if _closes_fence(line, fence):
            self._code = None
            return []
        is_first, self._is_first = self._is_first, False
        return [CodeLine(line, language, is_first)]

    def _text_line(self, line: str) -> list[MarkdownPiece]:
        pieces: list[MarkdownPiece] = []
        belongs = self._is_list and (line[0] in " \t" or _LIST_ITEM.match(line) is not None)
        if self._has_gap:
            if belongs:
                self._lines.append("")
            else:
                pieces += self._flush()
            self._has_gap = False
        if not belongs and (fence := _FENCE.match(line)):
            pieces += self._flush()
            self._code, self._is_first = (fence[2], fence[3]), True
            return pieces
        if not self._lines:
            self._is_list = _LIST_ITEM.match(line) is not None
        if inner := _INNER_FENCE.match(line):
            self._inner = inner[1]
        self._lines.append(line)
        return pieces

    def _flush(self) -> list[MarkdownPiece]:
        lines, self._lines = self._lines, []
        self._is_list = self._has_gap = False
        return [MarkdownBlock("\n".join(lines))] if lines else []


def _closes_fence(line: str, fence: str) -> bool:
    bare = line.strip()
    return len(bare) >= len(fence) and bare == fence[0] * len(bare)


_ERASE_LINE = "\r\x1b[2K"
_ERASE_ABOVE = "\x1b[1A\x1b[2K"


class MarkdownStream:
    """Writes text to a screen. At its end is a tail: what is not complete yet, in one dim line; and
    below that a foot, of as many lines as it is given. Both are written again in place."""

    def __init__(self, screen: Screen, begin: Callable[[str], None]) -> None:
        """`begin` is told of each `prose` and `code` before it is shown."""
        self._screen = screen
        self._begin = begin
        self._blocks = BlockSplitter()
        self._code: Syntax | None = None
        self._tail = ""
        self._foot: tuple[str, ...] = ()
        self._drawn: tuple[str, ...] = ()
        self._drawn_width = 0
        self._is_open = False
        self._ends_line = True

    def write(self, text: str) -> None:
        text = sanitize_text(text)
        if not text:
            return
        if self._screen.width is None:
            if not self._is_open:
                self._begin("prose")
            self._screen.raw(text)
            self._is_open, self._ends_line = True, text.endswith("\n")
            return
        self._show(self._blocks.feed(text))
        self.set_pending_line(self._blocks.tail)

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

    def set_pending_line(self, text: str) -> None:
        """Something is under way: show its end until something complete takes its place."""
        if not self._screen.can_redraw:
            return
        words, room = sanitize_line(text).strip(), self._screen.size[0] - 2
        if cell_len(words) > room:
            words = words[-room + 1 :]
            while cell_len(words) >= room:  # characters may be two columns wide
                words = words[1:]
            words = f"…{words}"
        self._tail = words
        self._draw()

    def set_footer(self, lines: Sequence[str]) -> None:
        """What stands below all else from now on; nothing, if there are no lines."""
        if self._screen.can_redraw:
            room = self._screen.size[0] - 2
            self._foot = tuple(_fit_width(sanitize_line(line), room) for line in lines)
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
        return _ERASE_LINE + _ERASE_ABOVE * (len(self._drawn) - 1)

    def _show(self, markdown_pieces: list[MarkdownPiece]) -> None:
        if markdown_pieces:
            self._erase()
        for piece in markdown_pieces:
            match piece:
                case MarkdownBlock(text):
                    self._begin("prose")
                    self._screen.block(theme.render_markdown(text))
                case CodeLine():
                    self._show_code(piece)

    def _show_code(self, line: CodeLine) -> None:
        if line.is_first:
            self._begin("code")
            self._code = theme.syntax_for(line.language)
        shown = Text("  ", no_wrap=True, overflow="ignore")
        shown.append(
            Text(line.text, "cyan") if self._code is None else self._code.highlight(line.text)
        )
        shown.rstrip()
        self._screen.show(shown)


def _fit_width(words: str, room: int) -> str:
    return words if cell_len(words) <= room else f"{set_cell_size(words, room - 1).rstrip()}…"
