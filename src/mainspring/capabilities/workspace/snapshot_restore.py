"""Restores a workspace to a snapshot. Only differences are changed; an interrupted restore can be
repeated.

No link is followed or written through: each change is made by name in an open folder.
"""

from __future__ import annotations

import errno
import os
import stat
import sys
from collections.abc import Generator, Iterable
from contextlib import contextmanager, suppress

from mainspring.capabilities.workspace.folder_workspace import (
    FileAttributes,
    put_file,
    put_link,
    write_all,
)
from mainspring.capabilities.workspace.path_traversal import (
    OPEN_FILE,
    OPEN_FOLDER,
    chown_like_folder,
    hidden_identities,
)
from mainspring.capabilities.workspace.snapshot_objects import (
    ManifestEntries,
    ObjectStore,
    SnapshotEntry,
)
from mainspring.capabilities.workspace.workspace_roots import WorkspaceRoots
from mainspring.core.errors import ToolEnvironmentError
from mainspring.files.openat import OpenDescriptor
from mainspring.files.written_files import WRITTEN_FILES

_USABLE = 0o700  # a folder that we write into must be ours to enter
_PATH_ONLY = getattr(os, "O_PATH", 0)


class SnapshotRestore:
    def __init__(self, roots: WorkspaceRoots, root: int, store: ObjectStore) -> None:
        self._roots = roots
        self._root = root
        self._objects = store
        self._hidden = hidden_identities(roots)
        self._opened_up: set[bytes] = set()
        """Folders whose modes we had to widen; their modes are restored last."""

    def opened_up(self, current: ManifestEntries, target: ManifestEntries) -> bool:
        """Open folders that are unreadable now and readable in the snapshot; whether there were
        any, so that the workspace must be scanned again."""
        closed = [
            path
            for path, item in current.items()
            if item.kind == "unreadable" and path in target and target[path].kind == "folder"
        ]
        for path in closed:
            with self._folder_of(path) as (folder, name):
                os.close(self._enter(folder, name, path))
        return bool(closed)

    def run(self, current: ManifestEntries, target: ManifestEntries) -> None:
        """Change the workspace from `current` to `target`.

        Raises:
            ToolEnvironmentError: the snapshot is incomplete; nothing was changed.
            OSError: something was in the way.
        """
        self._check_contents(current, target)
        for path in sorted(_paths_to_remove(current, target), reverse=True):
            with self._folder_of(path) as (folder, name):
                self._remove(folder, name, path)
        manifest_entries = [
            target[path] for path in sorted(target) if current.get(path) != target[path]
        ]
        for item in manifest_entries:
            if item.kind == "folder":
                self._make_folder(item, current)
        for item in manifest_entries:
            if item.kind in ("file", "link"):
                self._put(item)
        folders = {
            item.path for item in manifest_entries if item.kind == "folder"
        } | self._opened_up
        self._set_modes(target[path] for path in sorted(folders, reverse=True) if path in target)

    def _check_contents(self, current: ManifestEntries, target: ManifestEntries) -> None:
        """Check that all contents are stored, before anything is changed."""
        needed = {
            item.content.decode()
            for path, item in target.items()
            if item.kind == "file" and current.get(path) != item
        }
        if lost_digests := needed - self._objects.digests():
            raise ToolEnvironmentError(
                f"{len(lost_digests)} files of the snapshot are no longer stored"
            )

    def _remove(self, folder: int, name: str, path: bytes) -> None:
        try:
            os.unlink(name, dir_fd=folder)
        except FileNotFoundError:
            return
        except (IsADirectoryError, PermissionError):  # macOS raises PermissionError for a folder
            self._remove_folder(folder, name, path)

    def _remove_folder(self, folder: int, name: str, path: bytes) -> None:
        """Remove a folder with everything that snapshots leave out: pipes, sockets. Hidden files
        stay, and so does their folder."""
        with OpenDescriptor(self._enter(folder, name, path)) as inner:
            for item in os.listdir(inner):
                below = path + b"/" + os.fsencode(item)
                if not self._is_hidden(inner, item, below):
                    self._remove(inner, item, below)
            is_empty = not os.listdir(inner)
        if is_empty:
            os.rmdir(name, dir_fd=folder)

    def _is_hidden(self, folder: int, name: str, path: bytes) -> bool:
        parts = (*self._roots.main, *os.fsdecode(path).split("/"))
        with suppress(FileNotFoundError):
            state = os.stat(name, dir_fd=folder, follow_symlinks=False)
            return (state.st_dev, state.st_ino) in self._hidden or self._roots.is_hidden(parts)
        return False

    def _make_folder(self, entry: SnapshotEntry, current: ManifestEntries) -> None:
        entry_there = current.get(entry.path)
        if entry_there is not None and entry_there.is_folder:
            return
        with self._folder_of(entry.path) as (folder, name), suppress(FileExistsError):
            WRITTEN_FILES.add(folder, os.fsdecode(name))
            os.mkdir(name, _USABLE, dir_fd=folder)
            chown_like_folder(name, folder)

    def _put(self, entry: SnapshotEntry) -> None:
        with self._folder_of(entry.path) as (folder, name):
            if entry.kind == "link":
                put_link(folder, name, entry.content)
                return

            def fill(opened: int) -> None:
                self._objects.copy(digest, lambda piece: write_all(opened, piece))

            digest = entry.content.decode()
            if WRITTEN_FILES.is_needed:
                pieces = list[bytes]()
                self._objects.copy(digest, pieces.append)
                WRITTEN_FILES.add(folder, os.fsdecode(name), b"".join(pieces))
            put_file(folder, name, fill, FileAttributes(entry.mode, _owner(folder, name)))

    def _set_modes(self, items: Iterable[SnapshotEntry]) -> None:
        for item in items:
            with (
                self._folder_of(item.path) as (folder, name),
                OpenDescriptor(self._enter(folder, name, item.path)) as descriptor,
            ):
                os.fchmod(descriptor, item.mode)

    @contextmanager
    def _folder_of(self, path: bytes) -> Generator[tuple[int, str]]:
        """The open folder that a path is in, and its name there."""
        *above, name = os.fsdecode(path).split("/")
        descriptors = [self._root]
        path_so_far = b""
        try:
            for item in above:
                path_so_far = b"/".join(filter(None, (path_so_far, os.fsencode(item))))
                descriptors.append(self._enter(descriptors[-1], item, path_so_far))
            yield descriptors[-1], name
        finally:
            for folder in descriptors[1:]:
                os.close(folder)

    def _enter(self, folder: int, name: str, path: bytes) -> int:
        """Open a folder, after giving ourselves full access if needed."""
        try:
            descriptor = os.open(name, OPEN_FOLDER, dir_fd=folder)
        except PermissionError:
            _make_accessible(folder, name)
            self._opened_up.add(path)
            descriptor = os.open(name, OPEN_FOLDER, dir_fd=folder)
        mode = stat.S_IMODE(os.fstat(descriptor).st_mode)
        if mode & _USABLE != _USABLE and os.geteuid() != 0:
            os.fchmod(descriptor, mode | _USABLE)
            self._opened_up.add(path)
        return descriptor


def _paths_to_remove(current: ManifestEntries, target: ManifestEntries) -> list[bytes]:
    """Paths that are not in the snapshot or whose type differs, except those it could not read."""
    unreadable = tuple(path for path, item in target.items() if item.kind == "unreadable")
    within = tuple(path + b"/" for path in unreadable)
    return [
        path
        for path, item in current.items()
        if path not in unreadable
        and not path.startswith(within)
        and (path not in target or item.is_folder != target[path].is_folder)
    ]


def _owner(folder: int, name: str) -> tuple[int, int] | None:
    with suppress(FileNotFoundError):
        state = os.stat(name, dir_fd=folder, follow_symlinks=False)
        return state.st_uid, state.st_gid
    return None


def _make_accessible(folder: int, name: str) -> None:
    """Give ourselves access to our own folder, without following a link in its place."""
    if not sys.platform.startswith("linux"):
        os.chmod(name, _USABLE, dir_fd=folder, follow_symlinks=False)
        return
    with OpenDescriptor(os.open(name, OPEN_FILE | _PATH_ONLY, dir_fd=folder)) as descriptor:
        if not stat.S_ISDIR(os.fstat(descriptor).st_mode):
            raise NotADirectoryError(errno.ENOTDIR, "not a folder")
        os.chmod(f"/proc/self/fd/{descriptor}", _USABLE)
