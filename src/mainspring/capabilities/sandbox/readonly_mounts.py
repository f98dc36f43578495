"""Folders that programs in a sandbox can read and only we can write (certificates), and safe
removal of a session's folders.
"""

from __future__ import annotations

import glob
import os
import re
import stat
import tempfile
from pathlib import Path

from mainspring.capabilities.sandbox.tree_removal import remove_tree
from mainspring.core.errors import SandboxFailed


def open_readonly_mount(session_id: str) -> Path:
    """The session's, the same in every process: its sandbox may be older than this one.

    Raises:
        SandboxFailed: somebody else got there first.
    """
    user = _process_uid()
    share = _mount_path(session_id)
    above = share.parent
    for folder in (above, share):
        folder.mkdir(mode=0o755, exist_ok=True)
        found = folder.lstat()
        is_ours = stat.S_ISDIR(found.st_mode) and found.st_uid == user
        if not is_ours or found.st_mode & (stat.S_IWGRP | stat.S_IWOTH):
            raise SandboxFailed(f"{folder} is writable by other users: remove it")
    return share


def remove_readonly_mount(session_id: str) -> None:
    """Of a session that is no more."""
    above = _mount_path(session_id).parent
    if above.is_dir() and above.lstat().st_uid == _process_uid():
        remove_sandbox_folders(above, session_id)


def remove_sandbox_folders(folder: Path, session_id: str) -> None:
    """What a session's hands have there, and those of its threads that worked apart."""
    remove_folder(folder, session_id)
    for item in folder.glob(f"{glob.escape(session_id)}-*"):
        remove_folder(folder, item.name)


def remove_folder(folder: Path, name: str) -> bool:
    """A folder of ours with all that is in it, through no links; whether nothing is left of it.
    Whoever wrote the name, it leads nowhere else: a log may have been imported."""
    return bool(re.fullmatch(r"[A-Za-z0-9_-]+", name)) and remove_tree(folder, name)


def remove_transcripts(folder: Path, session_id: str) -> None:
    """What hooks could read of a session that is no more."""
    remove_folder(folder, session_id)
    if re.fullmatch(r"[A-Za-z0-9_-]+", session_id) and not folder.is_symlink():
        (folder / f"{session_id}.jsonl").unlink(missing_ok=True)


def _mount_path(session_id: str) -> Path:
    return Path(tempfile.gettempdir()).resolve() / f"mainspring-{_process_uid()}" / session_id


def _process_uid() -> int:
    return os.getuid() if hasattr(os, "getuid") else 0
