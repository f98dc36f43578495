"""Printing to the terminal: lines, paragraphs, tables and JSON, with untrusted text sanitized.
Colours and truncation only at a terminal.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Callable, Sequence
from datetime import datetime, timedelta
from decimal import Decimal
from typing import NewType, TypeAlias, TypeVar

import msgspec
import typer
from rich.cells import cell_len, set_cell_size
from rich.console import Console, RenderableType
from rich.segment import Segment, Segments
from rich.text import Text
from rich.theme import Theme

from mainspring.config import Settings
from mainspring.core.errors import InvalidInput
from mainspring.error_table import with_hints

_REPLACEMENT = "\N{REPLACEMENT CHARACTER}"
_JOINERS = re.compile(
    "(?<=[^\x00-\x7f])[\u200c\u200d](?=[^\x00-\x7f])"
    "|(?<=\U0001f3f4)[\U000e0020-\U000e007e]{1,8}\U000e007f"
)
"""Characters that join others, in emoji and in many scripts; the tags of a flag."""


def sanitize_line(text: str) -> str:
    """The text without line ends and control characters."""
    if text.isprintable():
        return text
    joined = " ".join(text.split()) if not text.isspace() else " "
    return _replace_unprintable(joined, "", lambda _: _REPLACEMENT)


def sanitize_text(text: str) -> str:
    """Text without control characters other than line ends and tabs."""
    if text.isprintable():
        return text
    return _replace_unprintable(text.replace("\r\n", "\n"), "\n\t", lambda _: _REPLACEMENT)


def escape_json(encoded: bytes) -> bytes:
    """JSON of the same value, with the control characters in its strings escaped."""
    text = encoded.decode("utf-8", "surrogatepass")
    return (
        encoded if text.isprintable() else _replace_unprintable(text, "\n", _json_escape).encode()
    )


def _replace_unprintable(text: str, allowed: str, replacement: Callable[[str], str]) -> str:
    joiners = {index for match in _JOINERS.finditer(text) for index in range(*match.span())}
    return "".join(
        character
        if character.isprintable() or character in allowed or index in joiners
        else replacement(character)
        for index, character in enumerate(text)
    )


def _json_escape(character: str) -> str:
    units = character.encode("utf-16-be", "surrogatepass")
    return "".join(f"\\u{units[at : at + 2].hex()}" for at in range(0, len(units), 2))


TerminalCode = NewType("TerminalCode", str)
"""Text with control sequences, all of them ours."""
StyledText: TypeAlias = tuple[str, str]
"""A text and its Rich style."""

_AGE_UNITS = (("w", 7 * 86400), ("d", 86400), ("h", 3600), ("m", 60), ("s", 1))


_LIGHT_STYLES = {
    "markdown.code": "bold blue",
    "markdown.h1": "bold",
    "markdown.item.bullet": "bold blue",
    "markdown.item.number": "bold blue",
    "markdown.block_quote": "dark_magenta",
}
"""Replace styles of Rich that are illegible on a bright background."""


class Screen:
    """Standard output or standard error, at a terminal or not."""

    def __init__(self, settings: Settings, *, stderr: bool = False) -> None:
        self._stream = sys.stderr if stderr else sys.stdout
        self._console = Console(
            file=self._stream,
            color_system="auto" if settings.color else None,
            highlight=False,
            markup=False,
            emoji=False,
            theme=Theme(_LIGHT_STYLES) if settings.is_light else None,
        )
        self.is_light = settings.is_light
        self.width: int | None = self._console.width if self._console.is_terminal else None
        """Columns of the terminal; `None` if there is none: then nothing is truncated."""
        is_plain = settings.is_for_screen_reader or self._console.is_dumb_terminal
        self.can_redraw = self.width is not None and not is_plain
        """Whether a line can be overwritten."""

    @property
    def size(self) -> tuple[int, int]:
        """The current columns and rows; a terminal may be resized."""
        return self._console.width, self._console.height

    def id_text(self, identifier: str) -> str:
        """An id: short at a terminal, whole elsewhere."""
        return identifier if self.width is None else identifier[-8:]

    def dim(self, words: str) -> str:
        return words if self._console.color_system is None else f"\x1b[2m{words}\x1b[0m"

    def line(self, *parts: StyledText) -> None:
        """Print one line, truncated to the terminal's width."""
        spans = [(sanitize_line(words), style) for words, style in parts]
        if self.width is None:  # many times faster than Rich, for long logs
            self._stream.write("".join(words for words, _ in spans).rstrip() + "\n")
            return
        text = Text.assemble(*spans)
        text.rstrip()
        text.truncate(self.width, overflow="ellipsis")
        self._console.print(text, soft_wrap=True)

    def paragraph(self, *parts: StyledText, indent: int = 0) -> None:
        """Print text that wraps; nothing is truncated."""
        if self.width is None:
            self.line((" " * indent, ""), *parts)
            return
        text = Text.assemble(*((sanitize_line(words), style) for words, style in parts))
        if not indent:  # the terminal wraps it, so that you can copy it as one line
            self._console.print(text, soft_wrap=True)
            return
        for row in text.wrap(self._console, max(self.width - indent, 20)):
            row.rstrip()
            self._console.print(Text(" " * indent) + row, soft_wrap=True)

    def table(self, heads: Sequence[str], rows: Sequence[Sequence[StyledText]]) -> None:
        """Print aligned columns; empty columns are left out."""
        columns = [index for index in range(len(heads)) if any(row[index][0] for row in rows)]
        lines: list[list[StyledText]] = [[(heads[index], "dim") for index in columns]]
        for row in rows:
            lines.append([(sanitize_line(row[index][0]), row[index][1]) for index in columns])
        widths = [
            max(cell_len(words) for words, _ in column) for column in zip(*lines, strict=True)
        ]
        for line in lines:
            self.line(*(pad(part, width + 2) for part, width in zip(line, widths, strict=True)))

    def show(self, renderable: RenderableType) -> None:
        """Print a Rich renderable; for terminals."""
        self._console.print(renderable)

    def block(self, renderable: RenderableType) -> None:
        """Like `show`, without empty lines around it."""
        lines = self._console.render_lines(renderable, pad=False)
        full = [
            index
            for index, line in enumerate(lines)
            if any(segment.text.strip() for segment in line)
        ]
        for line in lines[full[0] : full[-1] + 1] if full else ():
            self._console.print(Segments([*_trim_end(line), Segment.line()]), soft_wrap=True)

    def raw(self, code: TerminalCode) -> None:
        """Write text with control sequences of our own, and flush."""
        self._stream.write(code)
        self._stream.flush()

    def text(self, text: str) -> None:
        """Write lines of any text without control characters, and flush."""
        self.raw(TerminalCode(sanitize_text(text)))

    def json(self, value: object) -> None:
        """Print a value as one line of JSON, and flush."""
        self.json_line(msgspec.json.encode(value))

    def json_line(self, encoded: bytes) -> None:
        """Print a line of encoded JSON. At a terminal, control characters are escaped."""
        self._stream.buffer.write(encoded if self.width is None else escape_json(encoded))
        self._stream.buffer.write(b"\n")
        self._stream.flush()


Item = TypeVar("Item")


def print_list(
    settings: Settings,
    items: Sequence[Item],
    *,
    json: bool,
    heads: Sequence[str],
    row: Callable[[Item], Sequence[StyledText]],
    empty: str,
) -> int:
    """Print a table, or with `json` one object per line. If there are no items, `empty` is printed
    to standard error. Returns the exit status."""
    screen = Screen(settings)
    if json:
        for item in items:
            screen.json(item)
    elif items:
        screen.table(heads, [row(item) for item in items])
    else:
        print_note(settings, empty)
    return 0


def print_result(settings: Settings, value: object, *text: StyledText, json: bool) -> int:
    """Print the result of a command: one line of text, or with `json` the value. Returns the exit
    status."""
    return print_view(settings, value, lambda screen, _: screen.line(*text), json=json)


def print_view(
    settings: Settings, value: Item, show: Callable[[Screen, Item], None], *, json: bool
) -> int:
    """Print a value with `show`, or with `json` as JSON. Returns the exit status."""
    screen = Screen(settings)
    if json:
        screen.json(value)
    else:
        show(screen, value)
    return 0


def print_note(settings: Settings, note: str, style: str = "dim") -> None:
    """Print a remark to standard error, so that output can be piped."""
    Screen(settings, stderr=True).paragraph((note, style))


def confirm(
    settings: Settings,
    question: str,
    *,
    refusal: str = "this needs your consent, and there is no terminal for a confirmation",
    hint: str = "--yes gives consent without asking",
    declined: str = "nothing was changed",
) -> bool:
    """Ask at the terminal.

    Raises:
        InvalidInput: `refusal`: there is no terminal.
    """
    if not sys.stdin.isatty():
        raise with_hints(InvalidInput(refusal), hint)
    if typer.confirm(question, err=True):
        return True
    print_note(settings, declined)
    return False


def diff_style(line: str) -> str:
    """The style of a line of a unified diff."""
    return {"+": "green", "-": "red", "@": "cyan"}.get(line[:1], "")


def _trim_end(line: Sequence[Segment]) -> list[Segment]:
    """Remove the spaces at the end of a line."""
    parts = [*line]
    while parts and not parts[-1].text.strip():
        parts.pop()
    if parts:
        text, style, control = parts[-1]
        parts[-1] = Segment(text.rstrip(), style, control)
    return parts


def pad(text: StyledText, width: int) -> StyledText:
    words, style = text
    return set_cell_size(words, max(width, cell_len(words))), style


def age_text(age: timedelta) -> str:
    seconds = max(0, int(age.total_seconds()))
    for unit, size in _AGE_UNITS:
        if seconds >= size * (2 if unit == "w" else 1):
            return f"{seconds // size}{unit} ago"
    return "now"


def local_time(moment: datetime) -> str:
    """In the local time zone, like all times that are printed."""
    return moment.astimezone().strftime("%Y-%m-%d %H:%M")


def short_time(moment: datetime, now: datetime) -> str:
    """In at most 11 columns: without the time of day if it is long ago."""
    is_recent = abs(now - moment) < timedelta(days=300)
    return moment.astimezone().strftime("%m-%d %H:%M" if is_recent else "%Y-%m-%d")


def duration_text(span: timedelta) -> str:
    seconds = max(0.0, span.total_seconds())
    if seconds < 0.95:
        return f"{seconds * 1000:.0f} ms"
    return f"{seconds:.1f} s" if seconds < 60 else f"{seconds // 60:.0f} min {seconds % 60:.0f} s"


def token_count(tokens: int) -> str:
    """In at most five columns."""
    for unit, size in (("M", 1_000_000), ("k", 1_000)):
        if tokens >= size * 10:
            return f"{tokens / size:.0f}{unit}"
        if tokens >= size:
            return f"{tokens / size:.1f}{unit}"
    return str(tokens)


def dollars(amount: Decimal) -> str:
    """With two decimals; below one dollar with four."""
    if not amount or amount >= 1:
        return f"${amount:.2f}"
    return f"${amount:.4f}" if amount >= Decimal("0.0001") else "<$0.0001"


def plural(number: int, noun: str) -> str:
    return f"{number} {noun}" if number == 1 else f"{number} {noun}s"


def byte_size(number: int) -> str:
    size = float(number)
    for unit in ("B", "kB", "MB"):
        if size < 1000:
            return f"{size:.0f} {unit}" if unit == "B" else f"{size:.1f} {unit}"
        size /= 1000
    return f"{size:.1f} GB"
