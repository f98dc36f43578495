"""One kind of secret: how it is detected, by regular expressions over bytes in linear time (RE2),
and the label that replaces it."""

from __future__ import annotations

import re
from base64 import b64decode
from collections.abc import Callable, Iterable, Iterator, Sequence
from string import ascii_letters, digits
from typing import TypeAlias

import re2
from msgspec import Struct

_BYTEWISE = re2.Options()
_BYTEWISE.encoding = re2.Options.Encoding.LATIN1
_BYTEWISE.max_mem = 32 << 20  # bytes of RE2's automaton; with less it falls back to a slower search


class LazyPattern:
    """A pattern compiled on first use: most of a hundred detectors are never used."""

    __slots__ = ("_compiled", "source")

    def __init__(self, source: bytes) -> None:
        self.source = source
        self._compiled: re2.Pattern[bytes] | None = None

    def _get(self) -> re2.Pattern[bytes]:
        if self._compiled is None:
            self._compiled = re2.compile(self.source, _BYTEWISE)
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


class ScanBudget:
    """How many candidates one scan may examine: each costs microseconds, and a hostile text has one
    every twenty bytes. A text with more is cut at the first candidate: nothing that nobody examined
    is kept."""

    __slots__ = ("_left",)

    def __init__(self, size: int) -> None:
        self._left = _CANDIDATES + size // _BYTES_PER_CANDIDATE

    def take(self, count: int = 1) -> bool:
        """Whether one more candidate may be examined; `count` if it costs as much as several."""
        self._left -= count
        return self._left >= 0

    @property
    def left(self) -> int:
        return max(0, self._left)


_CANDIDATES = 1_500
"""Candidates in a text of any size: 60 ms of CPU."""
_BYTES_PER_CANDIDATE = 500
"""One more candidate for so many bytes: 0.1 s of CPU per MB. Files of people have fewer."""
CUT_LABEL = b"[redacted:too_many_candidates]"


class Detector(Struct, frozen=True):
    kind: str
    trigger: str
    """A cheap pattern that matches every text with such a secret, and few others."""
    pattern: LazyPattern
    is_secret: SecretCheck = lambda _, __: True
    group: int = 1
    """The group that is redacted; the last one. 0 for what may be long: RE2 needs a hundred times
    as long to say where the groups of a match are as where it is."""
    before: LazyPattern | None = None
    """For group 0: the beginning of the match that is not redacted."""

    def candidates(self, text: bytes) -> Iterator[tuple[int, int]]:
        return (match.span() for match in self.pattern.finditer(text))

    def redacted(self, text: bytes, budget: ScanBudget) -> bytes:
        return redact_matches(
            text,
            self.pattern,
            budget,
            lambda match: self._span(match, text) if self.is_secret(match, text) else None,
            redaction_label(self.kind),
        )

    def _span(self, match: re2.Match[bytes], text: bytes) -> tuple[int, int]:
        start, stop = match.span(self.group)
        return (
            (start + prefix_size(self.before, text, start), stop) if self.before else (start, stop)
        )


_PREFIX_BYTES = 64
"""At most so many bytes of a match may precede what is redacted: a color code, an escape."""


def prefix_size(before: LazyPattern, text: bytes, start: int) -> int:
    match = before.match(text[start : start + _PREFIX_BYTES])
    return 0 if match is None else match.span()[1]


def redact_matches(
    text: bytes,
    pattern: LazyPattern,
    budget: ScanBudget,
    secret_span: Callable[[re2.Match[bytes]], tuple[int, int] | None],
    label: bytes,
) -> bytes:
    """Replace what `secret_span` returns for each match, as far as the budget reaches."""
    pieces: list[bytes] = []
    end = 0
    for match in pattern.finditer(text):
        if not budget.take():
            return b"".join((*pieces, text[end : max(end, match.span()[0])], CUT_LABEL))
        span = secret_span(match)
        if span is not None and span[0] >= end:
            pieces += (text[end : span[0]], label)
            end = span[1]
    return b"".join((*pieces, text[end:])) if pieces else text


_TO_STANDARD = bytes.maketrans(b"-_", b"+/")
_NOT_BASE64 = bytes(set(range(256)) - set(b"%b+/" % (ascii_letters + digits).encode()))


def decode_base64(encoded: bytes) -> bytes:
    """What is encoded, in any dialect, however it is broken or cut."""
    standard = encoded.translate(_TO_STANDARD).translate(None, _NOT_BASE64)
    return b64decode(standard[: len(standard) - (len(standard) % 4 == 1)] + b"==")


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
