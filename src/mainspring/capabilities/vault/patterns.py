"""Regular expressions over bytes, in linear time: RE2 with types, and nothing else of it."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Protocol, cast

import re2  # pyright: ignore[reportMissingTypeStubs]


class Match(Protocol):
    def group(self, number: int = 0, /) -> bytes: ...
    def span(self, number: int = 0, /) -> tuple[int, int]: ...


class Pattern(Protocol):
    def search(self, text: bytes, begin: int = 0, /) -> Match | None: ...
    def match(self, text: bytes, /) -> Match | None: ...
    def fullmatch(self, text: bytes, /) -> Match | None: ...
    def finditer(self, text: bytes, /) -> Iterator[Match]: ...
    def sub(self, replacement: bytes, text: bytes, /) -> bytes: ...


class _Set(Protocol):
    def Add(self, pattern: bytes, /) -> int: ...  # noqa: N802 (RE2's name)
    def Compile(self) -> None: ...  # noqa: N802
    def Match(self, text: bytes, /) -> list[int] | None: ...  # noqa: N802


_BYTEWISE = re2.Options()
_BYTEWISE.encoding = re2.Options.Encoding.LATIN1  # pyright: ignore[reportUnknownMemberType]
_BYTEWISE.max_mem = 32 << 20


def compiled(pattern: bytes) -> Pattern:
    return cast("Pattern", re2.compile(pattern, _BYTEWISE))  # pyright: ignore[reportUnknownMemberType]


def literally(text: bytes) -> bytes:
    """A pattern for exactly this text."""
    return cast("bytes", re2.escape(text))  # pyright: ignore[reportUnknownMemberType]


def any_of(texts: Iterable[bytes]) -> bytes:
    """A pattern for exactly these texts; for nothing, if there are none."""
    return b"|".join(map(literally, texts)) or rb"[^\x00-\xff]"


class Hints:
    """Many patterns looked for in one pass."""

    def __init__(self, patterns: Iterable[bytes]) -> None:
        found = cast("_Set", re2.Set.SearchSet(_BYTEWISE))  # pyright: ignore[reportUnknownMemberType]
        for pattern in patterns:
            found.Add(pattern)
        found.Compile()
        self._match = found.Match

    def __call__(self, text: bytes) -> list[int] | None:
        """The numbers of those that are somewhere in the text, in no order."""
        return self._match(text)
