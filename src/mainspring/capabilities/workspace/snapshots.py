"""`core.ports.Snapshots`: snapshots of a workspace, stored in a separate folder."""

from __future__ import annotations

import os
import re
import secrets
import sys
from collections.abc import Callable, Collection, Generator, Sequence
from contextlib import contextmanager, suppress
from functools import partial
from pathlib import Path
from typing import TypeVar

import anyio
import msgspec
from anyio import to_thread

from mainspring.capabilities.workspace.folder_workspace import FolderWorkspace
from mainspring.capabilities.workspace.path_traversal import OPEN_FOLDER
from mainspring.capabilities.workspace.snapshot_objects import (
    ManifestEntries,
    ObjectStore,
    diff_manifests,
    pack_manifest,
    unpack_manifest,
)
from mainspring.capabilities.workspace.snapshot_restore import SnapshotRestore
from mainspring.capabilities.workspace.workspace_roots import absolute_path, path_parts
from mainspring.capabilities.workspace.workspace_scan import (
    CACHE_DECODER,
    ScanCache,
    ScanLimits,
    WorkspaceScan,
)
from mainspring.core.errors import InvalidInput, ToolEnvironmentError
from mainspring.core.ports import FileChange
from mainspring.files.atomic_file import regular_file
from mainspring.files.openat import open_absolute

if sys.platform != "win32":
    import fcntl

T = TypeVar("T")

_ID = re.compile(r"[0-9a-f]{64}")
_MAX_CONTENT_BYTES = 1_000_000  # of a file that is shown; larger ones are left out
_LOCK_SECONDS = 120.0  # another process may be taking a snapshot of a large folder
_RETRY_SECONDS = 0.02  # between attempts at that lock


class WorkspaceSnapshots:
    """Snapshots of the first root of a workspace. `store` belongs to this workspace only, and is
    outside it.

    Hidden paths are neither stored nor changed. Programs may write at the same time: their files
    are stored as they are when they are read.

    Raises:
        InvalidInput: the store is inside the workspace, so every snapshot would contain the last.
    """

    def __init__(
        self, workspace: FolderWorkspace, store: Path, *, limits: ScanLimits | None = None
    ) -> None:
        self._bounds = workspace.bounds
        self._store = Path(os.path.realpath(store))
        self._bound = limits or ScanLimits()
        self._objects = ObjectStore(self._store / "objects")
        parts, main = path_parts(str(self._store)), self._bounds.main
        hidden = any(self._bounds.is_hidden(parts[:size]) for size in range(1, len(parts) + 1))
        if parts[: len(main)] == main and not hidden:
            raise InvalidInput(f"{self._store} is inside the workspace, and not hidden there")

    async def take(self) -> tuple[str, int]:
        return await self._run_locked(self._take)

    async def restore(self, snapshot: str) -> list[FileChange]:
        return await self._run_locked(partial(self._restore, snapshot))

    async def diff(self, older: str, newer: str | None = None) -> list[FileChange]:
        return await self._run_locked(partial(self._diff, older, newer))

    async def contents(self, snapshot: str | None, paths: Sequence[str]) -> dict[str, bytes]:
        return await self._run_locked(partial(self._contents, snapshot, paths))

    async def keep_only(self, snapshots: Collection[str]) -> int:
        """Delete all other snapshots; returns how many contents were freed.

        Raises:
            ToolEnvironmentError: one of them does not exist, and nothing was deleted.
        """
        return await self._run_locked(partial(self._keep_only, snapshots))

    async def forget(self, snapshots: Collection[str]) -> int:
        """Delete these snapshots, as far as they exist; returns how many contents were freed.

        Raises:
            ToolEnvironmentError: one of the others is damaged, and nothing was deleted.
        """
        return await self._run_locked(partial(self._forget, snapshots))

    async def _run_locked(self, work: Callable[[], T]) -> T:
        """Run `work` while no other process uses the store; the end of a process releases its
        lock."""
        self._store.mkdir(mode=0o700, parents=True, exist_ok=True)
        with (self._store / "lock").open("ab") as file:
            with anyio.move_on_after(_LOCK_SECONDS) as wait:
                # Another process sends us no event when it releases the lock.
                while not _try_lock(file.fileno()):  # noqa: ASYNC110
                    await anyio.sleep(_RETRY_SECONDS)
            if wait.cancelled_caught:
                raise ToolEnvironmentError(
                    "another session has been busy with this workspace for too long"
                )
            return await to_thread.run_sync(work)

    def _take(self) -> tuple[str, int]:
        self._objects.prepare()
        with self._root() as root:
            scan = self._scan(root, self._objects)
        name, content = pack_manifest(scan.values())
        path = self._manifests() / name
        if not path.exists():
            self._put(path, content)
        return name, sum(item.kind != "folder" for item in scan.values())

    def _restore(self, snapshot: str) -> list[FileChange]:
        self._objects.prepare()
        target = self._items(snapshot)
        with self._root() as root:
            restoring = SnapshotRestore(self._bounds, root, self._objects)
            try:
                current = self._scan(root, None)
                while restoring.opened_up(current, target):
                    current = self._scan(root, None)
                restoring.run(current, target)
            except OSError as error:
                raise ToolEnvironmentError(
                    f"the workspace was only partly restored ({error.strerror}): restore it again"
                ) from error
        return diff_manifests(current, target)

    def _diff(self, older: str, newer: str | None) -> list[FileChange]:
        before = self._items(older)
        if newer is not None:
            return diff_manifests(before, self._items(newer))
        self._objects.prepare()
        with self._root() as root:
            return diff_manifests(before, self._scan(root, None))

    def _contents(self, snapshot: str | None, paths: Sequence[str]) -> dict[str, bytes]:
        contents: dict[str, bytes] = {}
        items = None if snapshot is None else self._items(snapshot)
        for path in paths:
            content = self._current(path) if items is None else self._stored(items, path)
            if content is not None and len(content) <= _MAX_CONTENT_BYTES:
                contents[path] = content
        return contents

    def _stored(self, items: ManifestEntries, path: str) -> bytes | None:
        item = items.get(path.encode())
        if item is None or item.kind != "file":
            return None
        pieces: list[bytes] = []
        self._objects.copy(item.content.decode(), pieces.append)
        return b"".join(pieces)

    def _current(self, path: str) -> bytes | None:
        parts = (*self._bounds.main, *path_parts(path))
        if any(self._bounds.is_hidden(parts[:size]) for size in range(1, len(parts) + 1)):
            return None
        try:
            descriptor = open_absolute(absolute_path(parts), os.O_RDONLY | os.O_NONBLOCK)
            with regular_file(descriptor, path) as file:
                return file.read(_MAX_CONTENT_BYTES + 1)
        except (OSError, InvalidInput):
            return None

    def _forget(self, snapshots: Collection[str]) -> int:
        self._objects.prepare()
        names = {manifest.name for manifest in self._manifests().iterdir()}
        return 0 if names.isdisjoint(snapshots) else self._keep_only(names.difference(snapshots))

    def _keep_only(self, snapshots: Collection[str]) -> int:
        self._objects.prepare()
        contents = {
            item.content.decode()
            for snapshot in snapshots
            for item in self._items(snapshot).values()
            if item.kind == "file"
        }
        for manifest in self._manifests().iterdir():
            if manifest.name not in snapshots:
                manifest.unlink()
        return self._objects.keep_only(contents)

    @contextmanager
    def _root(self) -> Generator[int]:
        try:
            root = open_absolute(absolute_path(self._bounds.main), OPEN_FOLDER)
        except OSError as error:
            raise ToolEnvironmentError(
                f"the workspace cannot be opened: {error.strerror}"
            ) from error
        try:
            yield root
        finally:
            os.close(root)

    def _scan(self, root: int, keep: ObjectStore | None) -> ManifestEntries:
        cache: ScanCache = {}
        with suppress(FileNotFoundError, msgspec.DecodeError, RecursionError):
            cache = CACHE_DECODER.decode((self._store / "cache").read_bytes())
        scan = WorkspaceScan(cache, self._now_ns(), self._bound, keep)
        scan.run(self._bounds, root)
        self._put(self._store / "cache", msgspec.msgpack.encode(scan.cache))
        return scan.items

    def _now_ns(self) -> int:
        """The time of the file system's clock, which may differ slightly from the system's."""
        with (self._store / "lock").open("ab") as file:
            os.utime(file.fileno())
            return os.fstat(file.fileno()).st_mtime_ns

    def _items(self, snapshot: str) -> ManifestEntries:
        if not _ID.fullmatch(snapshot):
            raise ToolEnvironmentError("that is not the id of a snapshot")
        try:
            return unpack_manifest(snapshot, (self._manifests() / snapshot).read_bytes())
        except FileNotFoundError:
            raise ToolEnvironmentError(f"there is no snapshot {snapshot}") from None
        except ValueError as error:
            raise ToolEnvironmentError(f"snapshot {snapshot} is damaged: {error}") from error

    def _manifests(self) -> Path:
        folder = self._store / "manifests"
        folder.mkdir(mode=0o700, exist_ok=True)
        return folder

    def _put(self, path: Path, content: bytes) -> None:
        temporary = self._store / "objects" / "unfinished" / secrets.token_hex(8)
        temporary.write_bytes(content)
        temporary.rename(path)


def _try_lock(opened: int) -> bool:
    try:
        fcntl.flock(opened, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True
