"""What a model may have meant by a text that is not in a file."""

from __future__ import annotations

import re
from difflib import SequenceMatcher

_MAX_LINES = 4000
_MAX_CHARS = 300
_ALIKE = 0.6
_NUMBERED = re.compile(r"^\s*\d+\t")


def hint(text: str, wanted: str) -> str:
    """In a sentence or a few lines, for the model that looked for it; empty if nothing is near."""
    lines, asked = text.split("\n"), wanted.split("\n")
    if all(_NUMBERED.match(line) for line in asked if line):
        return "The numbers before the lines are not in the file: leave them out."
    if (at := _spaced(lines, asked)) is not None:
        found = "\n".join(lines[at : at + len(asked)])
        return f"Only spaces and tabs differ at line {at + 1}, which has:\n{found}"
    if (at := _alike(lines, asked)) is not None:
        found = "\n".join(line[:_MAX_CHARS] for line in lines[at : at + len(asked)])
        return f"The nearest is at line {at + 1}:\n{found}"
    return ""


def _spaced(lines: list[str], asked: list[str]) -> int | None:
    """Where the same words stand with other spaces between them."""
    wanted = [line.split() for line in asked]
    if not any(wanted):
        return None
    words = [line.split() for line in lines]
    for at in range(len(words) - len(wanted) + 1):
        if words[at] == wanted[0] and words[at : at + len(wanted)] == wanted:
            return at
    return None


def _alike(lines: list[str], asked: list[str]) -> int | None:
    """Where the longest line of what was asked for has its likest, counted from the first one."""
    offset, longest = max(enumerate(asked), key=lambda line: len(line[1].strip()))
    matcher = SequenceMatcher(b=longest.strip()[:_MAX_CHARS], autojunk=False)
    best, where = _ALIKE, None
    for at, line in enumerate(lines[:_MAX_LINES]):
        matcher.set_seq1(line.strip()[:_MAX_CHARS])
        if matcher.real_quick_ratio() > best and matcher.quick_ratio() > best:
            ratio = matcher.ratio()
            if ratio > best:
                best, where = ratio, at
    return None if where is None else max(0, where - offset)
