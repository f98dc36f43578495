"""Access of dreams to a memory store of the API."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass

from mainspring.core.clock import Clock
from mainspring.core.errors import InvalidInput, MemoryChanged, NotFound
from mainspring.core.sender import Sender
from mainspring.runtime.memory.learning.memory_edits import AppliedEdits, MemoryEdit, RefusedEdit
from mainspring.runtime.memory.memory_versions import NoteVersion
from mainspring.service.memory_stores.memories import Memories, MemoryListing
from mainspring.service.memory_stores.memory_records import (
    CreateMemory,
    MemoryObject,
    SessionActor,
    UpdateMemory,
    content_digest,
)


@dataclass(frozen=True, slots=True, kw_only=True)
class ApiDreamStore:
    """A `DreamStore`."""

    memories: Memories
    tenant: str
    source: str
    """The store that is read."""
    target: str
    """The store that is written: the same, or a new one."""
    session_id: str
    """The dream's own session, which is the author of its changes."""
    clock: Clock
    check: Callable[[], Awaitable[None]]
    """Raises an error that stops the dream, if it was canceled."""

    async def texts(self) -> Mapping[str, str]:
        await self.check()
        return {
            path: memory.content or "" for path, memory in (await self._all(self.source)).items()
        }

    async def apply(self, dream_id: str, edits: Sequence[MemoryEdit]) -> AppliedEdits:
        """Apply edits; an edit that is already in place is not written again."""
        await self.check()
        if self.target != self.source:
            await self._copy()
        present = await self._all(self.target)
        versions: list[NoteVersion] = []
        refused_edits: list[RefusedEdit] = []
        for edit in edits:
            try:
                memory_object = await self._apply(edit, present.get(edit.path))
            except (InvalidInput, MemoryChanged, NotFound) as error:
                refused_edits.append(RefusedEdit(path=edit.path, problem=str(error)))
                continue
            versions.append(self._version(edit, memory_object))
        return AppliedEdits(versions=tuple(versions), refused=tuple(refused_edits))

    async def revert(self, versions: Sequence[str], reason: str) -> list[str]:
        """Not supported: the API keeps the versions of memories instead."""
        raise InvalidInput(
            "a dream over a memory store cannot be rolled back; use the versions of its memories"
        )

    async def _copy(self) -> None:
        present = await self._all(self.target)
        for path, memory in (await self._all(self.source)).items():
            if path not in present:
                request = CreateMemory(path=memory.path, content=memory.content or "")
                await self.memories.create(self.tenant, self.target, request, self._actor)

    async def _apply(self, edit: MemoryEdit, current: MemoryObject | None) -> MemoryObject | None:
        if edit.text is None:
            if current is not None:
                await self.memories.delete(
                    self.tenant, self.target, current.id, self._actor, expected_sha256=edit.before
                )
            return None
        if current is None:
            request = CreateMemory(path=f"/{edit.path}", content=edit.text)
            return await self.memories.create(self.tenant, self.target, request, self._actor)
        if current.content_sha256 == content_digest(edit.text.encode()):
            return current
        if current.content_sha256 != edit.before:
            raise MemoryChanged(f"{edit.path} has changed since this was proposed")
        update = UpdateMemory(content=edit.text)
        return await self.memories.update(self.tenant, self.target, current.id, update, self._actor)

    def _version(self, edit: MemoryEdit, memory: MemoryObject | None) -> NoteVersion:
        is_new = edit.before == ""
        return NoteVersion(
            id=edit.path if memory is None else memory.memory_version_id,
            path=edit.path,
            operation="deleted" if edit.text is None else "created" if is_new else "modified",
            time=self.clock(),
            author=Sender(kind="agent", id=self.session_id),
            reason=edit.reason,
        )

    @property
    def _actor(self) -> SessionActor:
        return SessionActor(session_id=self.session_id)

    async def _all(self, store_id: str) -> dict[str, MemoryObject]:
        memory_objects: dict[str, MemoryObject] = {}
        page: str | None = None
        while True:
            listing = MemoryListing(limit=100, page=page, view="full")
            memory_page = await self.memories.page(self.tenant, store_id, listing)
            for item in memory_page.data:
                if isinstance(item, MemoryObject):
                    memory_objects[item.path.removeprefix("/")] = item
            if (page := memory_page.next_page) is None:
                return memory_objects
