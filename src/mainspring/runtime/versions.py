"""Versions: one entry for each state of something that people change (agent folders, API agents),
and how two states are compared. The owner decides where the states are stored."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime
from difflib import unified_diff

from msgspec import Struct

_MAX_DIFF_BYTES = 200_000  # of a text whose lines are compared


class Version(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One entry of a ledger of versions."""

    number: int
    """0: not recorded, because there is nothing to record or the folder is not writable."""
    hash: str
    """SHA-256 of the content."""
    time: datetime
    parent: str | None = None
    """The hash of the previous version."""
    author: str | None = None
    reason: str | None = None

    @property
    def label(self) -> str:
        """A short name that identifies the version."""
        return f"{self.number}-{self.hash[:12]}" if self.number else self.hash[:12]

    def next(
        self, hash_: str, time: datetime, *, author: str | None = None, reason: str | None = None
    ) -> Version:
        return Version(
            number=self.number + 1,
            hash=hash_,
            time=time,
            parent=self.hash or None,
            author=author,
            reason=reason,
        )


NO_VERSION = Version(number=0, hash="", time=datetime.min.replace(tzinfo=UTC))
"""The state before the first version."""


def render_diff(before: bytes | None, after: bytes | None, names: Sequence[str]) -> str:
    """The difference between two contents in the format of `diff -u`; `None`: this side does not
    exist. Binary and very long contents are compared by size."""
    sides = (before or b"", after or b"")
    old, new = (
        "/dev/null" if content is None else name
        for content, name in zip((before, after), names, strict=True)
    )
    if sum(map(len, sides)) > _MAX_DIFF_BYTES or any(b"\0" in side for side in sides):
        return f"--- {old}\n+++ {new}\n{len(sides[0])} bytes -> {len(sides[1])} bytes\n"
    before_lines, after_lines = (
        side.decode(errors="replace").splitlines(keepends=True) for side in sides
    )
    return "".join(
        line if line.endswith("\n") else f"{line}\n\\ No newline at end of file\n"
        for line in unified_diff(before_lines, after_lines, old, new)
    )
