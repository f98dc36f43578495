"""Starts a launcher under a uid of its own while the files keep theirs: what it mounts is mapped,
from the owner of the workspace on disk to that uid (idmapped mounts). For root only.

Like the keeper it imports only what is quick to import.
"""

from __future__ import annotations

import ctypes
import os
import stat

TYPE_CHECKING = False
if TYPE_CHECKING:
    import signal as _signal
    from collections.abc import Callable
else:
    import _signal

REFUSED = 125
_NEW_MOUNTS, _NEW_USERS = 0x20000, 0x10000000
_OPEN_TREE, _MOVE_MOUNT, _MOUNT_SETATTR = 428, 429, 442
_EMPTY_PATH, _RECURSIVE, _CLONE, _CLOSE_ON_EXEC = 0x1000, 0x8000, 1, 0x80000
_ONTO_WHAT_IS_OPEN = 0x04 | 0x40
_MAP_IDS, _PRIVATE = 0x100000, 1 << 18
_AT = "/tmp"
"""Covered by an empty folder for the launcher alone: everyone may pass through it."""
_LIBC = ctypes.CDLL(None, use_errno=True)


class _Attributes(ctypes.Structure):
    _fields_ = tuple((name, ctypes.c_uint64) for name in ("set", "clear", "propagation", "users"))


def mapped(sources: list[int], owner: int, uid: int) -> list[int]:
    """What is open, as mounts that are nowhere yet, in which the files of `owner` are those of
    `uid`.

    Raises:
        OSError: a file system, or the kernel, cannot do that.
    """
    users = _user_namespace(owner, uid)
    trees: list[int] = []
    try:
        for source in sources:
            flags = _CLONE | _CLOSE_ON_EXEC | _EMPTY_PATH | _RECURSIVE
            tree = _called(_LIBC.syscall(_OPEN_TREE, source, b"", flags), "open_tree")
            trees.append(tree)
            _set(tree, b"", _EMPTY_PATH, _Attributes(_MAP_IDS, 0, 0, users))
    except OSError:
        for tree in trees:
            os.close(tree)
        raise
    finally:
        os.close(users)
    return trees


def start_as(uid: int, trees: list[int], become: Callable[[list[int]], None], log: int) -> int:
    """A process with that uid and no others' rights; `become` gets what `trees` are mounted as."""
    process = os.fork()
    if process:
        return process
    try:
        os.dup2(log, 2)
        _called(_LIBC.unshare(_NEW_MOUNTS), "unshare")
        _set(-100, b"/", 0, _Attributes(0, 0, _PRIVATE, 0))
        _called(_LIBC.mount(b"tmpfs", _AT.encode(), b"tmpfs", 0, b"mode=755,size=64k"), "mount")
        places = [_placed(tree, f"{_AT}/{number}") for number, tree in enumerate(trees)]
        os.setgroups([])
        os.setresgid(uid, uid, uid)
        os.setresuid(uid, uid, uid)
        become(places)
    except OSError as error:
        os.write(2, f"idmap: {error}\n".encode("utf-8", "surrogateescape"))
    finally:
        os._exit(REFUSED)


def _placed(tree: int, path: str) -> int:
    if stat.S_ISDIR(os.fstat(tree).st_mode):
        os.mkdir(path, 0o755)
    else:
        os.close(os.open(path, os.O_CREAT | os.O_WRONLY, 0o444))
    place = os.open(path, os.O_PATH)
    moved = _LIBC.syscall(_MOVE_MOUNT, tree, b"", place, b"", _ONTO_WHAT_IS_OPEN)
    _called(moved, "move_mount")
    return os.open(path, os.O_PATH)


def _user_namespace(owner: int, uid: int) -> int:
    """One that says which uid stands for which; nobody lives in it."""
    begun, begin = os.pipe()
    process = os.fork()
    if process == 0:
        made = _LIBC.unshare(_NEW_USERS)
        os.write(begin, b"1" if made == 0 else b"0")
        _signal.pause()
        os._exit(0)
    try:
        if os.read(begun, 1) != b"1":
            raise OSError("no user namespace could be made")
        for kind in ("uid_map", "gid_map"):
            with open(f"/proc/{process}/{kind}", "w") as file:
                file.write(f"{owner} {uid} 1")
        return os.open(f"/proc/{process}/ns/user", os.O_RDONLY)
    finally:
        os.kill(process, _signal.SIGKILL)
        os.waitpid(process, 0)
        os.close(begun)
        os.close(begin)


def _set(place: int, path: bytes, flags: int, wanted: _Attributes) -> None:
    size = ctypes.c_size_t(ctypes.sizeof(wanted))
    how = flags | _RECURSIVE
    changed = _LIBC.syscall(_MOUNT_SETATTR, place, path, how, ctypes.byref(wanted), size)
    _called(changed, "mount_setattr")


def _called(result: int, what: str) -> int:
    if result < 0:
        raise OSError(ctypes.get_errno(), f"{what}: {os.strerror(ctypes.get_errno())}")
    return result
