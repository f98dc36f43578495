"""What an agent says, as it says it: Markdown at a terminal, block by block; plain text elsewhere."""

from __future__ import annotations

from pygments.util import ClassNotFound
from rich.cells import cell_len, set_cell_size
from rich.console import Console
from rich.markdown import Markdown
from rich.syntax import Syntax
from rich.text import Text

from mainspring.edges.cli.blocks import Blocks, CodeLine, Piece, Prose
from mainspring.edges.cli.render import Screen, one_line

_CODE_THEME = "ansi_dark"


class Speech:
    """Writes text to a screen. At its end is a tail: what is not complete yet, in one dim line."""

    def __init__(self, screen: Screen) -> None:
        self._screen = screen
        self._console = screen.console
        self._blocks = Blocks()
        self._code: Syntax | None = None
        self._has_tail = False
        self._ends_line = True
        self.is_silent = True
        """Nothing has been said since the last `end`."""

    def say(self, text: str) -> None:
        text = clean(text)
        if not text:
            return
        self.is_silent = False
        if self._screen.width is None:
            self._screen.raw(text)
            self._ends_line = text.endswith("\n")
            return
        self._show(self._blocks.feed(text))
        self.tail(self._blocks.tail)

    def end(self) -> None:
        """What was said is complete; whatever comes next begins on a line of its own."""
        if self._screen.width is None:
            if not self._ends_line:
                self._screen.raw("\n")
            self._ends_line = True
        else:
            self._show(self._blocks.close())
            self.untail()
        self._code = None
        self.is_silent = True

    def tail(self, text: str) -> None:
        """Something is under way: show its end until something complete takes its place."""
        if self._screen.width is None or not self._screen.steers:
            return
        words, room = one_line(text).strip(), self._screen.width - 2
        if cell_len(words) > room:
            words = "…" + words[-(room - 1) :]
        self._screen.raw("\r\x1b[2K" + (f"\x1b[2m{set_cell_size(words, min(cell_len(words), room))}\x1b[0m" if words else ""))
        self._has_tail = bool(words)

    def untail(self) -> None:
        if self._has_tail:
            self._screen.raw("\r\x1b[2K")
            self._has_tail = False

    def _show(self, pieces: list[Piece]) -> None:
        if pieces:
            self.untail()
        for piece in pieces:
            match piece:
                case Prose(text):
                    self._gap()
                    self._console.print(Markdown(text, hyperlinks=False, code_theme=_CODE_THEME))
                    self._code = None
                case CodeLine():
                    self._show_code(piece)

    def _show_code(self, line: CodeLine) -> None:
        if line.is_first:
            self._gap()
            self._code = _syntax(line.language)
        shown = Text("  ")
        if self._code is not None and line.language:
            shown.append(self._code.highlight(line.text))
        else:
            shown.append(line.text, "cyan")
        shown.rstrip()
        self._console.print(shown, soft_wrap=True)

    def _gap(self) -> None:
        self._screen.gap()


def _syntax(language: str) -> Syntax | None:
    try:
        return Syntax("", language, theme=_CODE_THEME, background_color="default")
    except ClassNotFound:
        return None


def clean(text: str) -> str:
    """Text without what could steer a terminal; lines and tabs stay."""
    if text.isprintable():
        return text
    kept = text.replace("\r\n", "\n")
    return "".join(
        each if each.isprintable() or each in "\n\t" else "\N{REPLACEMENT CHARACTER}" for each in kept
    )


__all__ = ["Console", "Speech", "clean"]
