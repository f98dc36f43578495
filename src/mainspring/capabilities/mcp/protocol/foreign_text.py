"""Cleans text from MCP servers for the model: no hidden characters, limited length."""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import cast

MAX_DESCRIPTION = 2_048  # characters of a tool's description, as Claude Code limits it
_MAX_DEPTH = 64  # of a nested value; deeper ones exhaust the stack of recursive readers
_HIDDEN = re.compile(
    "[\U000e0000-\U000e0fff"  # tags and variation selectors: invisible text
    "\u200b\u200e\u200f\u202a-\u202e\u2060-\u206f\ufeff\u00ad\u061c\u180e"  # zero width, direction
    "\ufff9-\ufffb\ud800-\udfff"
    "\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x9f]"  # control characters, including terminal escapes
)


def clean_text(text: str) -> str:
    """Remove characters that are invisible to people."""
    return _HIDDEN.sub("", text)


def clean_line(text: str, limit: int) -> str:
    """The text on one line, truncated to a length."""
    line = " ".join(clean_text(text).split())
    return line if len(line) <= limit else f"{line[: limit - 1]}…"


def clean_description(text: str) -> str:
    cleaned = clean_text(text).strip()
    return cleaned if len(cleaned) <= MAX_DESCRIPTION else f"{cleaned[: MAX_DESCRIPTION - 1]}…"


def is_too_deep(value: object) -> bool:
    """Whether JSON is nested too deeply for recursive code."""
    level = [value]
    for _ in range(_MAX_DEPTH):
        level = [inner for item in level for inner in _items(item)]
        if not level:
            return False
    return True


def _items(value: object) -> Iterable[object]:
    if isinstance(value, dict):
        return cast("dict[str, object]", value).values()
    return cast("list[object]", value) if isinstance(value, list) else ()


def clean_value(value: object) -> object:
    """JSON of limited depth, with every string in it cleaned."""
    match value:
        case str():
            return clean_description(value)
        case list():
            return [clean_value(item) for item in cast("list[object]", value)]
        case dict():
            fields = cast("dict[str, object]", value)
            return {clean_line(key, 200): clean_value(item) for key, item in fields.items()}
        case _:
            return value
