"""A rule of the scan: a pattern, and what a match means."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Literal, Protocol, TypeAlias, cast

import re2  # pyright: ignore[reportMissingTypeStubs]

Severity: TypeAlias = Literal[
    "danger",  # there is hardly an innocent reason for it
    "caution",  # a power that a person should know of before it is given
    "note",  # good to know
]
Topic: TypeAlias = Literal[
    "network",
    "code",
    "secrets",
    "persistence",
    "writing",
    "injection",
    "hidden",
    "permissions",
    "links",
    "binaries",
    "size",
]


class RegexMatch(Protocol):
    def span(self, number: int = 0, /) -> tuple[int, int]: ...


class RegexPattern(Protocol):
    def search(self, text: bytes, /) -> RegexMatch | None: ...
    def finditer(self, text: bytes, /) -> Iterator[RegexMatch]: ...


_OPTIONS = re2.Options()
_OPTIONS.encoding = re2.Options.Encoding.LATIN1  # pyright: ignore[reportUnknownMemberType]
_OPTIONS.case_sensitive = False


def compile_pattern(*alternatives: str) -> RegexPattern:
    """Matches in linear time. Prefer `*` to large counts, which are slow."""
    joined = "|".join(f"(?:{alternative})" for alternative in alternatives)
    return cast("RegexPattern", re2.compile(joined.encode(), _OPTIONS))  # pyright: ignore[reportUnknownMemberType]


@dataclass(frozen=True, slots=True)
class ScanRule:
    name: str
    topic: Topic
    script: Severity | None
    """The severity in code; `None`: none."""
    prose: Severity | None
    """The severity in text that a model or a person reads."""
    why: str
    regex_pattern: RegexPattern


@dataclass(frozen=True, slots=True)
class ScanMatch:
    """A match in one file."""

    rule: str
    topic: Topic
    severity: Severity
    line: int | None
    excerpt: str
    """Safe to show: hidden characters made visible, and truncated."""
    why: str
    """Why it matters."""
