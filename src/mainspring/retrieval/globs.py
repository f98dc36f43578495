"""Matches globs folder by folder without regular expressions, so that no pattern or path is slow.

`*`, `?` and `[a-z]` stay in one folder, `**` spans folders. The dialects that share this matcher:
gitignore in permission rules (`harness/permissions/path_rules.py`), the tools `glob` and `grep`
(`capabilities/tools/glob.py`), and `matches_glob` for path-scoped rules and skills.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from functools import lru_cache
from typing import TypeAlias, TypeVar

from msgspec import Struct

from mainspring.core.errors import InvalidInput

P = TypeVar("P")
T = TypeVar("T")
_BRACES = re.compile(r"(?<!\\)\{([^{}]*,[^{}]*?)(?<!\\)\}")
_MAX_CHOICES = 256  # that braces may stand for


class CharClass(Struct, frozen=True):
    """`[a-z]`, `[!a-z]`."""

    is_negated: bool
    ranges: tuple[tuple[str, str], ...]

    def has(self, character: str) -> bool:
        return self.is_negated != any(low <= character <= high for low, high in self.ranges)


Token: TypeAlias = str | CharClass
"""A character, a class of them, or `*`."""
_STAR = ""
_ANY_CHARACTER = CharClass(True, ())


class Segment(Struct, frozen=True):
    """The part of a pattern between two slashes."""

    tokens: tuple[Token, ...]
    parts: tuple[str, ...] | None
    """The texts between its stars, if it has no other wildcards."""

    def matches(self, name: str) -> bool:
        if self.parts is not None:
            return matches_parts(self.parts, name)
        return _wild_match(self.tokens, name, lambda token: token == _STAR, _matches_token)


ANY_FOLDERS = Segment((_STAR, _STAR), ("", "", ""))
"""`**`. As the only segment of a pattern it matches every name."""


def matches_glob(glob: str, path: str) -> bool:
    """Whether a glob without braces matches a path; both are relative to the same folder."""
    bare = glob.removeprefix("./").lstrip("/")
    return spans(_lenient_segments(f"{bare}**" if bare.endswith("/") else bare), path.split("/"))


@lru_cache(maxsize=4096)
def _lenient_segments(glob: str) -> tuple[Segment, ...]:
    return glob_segments(glob.split("/"), is_lenient=True)


def expand_braces(glob: str) -> tuple[str, ...]:
    """The globs that a glob with braces expands to.

    Raises:
        InvalidInput: there are too many.
    """
    expanded: list[str] = []
    pending = [glob]
    while pending:
        pattern = pending.pop()
        braces = _BRACES.search(pattern)
        if braces is None:
            expanded.append(pattern)
        else:
            before, after = pattern[: braces.start()], pattern[braces.end() :]
            pending += (f"{before}{choice}{after}" for choice in reversed(braces[1].split(",")))
        if len(expanded) + len(pending) > _MAX_CHOICES:
            raise InvalidInput(f"the glob {glob} expands to more than {_MAX_CHOICES} globs")
    return tuple(expanded)


def matches_parts(parts: Sequence[str], text: str) -> bool:
    """Whether a text consists of these parts, with any text between them: a pattern, split at its
    stars."""
    first, *rest = parts
    if not rest:
        return text == first
    *middle, last = rest
    at, end = len(first), len(text) - len(last)
    if at > end or not (text.startswith(first) and text.endswith(last)):
        return False
    for part in middle:
        at = text.find(part, at, end)
        if at < 0:
            return False
        at += len(part)
    return True


def glob_segments(texts: Sequence[str], *, is_lenient: bool = False) -> tuple[Segment, ...]:
    return tuple(ANY_FOLDERS if text == "**" else _segment(text, is_lenient) for text in texts)


def _segment(text: str, is_lenient: bool = False) -> Segment:
    tokens: list[Token] = []
    at = 0
    while at < len(text):
        try:
            token, at = _token(text, at)
        except InvalidInput:
            if not is_lenient:
                raise
            token, at = text[at], at + 1
        tokens.append(token)
    parts = [""]
    for token in tokens:
        if token == _STAR:
            parts.append("")
        elif isinstance(token, str):
            parts[-1] += token
        else:
            return Segment(tuple(tokens), None)
    return Segment(tuple(tokens), tuple(parts))


def _token(text: str, at: int) -> tuple[Token, int]:
    """The token that begins here, and the position of the next one."""
    match text[at]:
        case "*":
            return _STAR, at + 1
        case "?":
            return _ANY_CHARACTER, at + 1
        case "[":
            return _char_class(text, at)
        case "\\":
            if at + 1 == len(text):
                raise InvalidInput(f"{text}: a backslash at the end escapes nothing")
            return text[at + 1], at + 2
        case character:
            return character, at + 1


def _char_class(text: str, start: int) -> tuple[CharClass, int]:
    at = start + 1
    is_negated = text[at : at + 1] in ("!", "^")
    at += is_negated
    ranges: list[tuple[str, str]] = []
    first = at
    while at < len(text) and (text[at] != "]" or at == first):
        if text.startswith("[:", at):
            raise InvalidInput(f"{text}: classes like [:alpha:] are not supported")
        low, at = _member(text, at)
        high = low
        if text[at : at + 1] == "-" and text[at + 1 : at + 2] not in ("", "]"):
            high, at = _member(text, at + 1)
        ranges.append((low, high))
    if at >= len(text):
        raise InvalidInput(f"{text}: a [ without its ]")
    return CharClass(is_negated, tuple(ranges)), at + 1


def _member(text: str, at: int) -> tuple[str, int]:
    at += text[at] == "\\"
    if at >= len(text):
        raise InvalidInput(f"{text}: a [ without its ]")
    return text[at], at + 1


def _matches_token(token: Token, character: str) -> bool:
    return token == character if isinstance(token, str) else token.has(character)


def spans(segments: Sequence[Segment], names: Sequence[str]) -> bool:
    if segments[-1] is not ANY_FOLDERS and not segments[-1].matches(names[-1]):
        return False  # checked first for speed, since whole workspaces are matched
    return _wild_match(segments, names, lambda item: item is ANY_FOLDERS, Segment.matches)


def _wild_match(
    pattern: Sequence[P],
    subject: Sequence[T],
    is_any: Callable[[P], bool],
    fits: Callable[[P, T], bool],
) -> bool:
    """Match with backtracking to the last wildcard only, so at worst in quadratic time."""
    at = here = resume = 0
    star = -1
    while here < len(subject):
        if at < len(pattern) and is_any(pattern[at]):
            star, resume = at, here
            at += 1
        elif at < len(pattern) and fits(pattern[at], subject[here]):
            at, here = at + 1, here + 1
        elif star >= 0:
            resume += 1
            at, here = star + 1, resume
        else:
            return False
    return all(is_any(item) for item in pattern[at:])
