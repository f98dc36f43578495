"""A new file put where an old one is, or nothing: whole or not at all, and never through it.

The old file itself is left as it is: a hard link to it elsewhere keeps its content.
"""

from __future__ import annotations

import os
import secrets
from collections.abc import Callable, Generator
from contextlib import contextmanager, suppress
from dataclasses import dataclass

from mainspring.capabilities.workspace.path_traversal import CREATE_FILE

PERMISSION_BITS = 0o777
"""No file that we make runs as somebody else."""


@dataclass(frozen=True, slots=True)
class FileAttributes:
    """Mode and owner of a file to be made; `None`: as the system and its folder say."""

    mode: int | None = None
    owner: tuple[int, int] | None = None


def put_file(
    folder: int, name: str, fill: Callable[[int], None], file_attributes: FileAttributes
) -> None:
    """Make a file beside the place, fill it, and move it there."""
    with _temporary_name(folder) as aside:
        # Whoever may not read the finished file may not read it while it is made.
        mode = 0o666 if file_attributes.mode is None else 0o600
        opened = os.open(aside, CREATE_FILE, mode, dir_fd=folder)
        try:
            _apply_attributes(opened, folder, file_attributes)
            fill(opened)
        finally:
            os.close(opened)
        os.rename(aside, name, src_dir_fd=folder, dst_dir_fd=folder)


def put_link(folder: int, name: str, target: bytes) -> None:
    with _temporary_name(folder) as aside:
        os.symlink(target, os.fsencode(aside), dir_fd=folder)
        os.rename(aside, name, src_dir_fd=folder, dst_dir_fd=folder)


def write_all(opened: int, content: bytes) -> None:
    left = memoryview(content)
    while left:
        left = left[os.write(opened, left) :]


@contextmanager
def _temporary_name(folder: int) -> Generator[str]:
    """A name that nobody can have waiting for us; nothing is left under it."""
    name = f".{secrets.token_hex(16)}.part"
    try:
        yield name
    except BaseException:
        with suppress(OSError):
            os.unlink(name, dir_fd=folder)
        raise


def _apply_attributes(opened: int, folder: int, file_attributes: FileAttributes) -> None:
    if os.geteuid() == 0:
        around = os.fstat(folder)
        uid, gid = file_attributes.owner or (around.st_uid, around.st_gid)
        os.fchown(opened, uid, gid)
    if file_attributes.mode is not None:
        os.fchmod(opened, file_attributes.mode & PERMISSION_BITS)
