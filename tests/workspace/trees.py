"""What a tree looks like, all of it, for comparing."""

import os
import stat
from pathlib import Path

HIDDEN = ".mainspring"


def picture(root: Path) -> dict[str, tuple[str, int, bytes]]:
    """Kind, mode and content of everything but what is hidden."""
    found: dict[str, tuple[str, int, bytes]] = {}
    for folder, folders, files in os.walk(root):
        if HIDDEN in folders:
            folders.remove(HIDDEN)
        for name in (*folders, *files):
            path = Path(folder, name)
            found[str(path.relative_to(root))] = _look(path)
    return found


def _look(path: Path) -> tuple[str, int, bytes]:
    mode = path.lstat().st_mode
    if stat.S_ISLNK(mode):
        return "link", 0, os.fsencode(path.readlink())
    if stat.S_ISDIR(mode):
        return "folder", stat.S_IMODE(mode), b""
    if stat.S_ISREG(mode):
        return "file", stat.S_IMODE(mode), path.read_bytes()
    return "special", 0, b""
