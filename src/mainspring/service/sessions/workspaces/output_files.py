"""Output files of a session: files of the tenant, with the session as their scope.

They outlive the session's workspace. A record of the stored paths ensures that an unchanged file is
stored once, even after a crash, and that a file that a client has deleted stays deleted.
"""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable, Collection, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Protocol, TypeAlias

from msgspec import Struct

from mainspring.core import clock as clocks
from mainspring.core.clock import Clock
from mainspring.core.errors import AlreadyExists, InvalidInput, NotFound
from mainspring.core.ids import stable_id
from mainspring.log.records import Records
from mainspring.service.resources.file_resources import Files, NewFile
from mainspring.service.storage.repository import IndexColumns, ListQuery, Repository

KIND = "session_outputs"
_LOG = logging.getLogger("mainspring.outputs")
_BATCH = 100
"""Files per write of the record of paths."""
_MAX_LOGGED = 20  # files named in one warning
IsStopped: TypeAlias = Callable[[], Awaitable[bool]]


@dataclass(frozen=True, slots=True, kw_only=True)
class OutputLimits:
    """Limits for each session."""

    max_files: int = 1000
    max_file_bytes: int = 100 * 1024 * 1024
    max_bytes: int = 500 * 1024 * 1024
    """The limit of all its current files together."""


class ListedOutput(Protocol):
    @property
    def path(self) -> str: ...
    @property
    def stamp(self) -> str: ...


class OutputContent(Protocol):
    @property
    def content(self) -> bytes: ...
    @property
    def sha256(self) -> str: ...
    @property
    def stamp(self) -> str: ...


class OutputSource(Protocol):
    """The folder with the output files of a session."""

    async def list(self) -> Sequence[ListedOutput]: ...

    async def read(self, path: str, max_bytes: int) -> OutputContent | str:
        """The content of a file; or the reason why it cannot be read, as text."""
        ...


class _StoredPath(Struct, frozen=True, kw_only=True):
    """The version of a path that was stored last."""

    stamp: str
    sha256: str = ""
    file_id: str | None = None
    """`None` in older records: the file was refused, which is no longer recorded."""
    size_bytes: int = 0


class _Outputs(Struct, frozen=True, kw_only=True):
    id: str
    """The id of the session."""
    paths: dict[str, _StoredPath] = {}


class _RefusedFiles:
    """Logs the files that are not stored, up to a limit: an agent could create any number."""

    def __init__(self, session_id: str) -> None:
        self.session_id = session_id
        self._skipped = 0
        self._logged = 0

    def note(self, path: str, reason: str) -> None:
        if self._logged >= _MAX_LOGGED:
            self._skipped += 1
            return
        self._logged += 1
        _LOG.warning(
            "session %s: outputs/%s is not stored: %s", self.session_id, ascii(path), reason
        )

    def log_skipped(self) -> None:
        if self._skipped:
            _LOG.warning(
                "session %s: %d more outputs are not stored", self.session_id, self._skipped
            )


async def _never_stopped() -> bool:
    return False


class SessionOutputs:
    def __init__(
        self,
        records: Records,
        files: Files,
        *,
        limits: OutputLimits | None = None,
        clock: Clock = clocks.now,
    ) -> None:
        self._files = files
        self._limits = limits or OutputLimits()
        self._repository = Repository(
            records, KIND, _Outputs, columns=lambda item: IndexColumns(parent=item.id), clock=clock
        )

    async def collect(
        self,
        tenant: str,
        session_id: str,
        folder: OutputSource,
        *,
        is_stopped: IsStopped = _never_stopped,
    ) -> int:
        """Store new and changed files; returns how many. If `is_stopped` becomes true, the rest are
        left for the next call."""
        outputs = await folder.list()
        current = await self._load(tenant, session_id)
        stamps = {path: stored.stamp for path, stored in current.items()}
        changed = [item for item in outputs if stamps.get(item.path) != item.stamp]
        if not changed:
            return 0
        await self._drop_deleted(tenant, current, {item.path for item in outputs})
        refused_files, count = _RefusedFiles(session_id), 0
        for start in range(0, len(changed), _BATCH):
            if await is_stopped():
                _LOG.info("session %s: some outputs were not checked: it was stopped", session_id)
                break
            batch = changed[start : start + _BATCH]
            count += await self._store_batch(tenant, current, batch, folder, refused_files)
        refused_files.log_skipped()
        return count

    async def _store_batch(
        self,
        tenant: str,
        paths: dict[str, _StoredPath],
        batch: Sequence[ListedOutput],
        folder: OutputSource,
        refused: _RefusedFiles,
    ) -> int:
        """Store a batch and update `paths`. The record is written once for the whole batch."""
        session_id, outdated, count = refused.session_id, list[str | None](), 0
        for item in batch:
            before = paths.pop(item.path, None)
            after = await self._store_file(tenant, session_id, item, list(paths.values()), folder)
            if isinstance(after, _StoredPath):
                paths[item.path] = after
                count += 1
            else:
                refused.note(item.path, after)
            if before is not None and (isinstance(after, str) or before.file_id != after.file_id):
                outdated.append(before.file_id)
        if count or outdated:
            await self._repository.save(tenant, _Outputs(id=session_id, paths=dict(paths)))
        for file_id in filter(None, outdated):
            with suppress(NotFound):  # a client has already deleted it
                await self._files.delete(tenant, file_id)
        return count

    async def _drop_deleted(
        self, tenant: str, paths: dict[str, _StoredPath], present: Collection[str]
    ) -> None:
        """Remove paths that are neither in the folder nor stored. Stored files count towards the
        limits: else a session could hand over any number of files, one after another."""
        missing = {
            output.file_id: path
            for path, output in paths.items()
            if output.file_id is not None and path not in present
        }
        stored_ids = {file.id for file in await self._files.get_many(tenant, list(missing))}
        for file_id, path in missing.items():
            if file_id not in stored_ids:
                del paths[path]

    async def forget(self, tenant: str, session_id: str) -> None:
        """Delete the files of a deleted session."""
        while files := (
            await self._files.page(tenant, ListQuery(limit=100, label=session_id))
        ).data:
            for file in files:
                with suppress(NotFound):
                    await self._files.delete(tenant, file.id)
        with suppress(NotFound):
            await self._repository.remove(tenant, session_id)

    async def _store_file(
        self,
        tenant: str,
        session_id: str,
        listed: ListedOutput,
        stored_paths: Sequence[_StoredPath],
        folder: OutputSource,
    ) -> _StoredPath | str:
        """Returns the stored path, or the reason why it is not stored."""
        room = self._limits.max_bytes - sum(path.size_bytes for path in stored_paths)
        most = min(self._limits.max_file_bytes, self._files.max_bytes, room)
        if len(stored_paths) >= self._limits.max_files:
            return f"a session may have at most {self._limits.max_files} output files"
        output = await folder.read(listed.path, max(0, most))
        if isinstance(output, str):
            return output
        file_id = stable_id("file", tenant, session_id, listed.path, output.sha256)
        new = NewFile(
            content=output.content, filename=listed.path[-255:], session_id=session_id, id=file_id
        )
        try:
            with suppress(AlreadyExists):  # stored before a crash, but not recorded
                await self._files.create(tenant, new)
        except InvalidInput as error:
            return str(error)
        return _StoredPath(
            stamp=output.stamp,
            sha256=output.sha256,
            file_id=file_id,
            size_bytes=len(output.content),
        )

    async def _load(self, tenant: str, session_id: str) -> dict[str, _StoredPath]:
        outputs = await self._repository.find(tenant, session_id)
        paths = {} if outputs is None else outputs.paths
        return {path: output for path, output in paths.items() if output.file_id}
