"""Folders that programs in a sandbox can read and only we can write (certificates), and safe
removal of a session's folders: by descriptors, without following links, at any depth and with
any modes."""

from __future__ import annotations

import glob
import os
import re
import stat
import tempfile
from contextlib import suppress
from pathlib import Path

from msgspec import Struct

from mainspring.core.errors import SandboxFailed
from mainspring.files.openat import O_PATH, OpenDescriptor, identity

_FOLDER = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
_NAMED = O_PATH | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
_MODE = 0o700  # only we may change what programs read


def remove_tree(above: Path, name: str) -> bool:
    """Remove the folder `name` in `above`; returns whether that worked. Does not remove a link."""
    try:
        parent = os.open(above, _FOLDER)
    except FileNotFoundError:
        return True
    except OSError:
        return False
    try:
        with suppress(OSError):
            _empty(parent, name)
            os.rmdir(name, dir_fd=parent)
        return not _exists(parent, name)
    finally:
        os.close(parent)


class _Level(Struct, frozen=True):
    name: str
    identity: tuple[int, int]
    folders: list[str]
    """Subfolders that have not been visited yet."""


def _empty(parent: int, name: str) -> None:
    """Remove everything in a folder.

    Raises:
        OSError: it cannot be opened, or another process moves folders in it meanwhile.
    """
    current = _open_folder(parent, name)
    try:
        levels = [_level(name, current)]
        while True:
            if levels[-1].folders:
                inner = levels[-1].folders.pop()
                with suppress(OSError):  # the caller reports the remaining files
                    current = _replace_descriptor(current, _open_folder(current, inner))
                    levels.append(_level(inner, current))
            elif len(levels) == 1:
                return
            else:
                folder = levels.pop()
                current = _replace_descriptor(current, os.open("..", _FOLDER, dir_fd=current))
                if identity(os.fstat(current)) != levels[-1].identity:
                    raise OSError("it was moved during its removal")
                with suppress(OSError):
                    os.rmdir(folder.name, dir_fd=current)
    finally:
        os.close(current)


def _level(name: str, folder: int) -> _Level:
    """Delete the files of a folder, and list its subfolders."""
    names, folders = list[str](), list[str]()
    with suppress(OSError):
        names = os.listdir(folder)
    for item in names:
        with suppress(OSError):
            if stat.S_ISDIR(os.stat(item, dir_fd=folder, follow_symlinks=False).st_mode):
                folders.append(item)
            else:
                os.unlink(item, dir_fd=folder)
    return _Level(name, identity(os.fstat(folder)), folders)


def _replace_descriptor(old: int, new: int) -> int:
    os.close(old)
    return new


def _open_folder(parent: int, name: str) -> int:
    """Open a folder, after giving its owner access if needed."""
    state = os.stat(name, dir_fd=parent, follow_symlinks=False)
    if stat.S_ISDIR(state.st_mode) and state.st_mode & _MODE != _MODE:
        with suppress(OSError):  # not our folder: opening it may still work
            _make_accessible(parent, name)
    return os.open(name, _FOLDER, dir_fd=parent)


def _make_accessible(parent: int, name: str) -> None:
    if os.chmod in os.supports_follow_symlinks:
        os.chmod(name, _MODE, dir_fd=parent, follow_symlinks=False)
        return
    with OpenDescriptor(os.open(name, _NAMED, dir_fd=parent)) as entry:
        os.chmod(f"/proc/self/fd/{entry}", _MODE)


def _exists(parent: int, name: str) -> bool:
    try:
        os.stat(name, dir_fd=parent, follow_symlinks=False)
    except FileNotFoundError:
        return False
    return True


def open_readonly_mount(session_id: str) -> Path:
    """The session's read-only folder, at the same path in every process: its sandbox may be older
    than this process.

    Raises:
        SandboxFailed: another user created it first.
    """
    user = _process_uid()
    share = _mount_path(session_id)
    above = share.parent
    for folder in (above, share):
        folder.mkdir(mode=0o755, exist_ok=True)
        state = folder.lstat()
        is_ours = stat.S_ISDIR(state.st_mode) and state.st_uid == user
        if not is_ours or state.st_mode & (stat.S_IWGRP | stat.S_IWOTH):
            raise SandboxFailed(f"{folder} is writable by other users: remove it")
    return share


def remove_readonly_mount(session_id: str) -> None:
    """Remove the folder of a deleted session."""
    above = _mount_path(session_id).parent
    if above.is_dir() and above.lstat().st_uid == _process_uid():
        remove_sandbox_folders(above, session_id)


def remove_sandbox_folders(folder: Path, session_id: str) -> None:
    """Remove the folders of a session's sandbox, and of the sandboxes of its threads."""
    remove_folder(folder, session_id)
    for item in folder.glob(f"{glob.escape(session_id)}-*"):
        remove_folder(folder, item.name)


def remove_folder(folder: Path, name: str) -> bool:
    """Remove a folder with everything in it, without following links; whether nothing is left of
    it. The name may come from an imported log, so it must not lead elsewhere."""
    return bool(re.fullmatch(r"[A-Za-z0-9_-]+", name)) and remove_tree(folder, name)


def remove_transcripts(folder: Path, session_id: str) -> None:
    """Remove the transcripts for hooks of a deleted session."""
    remove_folder(folder, session_id)
    if re.fullmatch(r"[A-Za-z0-9_-]+", session_id) and not folder.is_symlink():
        (folder / f"{session_id}.jsonl").unlink(missing_ok=True)


def _mount_path(session_id: str) -> Path:
    return Path(tempfile.gettempdir()).resolve() / f"mainspring-{_process_uid()}" / session_id


def _process_uid() -> int:
    return os.getuid() if hasattr(os, "getuid") else 0
