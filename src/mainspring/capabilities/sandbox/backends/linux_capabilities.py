"""Capabilities of this process through their system calls. Standard library only."""

from __future__ import annotations

import ctypes
import os
import struct
from contextlib import suppress

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Collection

_VERSION = 0x20080522  # linux/capability.h: _LINUX_CAPABILITY_VERSION_3
_MOST = 64  # bits of a set in that version
# linux/prctl.h: PR_SET_KEEPCAPS, PR_CAPBSET_DROP, PR_CAP_AMBIENT, _RAISE.
_KEEP_CAPABILITIES, _DROP_FROM_BOUNDING_SET, _AMBIENT, _RAISE = 8, 24, 47, 2


def become_user(uid: int, gid: int, groups: Collection[int], kept: Collection[int]) -> None:
    """Become a user who, with all its programs, keeps only these capabilities.

    Raises:
        OSError: this process lacks one of them, or may not become this user.
    """
    for number in set(range(_MOST)).difference(kept):
        with suppress(OSError):  # the kernel has fewer, or the container allows no change
            _control(_DROP_FROM_BOUNDING_SET, number)
    _control(_KEEP_CAPABILITIES, 1)
    os.setgroups(list(groups))
    os.setresgid(gid, gid, gid)
    os.setresuid(uid, uid, uid)
    set_capabilities(kept, are_inheritable=True)
    for number in kept:
        _control(_AMBIENT, _RAISE, number)


def set_capabilities(numbers: Collection[int], *, are_inheritable: bool = False) -> None:
    """Give up all capabilities but these.

    Raises:
        OSError: this process lacks one of them.
    """
    mask = sum(1 << number for number in numbers)
    halves = [
        struct.pack("=III", part, part, part if are_inheritable else 0)
        for part in (mask & 0xFFFFFFFF, mask >> 32)
    ]
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.capset(struct.pack("=Ii", _VERSION, 0), b"".join(halves)) != 0:
        raise OSError(ctypes.get_errno(), "the capabilities could not be set")


def _control(option: int, *arguments: int) -> None:
    padded = [ctypes.c_ulong(number) for number in (*arguments, 0, 0, 0)[:4]]
    if ctypes.CDLL(None, use_errno=True).prctl(option, *padded) != 0:
        raise OSError(ctypes.get_errno(), f"prctl {option} was refused")
