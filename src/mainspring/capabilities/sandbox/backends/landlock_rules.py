"""Landlock through its three system calls: which files a process and its children may access, no
network, and no signals to processes outside. Standard library only."""

from __future__ import annotations

import errno
import os
import struct
import sys
from importlib import import_module

TYPE_CHECKING = False
if TYPE_CHECKING:
    import ctypes
    from collections.abc import Iterable
else:

    class _LazyCtypes:
        """ctypes takes as long to import as all of the log, and most commands do not need it."""

        def __getattr__(self, name: str) -> object:
            return getattr(import_module("ctypes"), name)

    ctypes = _LazyCtypes()

ENOUGH_ABI = 6
"""The first ABI that restricts signals and abstract sockets."""

_CREATE, _ADD, _RESTRICT = 444, 445, 446
"""System call numbers, the same on every architecture."""
_ASK_VERSION = 1  # linux/landlock.h: LANDLOCK_CREATE_RULESET_VERSION
_PATH_BENEATH = 1  # linux/landlock.h: LANDLOCK_RULE_PATH_BENEATH
_SET_NO_NEW_PRIVS = 38  # linux/prctl.h

# linux/landlock.h: LANDLOCK_ACCESS_FS_*, as are the next two lines.
_EXECUTE, _WRITE_FILE, _READ_FILE, _READ_DIR = 1 << 0, 1 << 1, 1 << 2, 1 << 3
_MAKE_CHAR, _MAKE_SOCK, _MAKE_BLOCK = 1 << 6, 1 << 9, 1 << 11  # linux/landlock.h
_TRUNCATE, _IOCTL_DEV = 1 << 14, 1 << 15  # linux/landlock.h
_ALL_FILES = (1 << 16) - 1  # all rights of files that version 5 knows
_ALL_NETWORK = 0b11  # to bind and to connect
_ALL_SCOPES = 0b11  # abstract sockets and signals
_FIRST_THAT_MOVES = 2
"""Earlier ABIs do not allow moving files from one folder to another."""
_RIGHTS_OF_ABI = {2: 14, 3: 15, 4: 15}
_OF_A_FILE = _EXECUTE | _WRITE_FILE | _READ_FILE | _TRUNCATE | _IOCTL_DEV

READ = _EXECUTE | _READ_FILE | _READ_DIR
CHANGE = _ALL_FILES & ~(_MAKE_CHAR | _MAKE_SOCK | _MAKE_BLOCK | _IOCTL_DEV)
SERVE = CHANGE | _MAKE_SOCK
"""Rights for the folders of a server."""
USE = _READ_FILE | _WRITE_FILE | _TRUNCATE
"""Rights for a device."""


def landlock_abi() -> int:
    """The kernel's Landlock ABI; 0 without Landlock."""
    if sys.platform != "linux":
        return 0
    return max(0, _libc().syscall(_CREATE, None, ctypes.c_size_t(0), ctypes.c_uint32(_ASK_VERSION)))


def files_ruleset(allowed: Iterable[tuple[int, int]]) -> int:
    """Allow only the given rights below each descriptor; no TCP, and no abstract sockets or signals
    to processes outside.

    Raises:
        OSError: the kernel does not support all of that.
    """
    ruleset = _ruleset(_ALL_FILES, _ALL_NETWORK, _ALL_SCOPES)
    for place, rights in allowed:
        _allow(ruleset, place, rights)
    return ruleset


def paths_ruleset(allowed: Iterable[tuple[int, int]]) -> int | None:
    """Restrict only files; works from kernel 5.19 on. `None` without Landlock."""
    abi = landlock_abi()
    if abi < _FIRST_THAT_MOVES:
        return None
    supported_rights = (1 << _RIGHTS_OF_ABI.get(abi, 16)) - 1
    ruleset = _ruleset(supported_rights, 0, 0)
    for place, rights in allowed:
        _allow(ruleset, place, rights & supported_rights)
    return ruleset


def service_ruleset(allowed: Iterable[tuple[int, int]]) -> int:
    """As `files_ruleset`, with the network.

    Raises:
        OSError: the kernel does not support all of that.
    """
    ruleset = _ruleset(_ALL_FILES, 0, _ALL_SCOPES)
    for place, rights in allowed:
        _allow(ruleset, place, rights)
    return ruleset


def signals_ruleset() -> int:
    """Processes in this domain can signal only each other."""
    return _ruleset(0, 0, _ALL_SCOPES)


def enforce(ruleset: int) -> None:
    """Restrict this thread and all processes that it starts; it cannot be undone."""
    libc = _libc()
    _check_call(libc.prctl(_SET_NO_NEW_PRIVS, 1, 0, 0, 0), "no_new_privs")
    _check_call(libc.syscall(_RESTRICT, ctypes.c_int(ruleset), ctypes.c_uint32(0)), "landlock")


def _ruleset(files: int, network: int, scopes: int) -> int:
    packed = struct.pack("=QQQ", files, network, scopes)
    descriptor = _libc().syscall(_CREATE, packed, ctypes.c_size_t(len(packed)), ctypes.c_uint32(0))
    _check_call(descriptor, "landlock ruleset")
    os.set_inheritable(descriptor, False)
    return descriptor


def _allow(ruleset: int, place: int, rights: int) -> None:
    is_folder = os.fstat(place).st_mode & 0o170000 == 0o040000
    rule = struct.pack("=Qi", rights if is_folder else rights & _OF_A_FILE, place)
    libc = _libc()
    added = libc.syscall(_ADD, ctypes.c_int(ruleset), _PATH_BENEATH, rule, ctypes.c_uint32(0))
    _check_call(added, "landlock rule")


def _libc() -> ctypes.CDLL:
    return ctypes.CDLL(None, use_errno=True)


def _check_call(result: int, what: str) -> None:
    if result < 0:
        number = ctypes.get_errno()
        raise OSError(number, f"{what}: {errno.errorcode.get(number, str(number))}")
