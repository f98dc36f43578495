"""How long instruction files may be, and where one that is too long is cut."""

from __future__ import annotations

import re
from dataclasses import dataclass

_HEADING = re.compile(r"^#{1,6} ", re.MULTILINE)
_SHARE_OF_WINDOW = 0.15
_CHARS_PER_TOKEN = 3.5
_DEFAULT_WINDOW = 200_000


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    max_chars: int = round(_DEFAULT_WINDOW * _SHARE_OF_WINDOW * _CHARS_PER_TOKEN)
    """Of all files together, and so of each."""
    max_files: int = 200

    @classmethod
    def of_window(cls, tokens: int) -> Limits:
        """The share of a model's context window that instruction files may take."""
        return cls(max_chars=round(tokens * _SHARE_OF_WINDOW * _CHARS_PER_TOKEN))


def cut_point(text: str, max_chars: int) -> int:
    """Before the last heading that fits, if that keeps at least half; else at a line's end."""
    headings = [mark.start() for mark in _HEADING.finditer(text, max_chars // 2, max_chars)]
    return headings[-1] if headings else (text.rfind("\n", 0, max_chars) + 1 or max_chars)
