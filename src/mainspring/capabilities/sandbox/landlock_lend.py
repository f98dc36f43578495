"""Makes a workspace the property of a sandbox's own uid, except for what is hidden or protected.

Where nothing can be mounted, owners and modes are what is left: a folder that something protected
is in stays ours, open to the sandbox' group, and sticky, so that ours cannot be moved away.
"""

from __future__ import annotations

import os
import stat

_PRIVATE = 0o700
_STICKY_AND_SHARED = 0o1070
_CHANGE_BY_OTHERS = 0o022


class Lent:
    """Who gets what; paths are absolute, and no link leads to them."""

    def __init__(self, workspace: str, uid: int, hidden: list[str], protected: list[str]) -> None:
        self.workspace = workspace
        self.uid = uid
        self.hidden = set(hidden)
        self.protected = set(protected)
        self.shared = {
            folder for path in (*hidden, *protected) for folder in _above(workspace, path)
        }


def lend(lent: Lent) -> None:
    """Nothing else may be running in it: paths are gone through by name."""
    pending = [lent.workspace]
    while pending:
        path = pending.pop()
        try:
            known = os.lstat(path)
            if _is_lent(lent, path, known) and stat.S_ISDIR(known.st_mode):
                pending += [entry.path for entry in os.scandir(path)]
        except OSError:
            continue  # too deep or just gone: it stays as it is, and not theirs


def lend_folder(path: str, uid: int | None) -> None:
    """A private folder for temporary files.

    Raises:
        OSError: something that is not such a folder has its name.
    """
    owner = os.geteuid() if uid is None else uid
    try:
        os.mkdir(path, _PRIVATE)
        os.chown(path, owner, -1)
    except FileExistsError:
        pass
    known = os.lstat(path)
    if not stat.S_ISDIR(known.st_mode) or known.st_uid != owner:
        raise OSError(f"{path} is not ours: remove it")
    os.chmod(path, _PRIVATE)


def _is_lent(lent: Lent, path: str, known: os.stat_result) -> bool:
    """Whether to go on below it."""
    mode = stat.S_IMODE(known.st_mode)
    if path in lent.hidden:
        os.chown(path, os.geteuid(), os.getegid())
        os.chmod(path, mode & _PRIVATE)
        return False
    if path in lent.protected:
        _protect(path, lent.uid)
        return False
    if path in lent.shared:
        os.chown(path, os.geteuid(), lent.uid)
        os.chmod(path, mode | _STICKY_AND_SHARED)
        return True
    # Another name of the same file may be one outside.
    if known.st_uid != lent.uid and (stat.S_ISDIR(known.st_mode) or known.st_nlink == 1):
        os.lchown(path, lent.uid, lent.uid)
    return True


def _protect(path: str, uid: int) -> None:
    inside = [
        os.path.join(at, name)
        for at, folders, files in os.walk(path)
        for name in (*folders, *files)
    ]
    for each in (path, *inside):
        known = os.lstat(each)
        is_folder = stat.S_ISDIR(known.st_mode)
        if stat.S_ISLNK(known.st_mode) or (known.st_nlink > 1 and not is_folder):
            continue
        mode = stat.S_IMODE(known.st_mode)
        os.chown(each, os.geteuid(), uid)
        os.chmod(each, (mode | (mode & 0o500) >> 3) & ~_CHANGE_BY_OTHERS)


def _above(workspace: str, path: str) -> list[str]:
    """The folders from the workspace down to where it is."""
    parts = os.path.relpath(os.path.dirname(path), workspace).split(os.sep)
    found = [workspace]
    for part in parts:
        if part != os.curdir:
            found.append(os.path.join(found[-1], part))
    return found
