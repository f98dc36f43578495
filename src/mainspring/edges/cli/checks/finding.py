"""One thing that was looked at, and what follows from it."""

from __future__ import annotations

from typing import Literal, TypeAlias

from msgspec import Struct

Status: TypeAlias = Literal["ok", "warn", "missing"]


class Finding(Struct, frozen=True, kw_only=True):
    name: str
    status: Status
    found: str
    consequence: str
    """What can be done because of it, or cannot."""
    fix: str | None = None
    required: bool = False
    """Nothing works without it."""

    @property
    def is_fatal(self) -> bool:
        return self.required and self.status == "missing"
