"""Which folders below a place describe an agent. Reading them is not ours."""

from __future__ import annotations

import os
from collections import deque
from collections.abc import Iterator
from pathlib import Path

_SIGNS = frozenset(("agent.yaml", "AGENTS.md", "CLAUDE.md"))
_NOT_ENTERED = frozenset(("node_modules", "__pycache__", "dist", "build", "target", "venv"))
_DEEPEST = 4
_MOST_FOLDERS = 5_000


def agent_folders(top: Path) -> Iterator[Path]:
    """Those nearest to the top first; hidden folders and links are not entered."""
    pending = deque([(top, 0)])
    looked = 0
    while pending and looked < _MOST_FOLDERS:
        folder, depth = pending.popleft()
        looked += 1
        try:
            entries = sorted(os.scandir(folder), key=lambda entry: entry.name)
        except OSError:
            continue
        if not _SIGNS.isdisjoint(entry.name for entry in entries):
            yield folder
        pending += [
            (folder / entry.name, depth + 1)
            for entry in entries
            if depth < _DEEPEST and _is_entered(entry)
        ]


def _is_entered(entry: os.DirEntry[str]) -> bool:
    is_hidden = entry.name.startswith(".") or entry.name in _NOT_ENTERED
    return not is_hidden and entry.is_dir(follow_symlinks=False)
