"""What is odd about a file: where, what, and how to mend it. Never a reason to stop by itself."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, TypeAlias

Level: TypeAlias = Literal[
    "error",  # this part does not work
    "warning",  # it works, but perhaps not as meant
    "note",  # good to know: what is honoured, what is not and why
]


@dataclass(frozen=True, slots=True, kw_only=True)
class Finding:
    level: Level
    file: str
    """As it is shown: relative to the folder or to `~`."""
    what: str
    line: int | None = None
    fix: str | None = None

    def __str__(self) -> str:
        place = self.file if self.line is None else f"{self.file}:{self.line}"
        mend = f" ({self.fix})" if self.fix else ""
        return f"{place}: {self.what}{mend}"
