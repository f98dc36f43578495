"""Characters that make a text look like something else than it is."""

from __future__ import annotations

import unicodedata

MAX_CHARS = 10_000

# Letters and marks without a shape of their own; the categories below do not have them.
_BLANK_LETTERS = frozenset("\u115f\u1160\u17b4\u17b5\u2800\u3164\uffa0\u034f")
# Control, format (bidi, zero width), surrogate, private, unassigned, and separators.
_HIDDEN = frozenset({"Cc", "Cf", "Cs", "Co", "Cn", "Zs", "Zl", "Zp"})


def disguise(text: str) -> str | None:
    """Why `text` may not be what it looks like, or None."""
    if len(text) > MAX_CHARS:
        return f"longer than {MAX_CHARS:,} characters"
    for char in text:
        if not " " <= char <= "~" and char not in "\n\t" and _is_hidden(char):
            return f"contains the character U+{ord(char):04X}, which is not seen"
    return None


def _is_hidden(char: str) -> bool:
    return char in _BLANK_LETTERS or unicodedata.category(char) in _HIDDEN
