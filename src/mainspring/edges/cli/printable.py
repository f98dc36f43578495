"""Text of others made fit for a terminal: nothing in it moves the cursor, changes the order in
which characters are shown, or is invisible. The only place that decides what is shown."""

from __future__ import annotations

import re
from collections.abc import Callable

_REPLACEMENT = "\N{REPLACEMENT CHARACTER}"
_JOINED = re.compile(
    "(?<=[^\x00-\x7f])[\u200c\u200d](?=[^\x00-\x7f])"
    "|(?<=\U0001f3f4)[\U000e0020-\U000e007e]{1,8}\U000e007f"
)
"""What joins characters: in emoji of several people and in many scripts; tags of a flag."""


def one_line(text: str) -> str:
    """Text without line ends or anything that could steer a terminal."""
    if text.isprintable():
        return text
    joined = " ".join(text.split()) if not text.isspace() else " "
    return _shown(joined, "", lambda _: _REPLACEMENT)


def clean(text: str) -> str:
    """Text without what could steer a terminal; lines and tabs stay."""
    if text.isprintable():
        return text
    return _shown(text.replace("\r\n", "\n"), "\n\t", lambda _: _REPLACEMENT)


def escaped(encoded: bytes) -> bytes:
    """JSON of the same value without anything in its strings that could steer a terminal."""
    text = encoded.decode("utf-8", "surrogatepass")
    return encoded if text.isprintable() else _shown(text, "\n", _as_escape).encode()


def _shown(text: str, kept: str, instead: Callable[[str], str]) -> str:
    whole = {found.start() + at for found in _JOINED.finditer(text) for at in range(len(found[0]))}
    return "".join(
        each if each.isprintable() or each in kept or index in whole else instead(each)
        for index, each in enumerate(text)
    )


def _as_escape(character: str) -> str:
    units = character.encode("utf-16-be", "surrogatepass")
    return "".join(f"\\u{units[at : at + 2].hex()}" for at in range(0, len(units), 2))
