"""What came of a program in the interpreter. Knows nothing of who ran it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, Protocol, TypeAlias

from mainspring.core.hands import Workspace

Ended: TypeAlias = Literal[
    "done",
    "raised",  # as it would have anywhere
    "unsupported",  # full Python may do it
    "time",
    "memory",
    "output",
    "crashed",
]


@dataclass(frozen=True, slots=True, kw_only=True)
class Finished:
    ended: Ended
    output: str
    """What it printed, as far as that was taken."""
    value: str = ""
    """Its last expression; empty if that is `None` or no expression."""
    message: str = ""
    """What it ended with, if not well: a traceback, in words of the program's own lines."""


class Interprets(Protocol):
    async def run(self, code: str, workspace: Workspace | None) -> Finished:
        """Run a program from nothing; it can read files of the workspace and change none."""
        ...
