"""A scan rule: a pattern, and what a match means."""

from __future__ import annotations

from typing import Literal, TypeAlias

import re2
from msgspec import Struct

Severity: TypeAlias = Literal[
    "danger",  # it rarely has an innocent reason
    "caution",  # a capability that a person should know about before granting it
    "note",  # for information
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


_OPTIONS = re2.Options()
_OPTIONS.encoding = re2.Options.Encoding.LATIN1
_OPTIONS.case_sensitive = False


def compile_pattern(*alternatives: str) -> re2.Pattern[bytes]:
    """Matches in linear time. Prefer `*` to large counts, which are slow."""
    joined = "|".join(f"(?:{alternative})" for alternative in alternatives)
    return re2.compile(joined.encode(), _OPTIONS)


class ScanRule(Struct, frozen=True):
    name: str
    topic: Topic
    script: Severity | None
    """The severity in code; `None` if the rule does not apply there."""
    prose: Severity | None
    """The severity in text that a model or a person reads."""
    why: str
    regex_pattern: re2.Pattern[bytes]


class ScanMatch(Struct, frozen=True):
    """A match in one file."""

    rule: str
    topic: Topic
    severity: Severity
    line: int | None
    excerpt: str
    """Safe to show: hidden characters made visible, and truncated."""
    why: str
    """Why it matters."""
