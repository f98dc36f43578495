"""What this process writes itself while programs of a session run, so that their guard does not
take it for their work. A name counts only with the content that was written.
"""

from __future__ import annotations

import hashlib
import os
from pathlib import Path

from mainspring.files.openat import OpenDescriptor, identity

ANY_CONTENT = b""


class WrittenFiles:
    """Remembers names in open folders. Empty while there is no guard."""

    def __init__(self) -> None:
        self._guards = 0
        self._files: dict[tuple[int, int, str], bytes] = {}

    @property
    def is_needed(self) -> bool:
        return self._guards > 0

    def begin(self) -> None:
        """A guard begins."""
        self._guards += 1

    def end(self) -> None:
        self._guards -= 1
        if not self._guards:
            self._files.clear()

    def add(self, folder: int, name: str, content: bytes | None = None) -> None:
        """Call before the name exists. `content`: of a file; `None`: a folder, or a file whose
        content does not matter."""
        if self._guards:
            digest = ANY_CONTENT if content is None else hashlib.sha256(content).digest()
            self._files[(*identity(os.fstat(folder)), name)] = digest

    def digest(self, folder: int, name: str) -> bytes | None:
        """The SHA-256 of what was written; `ANY_CONTENT` if it does not matter; `None`: this
        process has not written it."""
        return self._files.get((*identity(os.fstat(folder)), name))


WRITTEN_FILES = WrittenFiles()
"""Of this process: all its sessions share its files."""


def make_folders(folder: Path) -> None:
    """Create a folder, and those above it that are missing."""
    missing = [folder]
    while not missing[-1].parent.exists():
        missing.append(missing[-1].parent)
    for item in reversed(missing):
        with OpenDescriptor(os.open(item.parent, os.O_RDONLY | os.O_DIRECTORY)) as parent:
            WRITTEN_FILES.add(parent, item.name)
        item.mkdir(exist_ok=True)
