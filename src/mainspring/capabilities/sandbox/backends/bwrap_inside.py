"""The first process inside bubblewrap's namespaces: it mounts over hidden and protected paths,
drops the capability to mount, and becomes the agent.

Bubblewrap mounts by path, and programs of the same session can replace what is at a path. So
bubblewrap mounts nothing in the workspace; this process does, on descriptors that it has opened. It
runs on any Python from 3.9 on that the sandbox has, with the files that `bwrap.py` lists.
"""

from __future__ import annotations

import _socket
import ctypes
import errno
import os
import stat

from mainspring.capabilities.sandbox.backends.agent import CONTROL_FD, install_filter, serve
from mainspring.capabilities.sandbox.wire import CHANGED, unpack
from mainspring.files.openat import O_PATH, LinkWalk, OpenDescriptor, identity, open_beneath

ORDERS_FD = CONTROL_FD + 1
REFUSED = 125  # the status of a refusal to start, as `env` and `docker run` have it

PROC = frozenset(
    (
        *("cgroups", "cpuinfo", "filesystems", "loadavg", "meminfo", "mounts", "net", "self"),
        *("stat", "sys", "thread-self", "uptime", "version", "vmstat"),
    )
)
"""The entries of /proc that programs see besides their processes."""

_NEW_MOUNTS = 0x20000  # linux/sched.h: CLONE_NEWNS
_OPEN_TREE, _MOVE_MOUNT, _FSOPEN, _FSCONFIG, _FSMOUNT, _MOUNT_SETATTR = 428, 429, 430, 431, 432, 442
"""These numbers are the same on every architecture."""
# linux/fcntl.h and linux/mount.h: AT_EMPTY_PATH, AT_RECURSIVE, OPEN_TREE_CLONE, _CLOEXEC.
_EMPTY_PATH, _RECURSIVE, _CLONE, _CLOSE_ON_EXEC = 0x1000, 0x8000, 1, 0x80000
_ONTO_WHAT_IS_OPEN = 0x04 | 0x40  # linux/mount.h: MOVE_MOUNT_F_EMPTY_PATH | MOVE_MOUNT_T_EMPTY_PATH
_SET_STRING, _CREATE = 1, 6  # linux/mount.h: FSCONFIG_SET_STRING, FSCONFIG_CMD_CREATE
_READ_ONLY, _NO_SUID, _NO_DEVICES = 1, 2, 4  # linux/mount.h: MOUNT_ATTR_RDONLY, _NOSUID, _NODEV
_SEALED = _READ_ONLY | _NO_SUID | _NO_DEVICES
# linux/prctl.h: PR_CAPBSET_DROP, PR_CAP_AMBIENT, PR_CAP_AMBIENT_CLEAR_ALL.
_DROP_BOUND, _AMBIENT, _CLEAR = 24, 47, 4
_SYS_ADMIN, _SET_PCAP = 21, 8  # linux/capability.h: CAP_SYS_ADMIN, CAP_SETPCAP
_CAPABILITIES_VERSION = 0x20080522  # linux/capability.h: _LINUX_CAPABILITY_VERSION_3
_MOVED = (errno.ENOENT, errno.ENOTDIR, errno.ELOOP, errno.EINVAL, errno.ESTALE, errno.EBUSY)
_LIBC = ctypes.CDLL(None, use_errno=True)


class BwrapConfig:
    """The config that `bwrap.py` writes."""

    def __init__(self, packed: bytes) -> None:
        workspace, hidden, protected, visible, self.filter, listens = unpack(packed)
        self.workspace = os.fsdecode(workspace)
        self.hidden = [os.fsdecode(path) for path in unpack(hidden)]
        self.protected = [os.fsdecode(path) for path in unpack(protected)]
        self.visible_paths = [os.fsdecode(path) for path in unpack(visible)]
        """Paths in hidden folders that programs may read all the same."""
        self.listens = listens == b"1"


def main() -> None:
    with open(ORDERS_FD, "rb") as stream:
        orders = BwrapConfig(stream.read())
    try:
        _check_call(_LIBC.unshare(_NEW_MOUNTS), "unshare")
        _cover_proc()
        workspace = _mount_workspace(orders)
        _give_up_capabilities()
        install_filter(orders.filter)
        os.closerange(ORDERS_FD, max(map(int, os.listdir("/proc/self/fd"))) + 1)
    except OSError as error:
        os.write(2, f"sandbox: {error}\n".encode("utf-8", "surrogateescape"))
        os._exit(REFUSED)
    control = _socket.socket(fileno=CONTROL_FD)
    serve(control, listens=orders.listens, is_guarded=workspace.is_guarded)


def _cover_proc() -> None:
    """Cover all other entries of /proc: root of the host may read them, and the sandbox's user may
    be root of the host."""
    proc = os.open("/proc", O_PATH | os.O_DIRECTORY)
    null = os.open("/dev/null", O_PATH)
    empty = _new_folder()
    for name in os.listdir("/proc"):
        if not name.isdigit() and name not in PROC:
            place = open_beneath(proc, name)
            is_folder = stat.S_ISDIR(os.fstat(place).st_mode)
            _mount(_clone_mount(empty if is_folder else null), place, _SEALED)
    system = open_beneath(proc, "sys")
    _mount(_clone_mount(system), system, _SEALED)


def _mount_workspace(config: BwrapConfig) -> WorkspaceMounts:
    workspace = WorkspaceMounts(config)
    try:
        workspace.mount(os.open(".", O_PATH | os.O_DIRECTORY))
        workspace.check()
        return workspace
    except OSError as error:
        if error.errno not in _MOVED:
            raise
        raise OSError(error.errno, f"{CHANGED}: {error.strerror}", error.filename) from error


class WorkspaceMounts:
    def __init__(self, config: BwrapConfig) -> None:
        self._config = config
        self._folders: dict[tuple[str, ...], int] = {}
        """Folders that lead to hidden or protected paths, each a mount of its own."""
        self._covers: set[tuple[int, int]] = set()
        """The identities of the mounts that cover hidden paths."""
        self._missing: set[str] = set()
        self._names: list[str] = []

    def mount(self, root: int) -> None:
        self._folders[()] = root
        hidden = self._places(self._config.hidden)
        protected = self._places(self._config.protected)
        for place in sorted(hidden | protected):
            if any(place[:size] in hidden for size in range(1, len(place))):
                continue
            descriptor = open_beneath(self._folder(place[:-1]), place[-1])
            if place in hidden:
                self._hide(descriptor, place)
            else:
                self._folders[place] = _clone_mount(descriptor)
                _mount(self._folders[place], descriptor, _SEALED)

    def check(self) -> None:
        """Check that each path leads to what was mounted there. From now on, only a program that
        has the workspace without this protection could change that.

        Raises:
            OSError: ESTALE for the first path that does not.
        """
        for path in (*self._config.hidden, *self._config.protected):
            descriptor = self._opened(path)
            if path in self._missing and descriptor is None:
                continue
            if descriptor is None or path in self._missing or not self._is_mount(path, descriptor):
                raise OSError(errno.ESTALE, "not what was mounted", path)
            os.close(descriptor)

    def is_guarded(self) -> bool:
        """Whether all mounts are still in place. When the host replaces a file that is mounted on,
        as git does with its config, the mount is gone. Paths that were created or removed since
        the sandbox was opened are checked by `harness.permissions.protected_path_watcher`."""
        for path in (*self._config.hidden, *self._config.protected):
            descriptor = None if path in self._missing else self._opened(path)
            if descriptor is not None:
                is_mount = self._is_mount(path, descriptor)
                os.close(descriptor)
                if not is_mount:
                    return False
        return True

    def _places(self, paths: list[str]) -> set[tuple[str, ...]]:
        """The real locations of these paths, for those that are in the workspace."""
        places: set[tuple[str, ...]] = set()
        for path in paths:
            descriptor = self._opened(path)
            if descriptor is None:
                self._missing.add(path)
            else:
                places.add(tuple(self._names))
                os.close(descriptor)
        return places

    def _opened(self, path: str) -> int | None:
        """A descriptor of the path; `None` if it does not exist in the workspace."""
        try:
            os.lstat(path.partition("/")[0])
        except FileNotFoundError:
            return None  # most protected paths do not exist
        root = os.open(".", O_PATH | os.O_DIRECTORY)
        walk = LinkWalk(root, self._config.workspace)
        try:
            descriptor = walk.open(path)
        except OSError as error:
            if error.errno in (errno.ENOENT, errno.ENOTDIR, errno.EXDEV, errno.ELOOP):
                return None
            raise
        finally:
            os.close(root)
        self._names = walk.names
        if walk.names:
            return descriptor
        os.close(descriptor)
        return None

    def _folder(self, place: tuple[str, ...]) -> int:
        """The folder as a mount of its own: programs could rename a plain folder together with the
        mounts in it and create it again without them, but they cannot rename a mount."""
        if place not in self._folders:
            descriptor = open_beneath(self._folder(place[:-1]), place[-1], O_PATH | os.O_DIRECTORY)
            self._folders[place] = _clone_mount(descriptor)
            _mount(self._folders[place], descriptor, 0)
        return self._folders[place]

    def _hide(self, opened: int, place: tuple[str, ...]) -> None:
        if not stat.S_ISDIR(os.fstat(opened).st_mode):
            null = os.open("/dev/null", O_PATH)
            self._covers.add(identity(os.fstat(null)))
            _mount(_clone_mount(null), opened, _SEALED)
            return
        above = "/".join(place) + "/"
        visible = [
            path[len(above) :] for path in self._config.visible_paths if path.startswith(above)
        ]
        trees = [(path, _clone_mount(open_beneath(opened, path))) for path in visible]
        cover = _new_folder()
        self._covers.add(identity(os.fstat(cover)))
        _mount(cover, opened, 0)
        for path, tree in trees:
            _mount(tree, _make_mount_point(cover, path, tree), _SEALED)
        _set(cover, _SEALED)

    def _is_mount(self, path: str, opened: int) -> bool:
        if path in self._config.hidden:
            return identity(os.fstat(opened)) in self._covers
        return bool(os.fstatvfs(opened).f_flag & os.ST_RDONLY)


def _make_mount_point(folder: int, path: str, like: int) -> int:
    """Create a mount point in a folder that we have mounted."""
    *folders, name = path.split("/")
    for part in folders:
        _make_folder(folder, part)
        folder = open_beneath(folder, part)
    if stat.S_ISDIR(os.fstat(like).st_mode):
        _make_folder(folder, name)
    else:
        os.close(os.open(name, os.O_CREAT | os.O_WRONLY | os.O_NOFOLLOW, 0o444, dir_fd=folder))
    return open_beneath(folder, name)


def _make_folder(folder: int, name: str) -> None:
    try:
        os.mkdir(name, 0o755, dir_fd=folder)
    except FileExistsError:
        return


class _Attributes(ctypes.Structure):
    _fields_ = tuple((name, ctypes.c_uint64) for name in ("set", "clear", "propagation", "users"))


def _clone_mount(place: int) -> int:
    """A detached copy of the mount tree at this descriptor."""
    flags = _CLONE | _CLOSE_ON_EXEC | _EMPTY_PATH | _RECURSIVE
    return _check_call(_LIBC.syscall(_OPEN_TREE, place, b"", flags), "open_tree")


def _mount(tree: int, place: int, attributes: int) -> None:
    """Attach a mount tree at the file that `place` has open, whatever its path is now."""
    if attributes:
        _set(tree, attributes)
    result = _LIBC.syscall(_MOVE_MOUNT, tree, b"", place, b"", _ONTO_WHAT_IS_OPEN)
    _check_call(result, "move_mount")


def _set(tree: int, attributes: int) -> None:
    requested = _Attributes(attributes, 0, 0, 0)
    flags, size = _EMPTY_PATH | _RECURSIVE, ctypes.c_size_t(ctypes.sizeof(requested))
    changed = _LIBC.syscall(_MOUNT_SETATTR, tree, b"", flags, ctypes.byref(requested), size)
    _check_call(changed, "mount_setattr")


def _new_folder() -> int:
    """An empty, small folder on a tmpfs of its own."""
    with OpenDescriptor(_check_call(_LIBC.syscall(_FSOPEN, b"tmpfs", 1), "fsopen")) as system:
        for name, value in ((b"size", b"4096"), (b"mode", b"0755")):
            status = _LIBC.syscall(_FSCONFIG, system, _SET_STRING, name, value, 0)
            _check_call(status, "fsconfig")
        _check_call(_LIBC.syscall(_FSCONFIG, system, _CREATE, None, None, 0), "fsconfig")
        return _check_call(_LIBC.syscall(_FSMOUNT, system, 1, _NO_SUID | _NO_DEVICES), "fsmount")


def _give_up_capabilities() -> None:
    for capability in (_SYS_ADMIN, _SET_PCAP):
        _check_call(_LIBC.prctl(_DROP_BOUND, capability, 0, 0, 0), "prctl")
    _check_call(_LIBC.prctl(_AMBIENT, _CLEAR, 0, 0, 0), "prctl")
    header = (ctypes.c_uint32 * 2)(_CAPABILITIES_VERSION, 0)
    none = (ctypes.c_uint32 * 6)()
    _check_call(_LIBC.capset(ctypes.byref(header), ctypes.byref(none)), "capset")


def _check_call(result: int, what: str) -> int:
    if result < 0:
        raise OSError(ctypes.get_errno(), f"{what}: {os.strerror(ctypes.get_errno())}")
    return result
