"""What a program wrote to its terminal, as text: no escape sequences, no broken characters."""

from __future__ import annotations

import codecs
import re
from collections.abc import Callable

from mainspring.core.hands import Captured

# Each alternative stops at the next ESC, so the whole is linear in the text.
_ESCAPES = re.compile(
    r"\x1b\[[0-?]*[ -/]*[@-~]"  # CSI: colours, cursor
    r"|\x1b\][^\x07\x1b]*(?:\x07|\x1b\\)"  # OSC: titles, links
    r"|\x1b[PX^_][^\x1b]*\x1b\\"  # DCS, SOS, PM, APC
    r"|\x1b[ -/]*[0-OQ-WYZ\\`a-~]"  # any other
)
_BEGUN = re.compile(r"\x1b(?:\[[0-?]*[ -/]*|\][^\x07\x1b]*\x1b?|[PX^_][^\x1b]*\x1b?|[ -/]*)\Z|\r\Z")
_CONTROLS = re.compile(r"[\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x9f]")
_MAX_HELD = 200


def plain(text: str) -> str:
    """Without control sequences; a carriage return ends a line as a newline does."""
    lines = text.replace("\r\n", "\n").replace("\r", "\n")
    return _CONTROLS.sub("", _ESCAPES.sub("", lines))


def read_captured(stream: Captured) -> str:
    """A stream as text; where its middle is missing, how much that was."""
    if stream.left_out <= 0:
        return plain((stream.head + stream.tail).decode("utf-8", "replace"))
    head = stream.head.decode("utf-8", "replace")
    tail = stream.tail.decode("utf-8", "replace")
    return f"{plain(head)}\n[... {stream.left_out} bytes left out ...]\n{plain(tail)}"


class LiveText:
    """Output in pieces, as it comes; no piece ends inside a character or an escape sequence."""

    def __init__(self, say: Callable[[str], None]) -> None:
        self._say = say
        self._decoder = codecs.getincrementaldecoder("utf-8")("replace")
        self._held = ""

    def __call__(self, piece: bytes) -> None:
        text = self._held + self._decoder.decode(piece)
        self._held = _unfinished(text)
        shown = plain(text[: len(text) - len(self._held)])
        if shown:
            self._say(shown)


def _unfinished(text: str) -> str:
    """The end of a text that may be the beginning of an escape sequence or of a line's end."""
    finished = max((found.end() for found in _ESCAPES.finditer(text)), default=0)
    begun = _BEGUN.search(text, finished)
    held = "" if begun is None else begun[0]
    return held if len(held) <= _MAX_HELD else ""
