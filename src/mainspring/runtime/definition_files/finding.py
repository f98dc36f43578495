"""A finding: a problem in a file, with its location and how to fix it. It is only a report: its
reader decides whether the problem is an error."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, TypeAlias

Level: TypeAlias = Literal[
    "error",  # this part does not work
    "warning",  # it works, but perhaps not as intended
    "note",  # for information: what is used, what is not, and why
]


@dataclass(frozen=True, slots=True, kw_only=True)
class Finding:
    level: Level
    file: str
    """For display: relative to the folder or to `~`."""
    what: str
    line: int | None = None
    fix: str | None = None

    def __str__(self) -> str:
        place = self.file if self.line is None else f"{self.file}:{self.line}"
        fix = f" ({self.fix})" if self.fix else ""
        return f"{place}: {self.what}{fix}"
