"""Gives a workspace to the sandbox's own uid, except for what is hidden or protected.

Where nothing can be mounted, only owners and modes protect files: a folder with a protected entry
stays ours, writable by the sandbox's group, and sticky, so that programs cannot move our entries.

Programs of the same session may change the tree at the same time. So every step is relative to an
open folder, follows no link, and changes a file only through the descriptor that was checked.
"""

from __future__ import annotations

import os
import stat
from contextlib import suppress

from mainspring.files.openat import OpenDescriptor, identity

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

_ENTRY = os.O_PATH | os.O_NOFOLLOW | os.O_CLOEXEC
"""Opens anything, including a link itself, and never blocks."""
_FOLDER = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
_PRIVATE = 0o700  # the mode of a folder that its owner alone may enter
_STICKY_AND_SHARED = 0o1070  # the mode bits with which a folder is shared: sticky, and the group's
_CHANGE_BY_OTHERS = 0o022  # the mode bits with which the group and others may write
_DEEPEST = 256  # folders; the same depth as the workspace's own limit
_MOST_LINKS = 40  # links followed: the kernel's own limit
_MOST_TRIES = 100  # at a name that programs keep moving; then it fails


def grant_workspace(
    workspace: int, path: str, uid: int, *, hidden: Iterable[str], protected: Iterable[str]
) -> None:
    """Give away the workspace, which is open at `path`; `hidden` and `protected` are relative to
    it.

    Raises:
        OSError: something cannot be hidden or protected.
    """
    transfer = _OwnershipTransfer(workspace, path, uid)
    for name in protected:
        transfer.keep(name, transfer.protect)
    for name in hidden:  # last: it may be in a protected folder, which the group can read
        transfer.keep(name, transfer.hide)
    transfer.give(workspace)


def grant_folder(path: str, uid: int | None) -> int:
    """Create and open a private folder for temporary files.

    Raises:
        OSError: something that is not such a folder has its name.
    """
    owner = os.geteuid() if uid is None else uid
    with suppress(FileExistsError):
        os.mkdir(path, _PRIVATE)
    descriptor = os.open(path, _FOLDER)
    if (
        uid is not None
        and os.fstat(descriptor).st_uid == os.geteuid()
        and not os.listdir(descriptor)
    ):
        os.fchown(descriptor, owner, -1)  # new, or left by a killed launcher
    if os.fstat(descriptor).st_uid != owner:
        os.close(descriptor)
        raise OSError(f"{path} belongs to somebody else: remove it")
    os.fchmod(descriptor, _PRIVATE)
    return descriptor


class _OwnershipTransfer:
    def __init__(self, workspace: int, path: str, uid: int) -> None:
        self._workspace = workspace
        self._path = path
        self._uid = uid
        self._mount = _mount_of(workspace)
        self._shared_folders: set[tuple[int, int]] = set()
        self._kept_back: set[tuple[int, int]] = set()
        """Hidden or protected files. Their inodes are not reused, since each keeps a name that
        programs cannot remove."""

    def keep(self, path: str, how: Callable[[int], None]) -> None:
        """Hide or protect the target of a path, and all links on the way to it."""
        if self._descend(path, _leave_alone, _leave_alone):
            self._descend(path, self._share, how)

    def hide(self, entry: int) -> None:
        state = self._keep_entry(entry)
        if stat.S_ISLNK(state.st_mode):
            _set_owner(entry, os.getegid())
        elif _has_one_name(state):
            _set_owner(entry, os.getegid(), stat.S_IMODE(state.st_mode) & _PRIVATE)
        else:
            self._require_no_access(state, 0o4)

    def protect(self, entry: int) -> None:
        state = self._keep_entry(entry)
        mode = stat.S_IMODE(state.st_mode)
        if stat.S_ISLNK(state.st_mode):
            _set_owner(entry, self._uid)
        elif _has_one_name(state) and not _is_device(state):
            _set_owner(entry, self._uid, (mode | (mode & 0o500) >> 3) & ~_CHANGE_BY_OTHERS)
        else:
            self._require_no_access(state, 0o2)
        if stat.S_ISDIR(state.st_mode):
            with _open_entry(entry, ".", _FOLDER) as folder:
                for name in os.listdir(folder):  # only we can change it now
                    with _open_entry(folder, name) as inner:
                        if _mount_of(inner) == _mount_of(entry):
                            self.protect(inner)

    def give(self, folder: int, depth: int = 0) -> None:
        """Give away everything below a folder, and the folder itself unless it is shared."""
        folders, foreign = self._list_entries(folder)
        if identity(os.fstat(folder)) in self._shared_folders:
            self._give_files(folder, foreign)  # sticky, so that no other uid can move them
        else:
            self._give_folder(folder, foreign)
        for name in folders if depth < _DEEPEST else ():
            with suppress(OSError), _open_entry(folder, name, _FOLDER) as inner:
                if self._is_theirs(inner):
                    self.give(inner, depth + 1)

    def _list_entries(self, folder: int) -> tuple[list[str], list[str]]:
        """The names of folders, and of other entries that the sandbox's uid does not own."""
        folders: list[str] = []
        foreign: list[str] = []
        with os.scandir(folder) as entries:
            for entry in entries:
                with suppress(OSError):  # removed meanwhile
                    if entry.is_dir(follow_symlinks=False):
                        folders.append(entry.name)
                    elif entry.stat(follow_symlinks=False).st_uid != self._uid:
                        foreign.append(entry.name)
        return folders, foreign

    def _give_folder(self, folder: int, foreign: list[str]) -> None:
        """Give away a folder with its files. While they are checked, only we may change its names:
        otherwise a program could remove the name here of a file that has a second name outside,
        so that it looks like a file with one name."""
        state = os.fstat(folder)
        mode = stat.S_IMODE(state.st_mode)
        if foreign:
            os.fchown(folder, os.geteuid(), os.getegid())
            os.fchmod(folder, mode & ~_CHANGE_BY_OTHERS)
            try:
                self._give_files(folder, foreign)
            finally:
                os.fchmod(folder, mode)
                os.fchown(folder, self._uid, self._uid)
        elif state.st_uid != self._uid:
            os.fchown(folder, self._uid, self._uid)

    def _give_files(self, folder: int, names: list[str]) -> None:
        for name in names:
            with suppress(OSError), _open_entry(folder, name) as entry:
                state = os.fstat(entry)
                if state.st_nlink > 1 or stat.S_ISDIR(state.st_mode) or _is_device(state):
                    continue
                if self._is_theirs(entry) and _is_named(folder, name, state):
                    os.chown(_descriptor_path(entry), self._uid, self._uid)

    def _is_theirs(self, entry: int) -> bool:
        """Whether it may be given away: it is not hidden, protected or on another mount."""
        return identity(os.fstat(entry)) not in self._kept_back and _mount_of(entry) == self._mount

    def _share(self, entry: int) -> None:
        state = os.fstat(entry)
        if identity(state) in self._kept_back:
            return
        if stat.S_ISDIR(state.st_mode):
            self._shared_folders.add(identity(state))
            _set_owner(entry, self._uid, stat.S_IMODE(state.st_mode) | _STICKY_AND_SHARED)
        elif stat.S_ISLNK(state.st_mode):
            self._keep_entry(entry)
            _set_owner(entry, self._uid)

    def _keep_entry(self, entry: int) -> os.stat_result:
        state = os.fstat(entry)
        self._kept_back.add(identity(state))
        return state

    def _require_no_access(self, state: os.stat_result, access: int) -> None:
        """Check a file with a second name elsewhere: we do not change it, so its mode must already
        be strict."""
        allowed = state.st_mode | (state.st_mode >> 3 if state.st_gid == self._uid else 0)
        if state.st_uid == self._uid or allowed & access:
            raise OSError("a hidden or protected file has a second name: remove one of the names")

    def _descend(
        self, path: str, on_the_way: Callable[[int], None], last: Callable[[int], None]
    ) -> bool:
        """Walk from the workspace, also through links that stay in it. False: the path does not
        exist."""
        todo = _parts(path)
        with _PathWalk(self._workspace) as way:
            on_the_way(way.folders[0])
            while todo:
                name = todo.pop()
                if name == "..":
                    if not way.leave():
                        return True
                    continue
                entry = _apply_to_entry(way.folders[-1], name, on_the_way if todo else last)
                if entry is None:
                    return False
                way.folders.append(entry)
                if stat.S_ISLNK(os.fstat(entry).st_mode):
                    target = way.followed(self._path)
                    if target is None:
                        return True
                    todo += _parts(target)
        return True


class _PathWalk:
    """A stack of open folders, from the workspace on, each in the one before."""

    def __init__(self, workspace: int) -> None:
        self.folders = [os.open(".", _ENTRY | os.O_DIRECTORY, dir_fd=workspace)]
        self._links = 0

    def __enter__(self) -> _PathWalk:
        return self

    def __exit__(self, *_: object) -> None:
        while self.folders:
            os.close(self.folders.pop())

    def leave(self) -> bool:
        """Go up one folder. False: that would leave the workspace."""
        if len(self.folders) > 1:
            os.close(self.folders.pop())
            return True
        return False

    def followed(self, workspace: str) -> str | None:
        """The target of the link on top of the stack, relative to the new top. `None`: outside the
        workspace."""
        target = os.readlink("", dir_fd=self.folders[-1])
        self.leave()
        self._links += 1
        if self._links > _MOST_LINKS:
            return None
        if not target.startswith("/"):
            return target
        if not f"{target}/".startswith(f"{workspace}/"):
            return None
        while self.leave():
            pass
        return target.removeprefix(workspace)


def _apply_to_entry(folder: int, name: str, act: Callable[[int], None]) -> int | None:
    """Apply `act` to an entry, and check that it still has its name. `None`: it does not exist.

    Raises:
        OSError: programs keep moving it.
    """
    for _ in range(_MOST_TRIES):
        try:
            entry = os.open(name, _ENTRY, dir_fd=folder)
        except (FileNotFoundError, NotADirectoryError):
            return None
        act(entry)
        if act is _leave_alone or _is_named(folder, name, os.fstat(entry)):
            return entry
        os.close(entry)
    raise OSError(f"{name} is hidden or protected, but programs keep moving it")


def _leave_alone(entry: int) -> None:
    """Do nothing: the walk only checks whether the path exists."""


def _parts(path: str) -> list[str]:
    return [part for part in reversed(path.split("/")) if part not in ("", ".")]


def _is_named(folder: int, name: str, state: os.stat_result) -> bool:
    with suppress(OSError):
        return os.path.samestat(os.stat(name, dir_fd=folder, follow_symlinks=False), state)
    return False


def _has_one_name(state: os.stat_result) -> bool:
    return stat.S_ISDIR(state.st_mode) or state.st_nlink == 1


def _is_device(state: os.stat_result) -> bool:
    return stat.S_ISCHR(state.st_mode) or stat.S_ISBLK(state.st_mode)


def _set_owner(entry: int, group: int, mode: int | None = None) -> None:
    os.chown(_descriptor_path(entry), os.geteuid(), group)
    if mode is not None:  # after chown: the old owner could change it back
        os.chmod(_descriptor_path(entry), mode)


def _descriptor_path(entry: int) -> str:
    """A path to the open file (or link) itself, whatever has its name now."""
    return f"/proc/self/fd/{entry}"


def _mount_of(entry: int) -> bytes:
    with open(f"/proc/self/fdinfo/{entry}", "rb", buffering=0) as io:
        return next(line for line in io.read().splitlines() if line.startswith(b"mnt_id:"))


def _open_entry(folder: int, name: str, how: int = _ENTRY) -> OpenDescriptor:
    return OpenDescriptor(os.open(name, how, dir_fd=folder))
