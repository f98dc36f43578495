"""Ends guards whose process was killed: sets aside what programs have created since. The keeper of
the sandbox runs this when its program has ended, and so does the next process that uses the folder.
"""

from __future__ import annotations

import sys
from pathlib import Path

from mainspring.core.errors import SandboxFailed
from mainspring.harness.permissions.guard_record import RECORD, GuardFiles
from mainspring.harness.permissions.protected_path_watcher import (
    GitRepositories,
    ProtectedPathWatcher,
)

_PACKAGES = Path(__file__).parents[3]
_CODE = (
    "import sys; sys.path.insert(0, sys.argv[1]);"
    " from mainspring.harness.permissions.abandoned_guards import main; main()"
)


def end_command(state: Path) -> tuple[str, ...]:
    """The command that ends the guard in the private folder of a session's sandbox."""
    return (sys.executable, "-I", "-c", _CODE, str(_PACKAGES), str(state))


def end_abandoned_guards(states: Path) -> list[str]:
    """End all abandoned guards below a folder of sessions' states; returns the paths that were set
    aside."""
    return [path for record in sorted(states.glob(f"*/{RECORD}")) for path in _end(record.parent)]


def _end(state: Path) -> list[str]:
    files = GuardFiles(state)
    if (record := files.read()) is None:
        return []
    repositories = GitRepositories(trees=record.trees, folders=record.folders)
    watcher = ProtectedPathWatcher(Path(record.workspace), record.watched, repositories, state)
    try:
        watcher.begin()
        return watcher.end()
    except (SandboxFailed, OSError):
        return []  # the record stays, so the next process tries again


def main() -> None:
    _end(Path(sys.argv[-1]))
