"""Reads the complete part of JSON that is still being written."""

from __future__ import annotations

import re

import msgspec

_CLOSERS = {"{": "}", "[": "]"}
_CUT_ESCAPE = re.compile(r"(?<!\\)(?:\\\\)*(\\(?:u[0-9a-fA-F]{0,3})?)$")


def read_partial(text: str) -> object:
    """The value of an incomplete JSON text; `None` if there is none yet.

    An incomplete string is included as it is. A key without a value is left out, as is a number or
    a word that may be incomplete.
    """
    closers, is_in_string, end_of_values = _open_parts(text)
    end = "".join(reversed(closers))
    complete = text
    if is_in_string:
        if cut_escape := _CUT_ESCAPE.search(text):
            complete = text[: cut_escape.start(1)]
        complete += '"'
    elif closers and text[-1:] not in ("}", "]", '"'):
        complete = text[:end_of_values]
    for candidate in (complete + end, text[:end_of_values] + end):
        try:
            return msgspec.json.decode(candidate)
        except (msgspec.DecodeError, RecursionError):
            continue
    return None


def _open_parts(text: str) -> tuple[list[str], bool, int]:
    """The closers of open objects and lists, whether a string is open, and where the last complete
    member ends."""
    closers: list[str] = []
    is_in_string = is_escaped = False
    end_of_values = 0
    for at, character in enumerate(text):
        if is_in_string:
            is_in_string = is_escaped or character != '"'
            is_escaped = character == "\\" and not is_escaped
        elif character == '"':
            is_in_string = True
        elif character in _CLOSERS:
            closers.append(_CLOSERS[character])
            end_of_values = at + 1
        elif character in "}]" and closers:
            closers.pop()
            end_of_values = at + 1
        elif character == ",":
            end_of_values = at
    return closers, is_in_string, end_of_values
