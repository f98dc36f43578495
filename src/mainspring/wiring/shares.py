"""Folders that programs in a sandbox can read, and we alone can write: certificates stand there.

Not in the workspace, where what is ours is hidden from them; and not at home, where a sandbox that
has a user of its own gets nowhere.
"""

from __future__ import annotations

import glob
import os
import re
import stat
import tempfile
from pathlib import Path

from mainspring.capabilities.workspace.removal import remove_tree
from mainspring.core.errors import SandboxFailed


def open_share(session_id: str) -> Path:
    """The session's, the same in every process: its sandbox may be older than this one.

    Raises:
        SandboxFailed: somebody else got there first.
    """
    user = _user()
    share = _place(session_id)
    above = share.parent
    for folder in (above, share):
        folder.mkdir(mode=0o755, exist_ok=True)
        found = folder.lstat()
        is_ours = stat.S_ISDIR(found.st_mode) and found.st_uid == user
        if not is_ours or found.st_mode & (stat.S_IWGRP | stat.S_IWOTH):
            raise SandboxFailed(f"{folder} is not ours alone to write: remove it")
    return share


def remove_share(session_id: str) -> None:
    """Of a session that is no more."""
    above = _place(session_id).parent
    if above.is_dir() and above.lstat().st_uid == _user():
        remove_hands(above, session_id)


def remove_hands(folder: Path, session_id: str) -> None:
    """What a session's hands have there, and those of its threads that worked apart."""
    remove_below(folder, session_id)
    for each in folder.glob(f"{glob.escape(session_id)}-*"):
        remove_below(folder, each.name)


def remove_below(folder: Path, name: str) -> bool:
    """A folder of ours with all that is in it, through no links; whether nothing is left of it.
    Whoever wrote the name, it leads nowhere else: a log may have been imported."""
    return bool(re.fullmatch(r"[A-Za-z0-9_-]+", name)) and remove_tree(folder, name)


def remove_transcripts(folder: Path, session_id: str) -> None:
    """What hooks could read of a session that is no more."""
    remove_below(folder, session_id)
    if re.fullmatch(r"[A-Za-z0-9_-]+", session_id) and not folder.is_symlink():
        (folder / f"{session_id}.jsonl").unlink(missing_ok=True)


def _place(session_id: str) -> Path:
    return Path(tempfile.gettempdir()).resolve() / f"mainspring-{_user()}" / session_id


def _user() -> int:
    return os.getuid() if hasattr(os, "getuid") else 0
