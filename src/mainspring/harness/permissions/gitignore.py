"""Patterns of `.gitignore`, matched without regular expressions: no pattern and no path is slow."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import TypeAlias, TypeVar

from mainspring.core.errors import InvalidInput

_ANYTHING = "**"


@dataclass(frozen=True, slots=True)
class CharClass:
    """`[a-z]`, `[!a-z]`."""

    is_negated: bool
    ranges: tuple[tuple[str, str], ...]

    def has(self, character: str) -> bool:
        return self.is_negated != any(low <= character <= high for low, high in self.ranges)


@dataclass(frozen=True, slots=True)
class Wildcard:
    """`*`, or `?` if it is exactly one."""

    is_one: bool


Token: TypeAlias = str | CharClass | Wildcard
Segment: TypeAlias = tuple[Token, ...]
_STAR = Wildcard(False)

P = TypeVar("P")
T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class GitignorePattern:
    segments: tuple[Segment | str, ...]
    """Folder by folder; `**` stands for any number of them."""
    is_anchored: bool
    """Begins where the pattern's folder does; else it may begin anywhere below."""
    is_folder_only: bool

    def matches(self, path: str, *, is_folder: bool = False) -> bool:
        """Whether a path, relative to the pattern's folder, or a folder that it is in is meant."""
        names = path.split("/")
        lengths = range(1, len(names) + (is_folder or not self.is_folder_only))
        if not self.is_anchored:
            segment = self.segments[0]
            return any(_names(segment, names[length - 1]) for length in lengths)
        return any(_spans(self.segments, names[:length]) for length in lengths)

    def may_match_below(self, folder: str) -> bool:
        """Whether it may mean something in a folder, at any depth."""
        if not self.is_anchored:
            return True
        for segment, name in zip(self.segments, folder.split("/"), strict=False):
            if segment == _ANYTHING:
                return True
            if not _names(segment, name):
                return False
        return True


@lru_cache(maxsize=4096)
def compile_pattern(pattern: str) -> GitignorePattern:
    """
    Raises:
        InvalidInput: it cannot match anything, or not what it seems to.
    """
    if not pattern.strip("/"):
        raise InvalidInput("the pattern names nothing")
    if pattern.startswith("!"):
        raise InvalidInput(r"a pattern cannot take something out again; write \! for the character")
    bare = pattern.removesuffix("/")
    texts = bare.removeprefix("/").split("/")
    if any(text in ("", ".", "..") for text in texts):
        raise InvalidInput(f"{pattern}: a folder in a pattern cannot be empty, `.` or `..`")
    segments = tuple(_ANYTHING if text == _ANYTHING else _tokens(text) for text in texts)
    if segments[-1] == _ANYTHING:
        segments = (*segments, (_STAR,))  # what is inside a folder, not the folder
    return GitignorePattern(segments, is_anchored="/" in bare, is_folder_only=bare != pattern)


def escape_path(path: str) -> str:
    """The pattern that means a path and nothing else."""
    return "".join(f"\\{item}" if item in "\\*?[!" else item for item in path)


def _tokens(text: str) -> Segment:
    tokens: list[Token] = []
    at = 0
    while at < len(text):
        match text[at]:
            case "*":
                if tokens[-1:] != [_STAR]:
                    tokens.append(_STAR)
            case "?":
                tokens.append(Wildcard(True))
            case "[":
                found, at = _char_class(text, at)
                tokens.append(found)
            case "\\":
                at += 1
                if at == len(text):
                    raise InvalidInput(f"{text}: a backslash at the end escapes nothing")
                tokens.append(text[at])
            case other:
                tokens.append(other)
        at += 1
    return tuple(tokens)


def _char_class(text: str, start: int) -> tuple[CharClass, int]:
    """The class that begins at `[`, and where its `]` is."""
    at = start + 1
    is_negated = text[at : at + 1] in ("!", "^")
    at += is_negated
    ranges: list[tuple[str, str]] = []
    first = at
    while at < len(text) and (text[at] != "]" or at == first):
        if text.startswith("[:", at):
            raise InvalidInput(f"{text}: classes like [:alpha:] are not understood")
        low, at = _member(text, at)
        high = low
        if text[at : at + 1] == "-" and text[at + 1 : at + 2] not in ("", "]"):
            high, at = _member(text, at + 1)
        ranges.append((low, high))
    if at >= len(text):
        raise InvalidInput(f"{text}: a [ without its ]")
    return CharClass(is_negated, tuple(ranges)), at


def _member(text: str, at: int) -> tuple[str, int]:
    at += text[at] == "\\"
    if at >= len(text):
        raise InvalidInput(f"{text}: a [ without its ]")
    return text[at], at + 1


def _spans(segments: Sequence[Segment | str], names: Sequence[str]) -> bool:
    return _wild_match(segments, names, lambda segment: segment == _ANYTHING, _names)


def _names(segment: Segment | str, name: str) -> bool:
    if segment == _ANYTHING:
        return True
    ends = ((segment[0], name[:1]), (segment[-1], name[-1:]))
    if any(isinstance(token, str) and token != character for token, character in ends):
        return False  # at once: whole workspaces are held against patterns
    return _wild_match(segment, name, lambda token: token == _STAR, _stands_for)


def _stands_for(token: Token, character: str) -> bool:
    match token:
        case str():
            return token == character
        case CharClass():
            return token.has(character)
        case Wildcard():
            return True


def _wild_match(
    pattern: Sequence[P],
    subject: Sequence[T],
    is_any: Callable[[P], bool],
    fits: Callable[[P, T], bool],
) -> bool:
    """A mismatch goes back to the last wildcard only: at worst pattern times subject."""
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
