"""Starts a launcher under a uid of its own while files keep their owner on disk: its mounts map the
workspace's owner to that uid (idmapped mounts). Needs root.

Like the keeper it imports only fast modules.
"""

from __future__ import annotations

import _ctypes  # ctypes itself takes longer to import than everything done here
import os
import stat
import sys

TYPE_CHECKING = False
if TYPE_CHECKING:
    import signal as _signal
    from collections.abc import Callable
else:
    import _signal

REFUSED = 125  # the status of a refusal to start, as in `bwrap_inside.py`
_NEW_MOUNTS, _NEW_USERS = 0x20000, 0x10000000  # linux/sched.h: CLONE_NEWNS, CLONE_NEWUSER
_RTLD_NOW = 2  # dlfcn.h
# asm-generic/unistd.h: numbers that all 64-bit architectures share.
_OPEN_TREE, _MOVE_MOUNT, _MOUNT_SETATTR = 428, 429, 442
# linux/fcntl.h and linux/mount.h, as in `bwrap_inside.py`.
_EMPTY_PATH, _RECURSIVE, _CLONE, _CLOSE_ON_EXEC = 0x1000, 0x8000, 1, 0x80000
_ONTO_WHAT_IS_OPEN = 0x04 | 0x40  # linux/mount.h, as in `bwrap_inside.py`
_MAP_IDS, _PRIVATE = 0x100000, 1 << 18  # linux/mount.h: MOUNT_ATTR_IDMAP, MS_PRIVATE
_COVERABLE = ("/tmp", "/mnt", "/srv")
"""One of these is covered by an empty tmpfs in the launcher's mount namespace: every user may enter
them."""
_LIBRARY = _ctypes.dlopen("libc.so.6", _RTLD_NOW)


def map_mounts(sources: list[int], owner: int, uid: int) -> list[int]:
    """Detached mounts of these descriptors in which the files of `owner` belong to `uid`.

    Raises:
        OSError: a file system, or the kernel, cannot do that.
    """
    users = _user_namespace(owner, uid)
    trees: list[int] = []
    try:
        for source in sources:
            flags = _CLONE | _CLOSE_ON_EXEC | _EMPTY_PATH | _RECURSIVE
            trees.append(_call("syscall", _OPEN_TREE, source, b"", flags))
            _set(trees[-1], b"", _EMPTY_PATH, (_MAP_IDS, 0, 0, users))
    except OSError:
        for tree in trees:
            os.close(tree)
        raise
    finally:
        os.close(users)
    return trees


def start_as(
    uid: int, trees: list[int], become: Callable[[list[int]], None], *, log: int, launcher: str
) -> int:
    """Start a process with that uid and no other privileges; `become` gets descriptors of the
    mounted `trees`, and executes `launcher`."""
    process = os.fork()
    if process:
        return process
    try:
        os.dup2(log, 2)
        _call("unshare", _NEW_MOUNTS)
        _set(-100, b"/", 0, (0, 0, _PRIVATE, 0))
        cover = _cover(launcher)
        _call("mount", b"tmpfs", cover.encode(), b"tmpfs", 0, b"mode=755,size=64k")
        places = [_attach_mount(tree, f"{cover}/{number}") for number, tree in enumerate(trees)]
        os.setgroups([])
        os.setresgid(uid, uid, uid)
        os.setresuid(uid, uid, uid)
        become(places)
    except OSError as error:
        os.write(2, f"idmap: {error}\n".encode("utf-8", "surrogateescape"))
    finally:
        os._exit(REFUSED)


def _cover(launcher: str) -> str:
    """A folder that the launcher is not in."""
    program = os.path.realpath(launcher)
    for folder in _COVERABLE:
        if os.path.isdir(folder) and not program.startswith(os.path.realpath(folder) + "/"):
            return folder
    raise OSError(f"none of {', '.join(_COVERABLE)} can be covered")


def _attach_mount(tree: int, path: str) -> int:
    if stat.S_ISDIR(os.fstat(tree).st_mode):
        os.mkdir(path, 0o755)
    else:
        os.close(os.open(path, os.O_CREAT | os.O_WRONLY, 0o444))
    place = os.open(path, os.O_PATH)
    _call("syscall", _MOVE_MOUNT, tree, b"", place, b"", _ONTO_WHAT_IS_OPEN)
    return os.open(path, os.O_PATH)


def _user_namespace(owner: int, uid: int) -> int:
    """A user namespace without processes that maps `owner` to `uid`."""
    begun_reader, begin = os.pipe()
    process = os.fork()
    if process == 0:
        try:
            _call("unshare", _NEW_USERS)
            os.write(begin, b"1")
            _signal.pause()
        finally:
            os.write(begin, b"0")
            os._exit(0)
    try:
        if os.read(begun_reader, 1) != b"1":
            raise OSError("cannot create a user namespace")
        for kind in ("uid_map", "gid_map"):
            with open(f"/proc/{process}/{kind}", "w") as file:
                file.write(f"{owner} {uid} 1")
        return os.open(f"/proc/{process}/ns/user", os.O_RDONLY)
    finally:
        os.kill(process, _signal.SIGKILL)
        os.waitpid(process, 0)
        os.close(begun_reader)
        os.close(begin)


def _set(place: int, path: bytes, flags: int, attributes: tuple[int, int, int, int]) -> None:
    """Call mount_setattr. `attributes`: flags to set and to clear, propagation, user namespace."""
    packed = b"".join(attribute.to_bytes(8, sys.byteorder) for attribute in attributes)
    _call("syscall", _MOUNT_SETATTR, place, path, flags | _RECURSIVE, packed, len(packed))


def _call(function: str, *arguments: int | bytes) -> int:
    result = _ctypes.call_function(_ctypes.dlsym(_LIBRARY, function), arguments)
    if result < 0:
        raise OSError(f"{function} {arguments[0]!r} was refused")
    return result
