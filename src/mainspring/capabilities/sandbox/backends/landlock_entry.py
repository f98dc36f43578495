"""Lets programs of sessions enter the private folders above what they may use, such as root's home.

Where nothing can be mounted, a program reaches its workspace only through the folders above it. An
entry of one group in their access control lists lets programs pass, and not list or read them; the
group is that of all sessions, so that a folder gets one entry and keeps it. What a program may open
below is decided by Landlock and by owners.
"""

from __future__ import annotations

import errno
import os
import struct

from mainspring.files.openat import OpenDescriptor, open_absolute

_LIST = "system.posix_acl_access"
_VERSION = 2  # linux/posix_acl_xattr.h: POSIX_ACL_XATTR_VERSION
# linux/posix_acl.h: the kinds of entries.
_OWNER, _USER, _OWNING_GROUP, _GROUP, _MASK, _OTHERS = 0x01, 0x02, 0x04, 0x08, 0x10, 0x20
_NO_ID = 0xFFFFFFFF  # linux/posix_acl.h: ACL_UNDEFINED_ID
_READ, _ENTER = 4, 1  # linux/posix_acl.h: ACL_READ, ACL_EXECUTE
_HEADER, _ENTRY = struct.Struct("<I"), struct.Struct("<HHI")


def grant_entry(path: str, group: int, *, is_readable: bool = False) -> None:
    """Let `group` pass through the folders above an absolute path without links, and with
    `is_readable` read the folder itself. Files there keep their modes.

    Raises:
        OSError: a folder is private, and its file system has no access control lists.
    """
    names = [part for part in path.split("/") if part]
    above = ["/" + "/".join(names[:count]) for count in range(len(names))]
    for folder in above:
        _grant(folder, group, _ENTER, path)
    if is_readable and os.path.isdir(path):
        _grant(path, group, _READ | _ENTER, path)


def _grant(folder: str, group: int, rights: int, path: str) -> None:
    with OpenDescriptor(open_absolute(folder)) as descriptor:
        if os.fstat(descriptor).st_mode & rights == rights:
            return
        name = f"/proc/self/fd/{descriptor}"
        entries = _entries(name, os.fstat(descriptor).st_mode)
        wanted = _with_group(entries, group, rights)
        if wanted == entries:
            return
        try:
            os.setxattr(name, _LIST, _packed(wanted))
        except OSError as error:
            mode = os.fstat(descriptor).st_mode & 0o777
            raise OSError(
                f"{folder} has mode {mode:o}, so that programs with a uid of their own cannot reach"
                f" {path} ({error.strerror}): run `chmod o+x {folder}`, or use a folder elsewhere"
            ) from error


def _entries(name: str, mode: int) -> dict[tuple[int, int], int]:
    """Rights by kind and id."""
    try:
        packed = os.getxattr(name, _LIST)
    except OSError as error:
        if error.errno not in (errno.ENODATA, errno.ENOTSUP):
            raise
        return {
            (_OWNER, _NO_ID): mode >> 6 & 7,
            (_OWNING_GROUP, _NO_ID): mode >> 3 & 7,
            (_OTHERS, _NO_ID): mode & 7,
        }
    listed = _ENTRY.iter_unpack(packed[_HEADER.size :])
    return {(kind, number): rights for kind, rights, number in listed}


def _with_group(
    entries: dict[tuple[int, int], int], group: int, rights: int
) -> dict[tuple[int, int], int]:
    """The list with these rights for the group. Nobody else gets more: what the mask took from the
    other entries is taken from the entries themselves before the mask is widened."""
    mask = entries.get((_MASK, _NO_ID), entries[_OWNING_GROUP, _NO_ID])
    limited = {
        (kind, number): allowed & mask if kind in (_USER, _OWNING_GROUP, _GROUP) else allowed
        for (kind, number), allowed in entries.items()
    }
    own = limited.get((_GROUP, group), 0) | rights
    return {**limited, (_GROUP, group): own, (_MASK, _NO_ID): mask | own}


def _packed(entries: dict[tuple[int, int], int]) -> bytes:
    """In the order that the kernel demands: by kind, then by id."""
    listed = (
        _ENTRY.pack(kind, rights, number) for (kind, number), rights in sorted(entries.items())
    )
    return _HEADER.pack(_VERSION) + b"".join(listed)
