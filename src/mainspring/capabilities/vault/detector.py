"""One kind of secret: how it is found, and what is put in its place."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TypeAlias

from mainspring.capabilities.vault.patterns import Match, Pattern, compiled

LINE_PREFIX = r"(?:[^\s\\:]{1,200}[:-])?\d{1,6}(?:\t|\\+t|→|[:|-])"
"""What tools put before a line: the file that it is from, and its number."""
Check: TypeAlias = Callable[[Match, bytes], bool]
"""Of a match in a text: whether it is a secret."""


@dataclass(frozen=True, slots=True)
class Detector:
    kind: str
    trigger: str
    """A cheap pattern that is in every text that has such a secret, and in few others."""
    pattern: Pattern
    is_secret: Check = lambda _, __: True
    group: int = 1
    """What is taken out; the last one."""

    def redacted(self, text: bytes) -> bytes:
        pieces: list[bytes] = []
        end = 0
        for match in self.pattern.finditer(text):
            start, stop = match.span(self.group)
            if start >= end and self.is_secret(match, text):
                pieces += (text[end:start], label(self.kind))
                end = stop
        return b"".join((*pieces, text[end:])) if pieces else text


def label(kind: str) -> bytes:
    return f"[redacted:{kind}]".encode()


def detector(
    kind: str, trigger: str, pattern: str, is_value: Callable[[bytes], bool] | None = None
) -> Detector:
    """One whose secret is the first group, if the value passes."""
    if is_value is None:
        return Detector(kind, trigger, compiled(pattern.encode()))
    return Detector(
        kind, trigger, compiled(pattern.encode()), lambda match, _: is_value(match.group(1))
    )
