"""The difference of two texts, as people and models read it."""

from __future__ import annotations

import re
from collections.abc import Sequence
from difflib import unified_diff
from itertools import takewhile

_CONTEXT = 3
_MAX_LINES = 4000
_HUNK = re.compile(r"@@ -(\d+)(,\d+)? \+(\d+)(,\d+)? @@")


def diff_of(path: str, before: str, after: str) -> str:
    """A unified diff. What is the same at both ends is not even looked at, so it is never slow."""
    old, new = before.splitlines(), after.splitlines()
    head = _same(old, new)
    tail = _same(old[head:][::-1], new[head:][::-1])
    first = max(0, head - _CONTEXT)
    last = max(0, tail - _CONTEXT)
    old_part, new_part = old[first : len(old) - last], new[first : len(new) - last]
    if len(old_part) + len(new_part) > _MAX_LINES:
        return (
            f"{path}: {len(old_part):,} lines become {len(new_part):,}, from line {head + 1:,} on"
        )
    lines = unified_diff(old_part, new_part, path, path, n=_CONTEXT, lineterm="")
    shown = "\n".join(_HUNK.sub(lambda hunk: _moved(hunk, first), line, count=1) for line in lines)
    return shown or f"{path}: only line ends differ"


def _same(old: Sequence[str], new: Sequence[str]) -> int:
    return sum(1 for _ in takewhile(lambda pair: pair[0] == pair[1], zip(old, new, strict=False)))


def _moved(hunk: re.Match[str], by: int) -> str:
    old, old_count, new, new_count = hunk.groups(default="")
    return f"@@ -{int(old) + by}{old_count} +{int(new) + by}{new_count} @@"
