"""Calls that are not what the model asked for any more: the log takes secrets out of them."""

from __future__ import annotations

import re
from collections.abc import Mapping

import msgspec

from mainspring.core.tool import Tool

_LABEL = re.compile(rb"\[redacted:[a-z0-9_]+\]")
_WHY = (
    "Not done: {} stands in the place of what looks like a secret, and would be written or run like"
    " that. Leave out the secret, or have the program take it from a variable of its environment;"
    " in tests and examples write a placeholder, such as `changeme` or `test-password`; change a"
    " part of a file rather than the whole."
)


def altered(tool: Tool, given: Mapping[str, object]) -> str | None:
    """Why a call must not be carried out as it stands, in words for the model."""
    if tool.traits(given).read_only:
        return None
    found = _LABEL.search(msgspec.json.encode(given))
    return None if found is None else _WHY.format(found.group().decode())
