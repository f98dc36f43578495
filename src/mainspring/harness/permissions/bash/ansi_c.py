"""What bash makes of the inside of `$'...'`."""

from __future__ import annotations

import re

_LETTERS = {
    "a": "\a",
    "b": "\b",
    "e": "\x1b",
    "E": "\x1b",
    "f": "\f",
    "n": "\n",
    "r": "\r",
    "t": "\t",
    "v": "\v",
    "\\": "\\",
    "'": "'",
    '"': '"',
    "?": "?",
}
_ESCAPE = re.compile(
    r"\\(?:([0-7]{1,3})|x([0-9A-Fa-f]{1,2})|u([0-9A-Fa-f]{1,4})|U([0-9A-Fa-f]{1,8})|(.))", re.DOTALL
)


def decode_ansi_c(inner: str) -> str | None:
    """None for what is not plain ASCII afterwards, or that bash itself would cut short."""
    decoded: list[str] = []
    at = 0
    for escape in _ESCAPE.finditer(inner):
        decoded.append(inner[at : escape.start()])
        at = escape.end()
        char = _char(escape)
        if char is None:
            return None
        decoded.append(char)
    return "".join([*decoded, inner[at:]])


def _char(escape: re.Match[str]) -> str | None:
    octal, hexadecimal, short, long, letter = escape.groups()
    if letter is not None:
        return _LETTERS.get(letter)
    code = int(octal, 8) if octal else int(hexadecimal or short or long, 16)
    return chr(code) if 0 < code < 128 else None
