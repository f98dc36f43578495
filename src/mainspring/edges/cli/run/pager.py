"""A full screen of lines to scroll through, as of the transcript in chat."""

from __future__ import annotations

from collections.abc import Sequence

from prompt_toolkit.application import Application
from prompt_toolkit.formatted_text import ANSI, StyleAndTextTuples, to_formatted_text
from prompt_toolkit.input import Input
from prompt_toolkit.key_binding import KeyBindings, KeyPressEvent
from prompt_toolkit.layout import HSplit, Layout, UIContent, UIControl, Window
from prompt_toolkit.layout.controls import FormattedTextControl
from prompt_toolkit.output import Output

_KEYS = " ↑ ↓ PgUp PgDn Home End scroll · q, Esc or Ctrl-O leaves"
_ESCAPE_SECONDS = 0.05
"""As in the input loop."""


class Pager(UIControl):
    """Shows lines with ANSI styles, the last ones first."""

    def __init__(self, lines: Sequence[str], input_: Input, output: Output) -> None:
        self._lines = lines
        self._first = len(lines)
        self._height = 1
        keys = Window(FormattedTextControl(self._foot), height=1, style="reverse")
        self.application: Application[None] = Application(
            layout=Layout(HSplit([Window(self), keys])),
            key_bindings=self._key_bindings(),
            full_screen=True,
            input=input_,
            output=output,
        )
        self.application.ttimeoutlen = _ESCAPE_SECONDS

    def create_content(self, width: int, height: int) -> UIContent:
        self._height = height
        self._scroll(0)
        count = min(height, len(self._lines) - self._first)
        return UIContent(get_line=self._line, line_count=count, show_cursor=False)

    def _line(self, row: int) -> StyleAndTextTuples:
        return to_formatted_text(ANSI(self._lines[self._first + row]))

    def _scroll(self, by: int) -> None:
        last = max(len(self._lines) - self._height, 0)
        self._first = min(max(self._first + by, 0), last)

    def _foot(self) -> str:
        end = min(self._first + self._height, len(self._lines))
        return f" {end} of {len(self._lines)} lines ·{_KEYS}"

    def _key_bindings(self) -> KeyBindings:
        bindings = KeyBindings()
        whole = len(self._lines)
        for keys, rows, pages in (
            (("up", "k"), -1, 0),
            (("down", "j", "enter"), 1, 0),
            (("pageup", "b"), 0, -1),
            (("pagedown", " "), 0, 1),
            (("home", "g"), -whole, 0),
            (("end", "G"), whole, 0),
        ):
            for key in keys:
                self._bind(bindings, key, rows, pages)

        @bindings.add("q")
        @bindings.add("escape", eager=True)
        @bindings.add("c-o")
        @bindings.add("c-c")
        @bindings.add("c-d")
        def leave(event: KeyPressEvent) -> None:
            event.app.exit()

        return bindings

    def _bind(self, bindings: KeyBindings, key: str, rows: int, pages: int) -> None:
        @bindings.add(key)
        def scroll(_event: KeyPressEvent) -> None:
            self._scroll(rows + pages * max(self._height - 1, 1))
