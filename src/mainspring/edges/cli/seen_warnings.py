"""Warnings about an agent's folder: shown when they are new there, not at every run."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable
from pathlib import Path

from mainspring.config import FOLDER
from mainspring.core.errors import InvalidInput
from mainspring.runtime.folder.whole_file import read_bounded, write_whole

_FILE = "seen-warnings"


def new_warnings(folder: Path, warnings: Iterable[str]) -> list[str]:
    """Those that the last run here did not have. Blocks; a folder that cannot be written to only
    means that they are shown again."""
    marks = {hashlib.sha256(warning.encode()).hexdigest(): warning for warning in warnings}
    file = folder / FOLDER / _FILE
    try:
        seen = set((read_bounded(file) or b"").decode("ascii", "replace").split())
        if seen != set(marks):
            write_whole(file, "".join(f"{mark}\n" for mark in sorted(marks)).encode())
    except InvalidInput:
        seen = set[str]()
    return [warning for mark, warning in marks.items() if mark not in seen]
