"""Memory stores as folders of a session's workspace: written before a run, and saved with the
agent's changes before the session is idle.

What was written is recorded beside the workspace, so that after a crash the next run saves first. A
memory that was changed elsewhere meanwhile is not overwritten: the agent's text becomes a new
memory
beside it.
"""

from __future__ import annotations

import os
from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path, PurePosixPath

import msgspec
from anyio import to_thread
from msgspec import Struct

from mainspring.core.errors import InvalidInput, MemoryChanged, NotFound, PathTaken
from mainspring.files.atomic_file import write_atomic
from mainspring.files.beneath import ensure_folder, open_folder, read_file, remove_file
from mainspring.files.openat import OpenDescriptor, open_absolute
from mainspring.files.session_owner import owner_of_new
from mainspring.service.memory_stores.memories import Memories
from mainspring.service.memory_stores.memory_records import (
    MAX_CONTENT_BYTES,
    CreateMemory,
    MemoryObject,
    Precondition,
    SessionActor,
    UpdateMemory,
    check_path,
    content_digest,
)

_MAX_FILES = 10_000  # of a mounted store

WriteFile = Callable[[Path, str, bytes], Awaitable[None]]
"""Writes a file into a workspace, for the session's programs."""


@dataclass(frozen=True, slots=True, kw_only=True)
class MountedStore:
    store_id: str
    folder: str
    """The path in the workspace."""
    is_writable: bool


class _Memory(Struct, frozen=True):
    id: str
    sha256: str


class _WrittenMemories(Struct, frozen=True):
    """What was written to the workspace, by store and path."""

    stores: dict[str, dict[str, _Memory]] = {}
    begun: dict[str, dict[str, _Memory]] = {}
    """What was about to be written, until all of a store is: a file with this content is not the
    agent's."""


@dataclass(frozen=True, slots=True)
class MountedStores:
    memories: Memories
    write: WriteFile

    async def put(
        self, tenant: str, session_id: str, workspace: Path, stores: Sequence[MountedStore]
    ) -> None:
        """Write the folders with the current content of the stores; first save what a killed run
        left."""
        await self.save(tenant, session_id, workspace, stores)
        for store in stores:
            hashes = await _files(workspace, store.folder) or {}
            written_stores = (await to_thread.run_sync(_read_written, workspace)).stores
            own_paths = (
                written_stores.get(store.store_id, {}).keys()
                if store.is_writable
                else hashes.keys()
            )
            stored_memories = await self.memories.all(tenant, store.store_id)
            current = {memory.path: memory for memory in stored_memories}
            for path in (hashes.keys() & own_paths) - current.keys():
                await to_thread.run_sync(_remove, workspace, f"{store.folder}{path}")
            memories = {
                path: _Memory(item.id, item.content_sha256) for path, item in current.items()
            }
            await self._record(workspace, store.store_id, begun=memories)
            if not current:
                await to_thread.run_sync(_make_folder, workspace, store.folder)
            for path, memory in current.items():
                if hashes.get(path) != memory.content_sha256:
                    stored = await self.memories.get(tenant, store.store_id, memory.id)
                    content = (stored.content or "").encode()
                    await self.write(workspace, f"{store.folder}{path}", content)
            await self._record(workspace, store.store_id, memories)

    async def save(
        self, tenant: str, session_id: str, workspace: Path, stores: Sequence[MountedStore]
    ) -> None:
        written = await to_thread.run_sync(_read_written, workspace)
        for store in stores:
            memories = written.stores.get(store.store_id)
            begun = written.begun.get(store.store_id, {})
            if (memories is None and not begun) or not store.is_writable:
                continue
            present = await _files(workspace, store.folder)
            if present is None:
                continue
            ours = {path: item for path, item in begun.items() if present.get(path) == item.sha256}
            memories = {**(memories or {}), **ours}
            actor = SessionActor(session_id=session_id)
            saving = _Saving(self.memories, tenant, store, workspace, actor)
            await self._record(workspace, store.store_id, await saving.save(memories, present))

    async def _record(
        self,
        workspace: Path,
        store_id: str,
        memories: dict[str, _Memory] | None = None,
        *,
        begun: dict[str, _Memory] | None = None,
    ) -> None:
        written = await to_thread.run_sync(_read_written, workspace)
        stores = written.stores if memories is None else {**written.stores, store_id: memories}
        fresh = _WrittenMemories(stores, {**written.begun, store_id: begun or {}})
        await to_thread.run_sync(
            write_atomic, mounted_memories_file(workspace), msgspec.json.encode(fresh)
        )


@dataclass(frozen=True, slots=True)
class _Saving:
    """Saves one store after the agent has worked in its folder."""

    memories: Memories
    tenant: str
    store: MountedStore
    workspace: Path
    actor: SessionActor
    _saved: dict[str, _Memory] = field(default_factory=dict[str, _Memory])

    async def save(
        self, known: Mapping[str, _Memory], present: Mapping[str, str]
    ) -> dict[str, _Memory]:
        self._saved.update(known)
        for path in sorted(known.keys() | present.keys()):
            before, digest = known.get(path), present.get(path)
            if digest is None and before is not None:
                await self._delete(path, before)
            elif digest is not None and (before is None or before.sha256 != digest):
                await self._write(path, before)
        return self._saved

    async def _delete(self, path: str, before: _Memory) -> None:
        with suppress(NotFound, MemoryChanged):  # changed elsewhere: that stays
            await self.memories.delete(
                self.tenant, self.store.store_id, before.id, self.actor,
                expected_sha256=before.sha256,
            )  # fmt: skip
        self._saved.pop(path, None)

    async def _write(self, path: str, before: _Memory | None) -> None:
        read_file = partial(_read, self.workspace, f"{self.store.folder}{path}")
        content = await to_thread.run_sync(read_file)
        if content is None:
            return
        try:
            text = content.decode()
            memory_object = await self._put(check_path(path), text, before)
        except (UnicodeDecodeError, InvalidInput, PathTaken, NotFound):
            return  # not a memory: it stays a file of the session
        self._saved[path] = _Memory(memory_object.id, content_digest(content))

    async def _put(self, path: str, text: str, before: _Memory | None) -> MemoryObject:
        if before is None:
            try:
                return await self._create(path, text)
            except PathTaken:
                return await self._create(self._beside(path), text)
        precondition = Precondition(content_sha256=before.sha256)
        update = UpdateMemory(content=text, precondition=precondition)
        try:
            return await self.memories.update(
                self.tenant, self.store.store_id, before.id, update, self.actor
            )
        except (MemoryChanged, NotFound):
            return await self._create(self._beside(path), text)

    async def _create(self, path: str, text: str) -> MemoryObject:
        request = CreateMemory(path=path, content=text)
        return await self.memories.create(self.tenant, self.store.store_id, request, self.actor)

    def _beside(self, path: str) -> str:
        """The path for the agent's text if its own path now has another memory."""
        folder, _, name = path.rpartition("/")
        stem, dot, end = name.rpartition(".")
        mark = f"conflict-{self.actor.session_id[-8:]}"
        return f"{folder}/{stem}.{mark}.{end}" if dot else f"{folder}/{name}.{mark}"


async def _files(workspace: Path, folder: str) -> dict[str, str] | None:
    """The hashes of files by path in the store, empty for one that cannot be a memory. Links are
    not followed. `None`: there is no such folder, which is not the same as an empty one."""

    def hash_files() -> dict[str, str] | None:
        hashes: dict[str, str] = {}
        try:
            for path in _walk(workspace, folder, ""):
                content = _read(workspace, f"{folder}{path}")
                hashes[path] = "" if content is None else content_digest(content)
                if len(hashes) > _MAX_FILES:
                    raise InvalidInput(f"{folder}: more than {_MAX_FILES:,} files")
        except OSError:
            return None
        return hashes

    return await to_thread.run_sync(hash_files)


def _walk(workspace: Path, folder: str, prefix: str) -> Iterator[str]:
    folder_descriptor = open_absolute(
        str(workspace / f"{folder}{prefix}"), os.O_RDONLY | os.O_DIRECTORY
    )
    with OpenDescriptor(folder_descriptor) as descriptor, os.scandir(descriptor) as entries:
        kinds = {entry.name: entry.is_dir(follow_symlinks=False) for entry in entries}
    for name, is_folder in sorted(kinds.items()):
        if is_folder:
            yield from _walk(workspace, folder, f"{prefix}/{name}")
        else:
            yield f"{prefix}/{name}"


def _read(workspace: Path, path: str) -> bytes | None:
    """The content; `None`: it is gone, behind a link, or too long for a memory."""
    try:
        with open_folder(workspace) as root:
            return read_file(root, path, max_bytes=MAX_CONTENT_BYTES)
    except (InvalidInput, OSError):
        return None


def _make_folder(workspace: Path, folder: str) -> None:
    """An empty store has a folder, too."""
    with open_folder(workspace) as root:
        for above in (*list(PurePosixPath(folder).parents)[-2::-1], folder):
            with ensure_folder(root, str(above)) as made:
                if os.geteuid() == 0:
                    os.fchown(made, *owner_of_new(root))


def _remove(workspace: Path, path: str) -> None:
    with open_folder(workspace) as root:
        remove_file(root, path)


def mounted_memories_file(workspace: Path) -> Path:
    return workspace.with_name(f"{workspace.name}.memories.json")


def _read_written(workspace: Path) -> _WrittenMemories:
    try:
        return msgspec.json.decode(
            mounted_memories_file(workspace).read_bytes(), type=_WrittenMemories
        )
    except FileNotFoundError:
        return _WrittenMemories()
