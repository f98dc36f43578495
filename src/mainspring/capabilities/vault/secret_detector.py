"""One kind of secret: how it is detected, by regular expressions over bytes in linear time (RE2),
and the label that replaces it."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import TypeAlias

import re2
from msgspec import Struct

_BYTEWISE = re2.Options()
_BYTEWISE.encoding = re2.Options.Encoding.LATIN1
_BYTEWISE.max_mem = 32 << 20


class LazyPattern:
    """A pattern compiled on first use: most of a hundred detectors are never used."""

    __slots__ = ("_compiled", "_pattern")

    def __init__(self, pattern: bytes) -> None:
        self._pattern = pattern
        self._compiled: re2.Pattern[bytes] | None = None

    def _get(self) -> re2.Pattern[bytes]:
        if self._compiled is None:
            self._compiled = re2.compile(self._pattern, _BYTEWISE)
        return self._compiled

    def search(self, text: bytes, begin: int = 0, /) -> re2.Match[bytes] | None:
        return self._get().search(text, begin)

    def match(self, text: bytes, /) -> re2.Match[bytes] | None:
        return self._get().match(text)

    def fullmatch(self, text: bytes, /) -> re2.Match[bytes] | None:
        return self._get().fullmatch(text)

    def finditer(self, text: bytes, /) -> Iterator[re2.Match[bytes]]:
        return self._get().finditer(text)

    def sub(self, replacement: bytes, text: bytes, /) -> bytes:
        return self._get().sub(replacement, text)


def compile_pattern(pattern: bytes) -> LazyPattern:
    return LazyPattern(pattern)


def escape_literal(text: bytes) -> bytes:
    """A pattern that matches exactly this text."""
    return re2.escape(text)


def any_literal(texts: Iterable[bytes]) -> bytes:
    """A pattern that matches exactly these texts; without any, it matches nothing."""
    return b"|".join(map(escape_literal, texts)) or rb"[^\x00-\xff]"


class PatternSet:
    """Searches for many patterns in two passes. A pattern with a large count (`{64}`) would
    multiply the states of the others: most bytes of an id would create a new state, at fifty
    times the cost of a known one. Those patterns get their own automaton."""

    def __init__(self, patterns: Iterable[bytes]) -> None:
        numbered = list(enumerate(patterns))
        counting = [item for item in numbered if _COUNTS_MANY.search(item[1])]
        plain = [item for item in numbered if item not in counting]
        self._automata = [_automaton(group) for group in (plain, counting) if group]

    def __call__(self, text: bytes) -> list[int]:
        """The numbers of the patterns that match somewhere in the text, in no order."""
        return [numbers[place] for match, numbers in self._automata for place in match(text) or ()]


_COUNTS_MANY = re.compile(rb"\{\d{2,}\}")


def _automaton(
    numbered: Sequence[tuple[int, bytes]],
) -> tuple[Callable[[bytes], list[int] | None], list[int]]:
    matcher = re2.Set.SearchSet(_BYTEWISE)
    for _, pattern in numbered:
        matcher.Add(pattern)
    matcher.Compile()
    return matcher.Match, [number for number, _ in numbered]


LINE_PREFIX = r"(?:[^\s\\:]{1,200}[:-])?\d{1,6}(?:\t|\\+t|→|[:|-])"
"""What tools print before a line: its file and its number."""
SecretCheck: TypeAlias = Callable[["re2.Match[bytes]", bytes], bool]
"""Whether a match in a text is a secret."""


class Detector(Struct, frozen=True):
    kind: str
    trigger: str
    """A cheap pattern that matches every text with such a secret, and few others."""
    pattern: LazyPattern
    is_secret: SecretCheck = lambda _, __: True
    group: int = 1
    """The group that is redacted; the last one."""

    def redacted(self, text: bytes) -> bytes:
        pieces: list[bytes] = []
        end = 0
        for match in self.pattern.finditer(text):
            start, stop = match.span(self.group)
            if start >= end and self.is_secret(match, text):
                pieces += (text[end:start], redaction_label(self.kind))
                end = stop
        return b"".join((*pieces, text[end:])) if pieces else text


def redaction_label(kind: str) -> bytes:
    return f"[redacted:{kind}]".encode()


def value_detector(
    kind: str, trigger: str, pattern: str, is_value: Callable[[bytes], bool] | None = None
) -> Detector:
    """A detector whose secret is the first group, if `is_value` accepts it."""
    if is_value is None:
        return Detector(kind, trigger, compile_pattern(pattern.encode()))
    compiled = compile_pattern(pattern.encode())
    return Detector(kind, trigger, compiled, lambda match, _: is_value(match.group(1)))
