"""Folders that programs in a sandbox can read, and we alone can write: certificates stand there.

Not in the workspace, where what is ours is hidden from them; and not at home, where a sandbox that
has a user of its own gets nowhere.
"""

from __future__ import annotations

import os
import stat
import tempfile
from pathlib import Path

from mainspring.core.errors import SandboxFailed


def open_share(session_id: str) -> Path:
    """The session's, the same in every process: its sandbox may be older than this one.

    Raises:
        SandboxFailed: somebody else got there first.
    """
    user = os.getuid() if hasattr(os, "getuid") else 0
    above = Path(tempfile.gettempdir()).resolve() / f"mainspring-{user}"
    share = above / session_id
    for folder in (above, share):
        folder.mkdir(mode=0o755, exist_ok=True)
        found = folder.lstat()
        is_ours = stat.S_ISDIR(found.st_mode) and found.st_uid == user
        if not is_ours or found.st_mode & (stat.S_IWGRP | stat.S_IWOTH):
            raise SandboxFailed(f"{folder} is not ours alone to write: remove it")
    return share
