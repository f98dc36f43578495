"""Warnings about an agent's folder: shown when they are new there, not at every run."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable
from pathlib import Path

from mainspring.config import FOLDER
from mainspring.core.errors import InvalidInput
from mainspring.runtime.folder.whole_file import read_bounded, write_whole

_SEEN = "seen-warnings"


def new_warnings(home: Path, folder: Path, warnings: Iterable[str]) -> list[str]:
    """Those that the last run in this folder did not have. Blocks. What was seen is kept in the
    user's home: programs of a session can change the folder, and put a link there."""
    marks = {_digest(warning): warning for warning in warnings}
    file = home / FOLDER / _SEEN / _digest(str(folder))
    try:
        seen = set((read_bounded(file) or b"").decode("ascii", "replace").split())
        if seen != set(marks):
            write_whole(file, "".join(f"{mark}\n" for mark in sorted(marks)).encode())
    except InvalidInput:
        seen = set[str]()
    return [warning for mark, warning in marks.items() if mark not in seen]


def _digest(text: str) -> str:
    return hashlib.sha256(text.encode("utf-8", "surrogateescape")).hexdigest()
