"""Files that a session has handed over: files of the tenant, with the session as their scope.

They outlive the session's workspace. What was kept of each path is noted, so that an unchanged file
is kept once, whoever dies over it, and a file that a client has deleted stays deleted.
"""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Protocol

from msgspec import Struct
from msgspec.structs import replace

from mainspring.core import clock as clocks
from mainspring.core.clock import Clock
from mainspring.core.errors import AlreadyThere, InvalidInput, NotFound
from mainspring.core.ids import stable_id
from mainspring.log.records import Records
from mainspring.service.describing.files import Files, NewFile
from mainspring.service.keeping.drawer import Drawer, Listing, Tabs

KIND = "session_outputs"
_LOG = logging.getLogger("mainspring.outputs")


@dataclass(frozen=True, slots=True, kw_only=True)
class OutputLimits:
    """Of one session."""

    max_files: int = 1000
    max_file_bytes: int = 100 * 1024 * 1024
    max_bytes: int = 500 * 1024 * 1024
    """Of all its files together, as they are now."""


class Listed(Protocol):
    @property
    def path(self) -> str: ...
    @property
    def stamp(self) -> str: ...


class Content(Protocol):
    @property
    def content(self) -> bytes: ...
    @property
    def sha256(self) -> str: ...
    @property
    def stamp(self) -> str: ...


@dataclass(frozen=True, slots=True, kw_only=True)
class Source:
    """The folder that a session hands its files over in."""

    list: Callable[[], Awaitable[Sequence[Listed]]]
    read: Callable[[str, int], Awaitable[Content | str]]
    """A file by its path, of at most so many bytes; or the reason why it is not read."""


class _Known(Struct, frozen=True, kw_only=True):
    """A path as it was kept last."""

    stamp: str
    sha256: str = ""
    file_id: str | None = None
    """`None`: it was not kept, for the reason that the log of the worker has."""
    size_bytes: int = 0


class _Outputs(Struct, frozen=True, kw_only=True):
    id: str
    """The session's."""
    paths: dict[str, _Known] = {}


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
        self._drawer = Drawer(
            records, KIND, _Outputs, tabs=lambda each: Tabs(parent=each.id), clock=clock
        )

    async def collect(self, tenant: str, session_id: str, source: Source) -> int:
        """Keep what is new or has changed; how many files that were."""
        listed = await source.list()
        known = await self._known(tenant, session_id)
        changed = [each for each in listed if _stamp(known, each.path) != each.stamp]
        kept = 0
        for each in changed:
            before = known.get(each.path)
            others = [file for path, file in known.items() if path != each.path and file.file_id]
            after = await self._kept(tenant, session_id, each, others, source)
            if after is None:
                continue
            known[each.path] = after
            await self._note(tenant, session_id, each.path, after)
            if before is not None and before.file_id not in (None, after.file_id):
                with suppress(NotFound):  # a client has deleted it
                    await self._files.delete(tenant, before.file_id)
            kept += after.file_id is not None
        return kept

    async def forget(self, tenant: str, session_id: str) -> None:
        """Of a session that is deleted: its files go with it."""
        while files := (await self._files.page(tenant, Listing(limit=100, label=session_id))).data:
            for file in files:
                with suppress(NotFound):
                    await self._files.delete(tenant, file.id)
        with suppress(NotFound):
            await self._drawer.remove(tenant, session_id)

    async def _kept(
        self,
        tenant: str,
        session_id: str,
        listed: Listed,
        others: Sequence[_Known],
        source: Source,
    ) -> _Known | None:
        """`None`: it is gone."""
        room = self._limits.max_bytes - sum(each.size_bytes for each in others)
        most = min(self._limits.max_file_bytes, self._files.max_bytes, room)
        if len(others) >= self._limits.max_files:
            return _refused(session_id, listed, f"a session hands over {len(others)} files at most")
        output = await source.read(listed.path, max(0, most))
        if isinstance(output, str):
            return _refused(session_id, listed, output)
        file_id = stable_id("file", tenant, session_id, listed.path, output.sha256)
        new = NewFile(
            content=output.content, filename=listed.path[-255:], session_id=session_id, id=file_id
        )
        try:
            with suppress(AlreadyThere):  # whoever kept it did not get to note it
                await self._files.create(tenant, new)
        except InvalidInput as error:
            return _refused(session_id, listed, str(error))
        return _Known(
            stamp=output.stamp,
            sha256=output.sha256,
            file_id=file_id,
            size_bytes=len(output.content),
        )

    async def _known(self, tenant: str, session_id: str) -> dict[str, _Known]:
        try:
            return dict((await self._drawer.get(tenant, session_id)).paths)
        except NotFound:
            return {}

    async def _note(self, tenant: str, session_id: str, path: str, known: _Known) -> None:
        def change(outputs: _Outputs) -> _Outputs:
            return replace(outputs, paths={**outputs.paths, path: known})

        try:
            await self._drawer.update(tenant, session_id, change)
        except NotFound:
            await self._drawer.put(tenant, change(_Outputs(id=session_id)))


def _stamp(known: dict[str, _Known], path: str) -> str | None:
    return known[path].stamp if path in known else None


def _refused(session_id: str, listed: Listed, reason: str) -> _Known:
    _LOG.warning("session %s: outputs/%s is not kept: %s", session_id, ascii(listed.path), reason)
    return _Known(stamp=listed.stamp)
