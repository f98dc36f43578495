"""Versions of memories: what was changed, by whom; and what must be forgotten of it."""

from __future__ import annotations

from datetime import datetime
from typing import Annotated

from msgspec import Meta, Struct
from msgspec.structs import replace

from mainspring.core import clock as clocks
from mainspring.core.clock import Clock, to_micros
from mainspring.core.errors import InvalidInput, NotFound, StaleVersion
from mainspring.core.ids import ExternalId, KeyId, MemoryId, SessionId
from mainspring.log.records import RecordQuery, RecordRow, Records
from mainspring.service.memory_stores.memory_records import (
    MEMORY_KIND,
    VERSION_KIND,
    ApiActor,
    MemoryActor,
    MemoryOperation,
    MemoryVersion,
    MemoryView,
    SessionActor,
    content_digest,
    memory_repository,
    redact_version,
    version_repository,
)
from mainspring.service.memory_stores.memory_stores import MemoryStores
from mainspring.service.storage.pagination import Page, decode_cursor, encode_cursor

MAX_FULL_PAGE = 20
_BATCH = 500
_TRIES = 32


Moment = Annotated[datetime, Meta(tz=True)]


class VersionListing(Struct, frozen=True, kw_only=True):
    limit: Annotated[int, Meta(ge=1, le=100)] = 20
    page: str | None = None
    view: MemoryView = "basic"
    memory_id: MemoryId | None = None
    operation: MemoryOperation | None = None
    session_id: SessionId | None = None
    api_key_id: KeyId | None = None
    service_account_id: ExternalId | None = None
    """Nobody's: there are no such accounts here."""
    created_at_gte: Moment | None = None
    created_at_lte: Moment | None = None

    @property
    def most(self) -> int:
        return min(self.limit, MAX_FULL_PAGE) if self.view == "full" else self.limit

    def wants(self, version: MemoryVersion) -> bool:
        by = version.created_by
        return (
            self.service_account_id is None
            and self.operation in (None, version.operation)
            and self.session_id in (None, by.session_id if isinstance(by, SessionActor) else "")
            and self.api_key_id in (None, by.api_key_id if isinstance(by, ApiActor) else "")
        )


class MemoryVersions:
    def __init__(
        self, records: Records, stores: MemoryStores, *, clock: Clock = clocks.now
    ) -> None:
        self._records = records
        self._stores = stores
        self._repository = version_repository(records, clock)
        self._memories = memory_repository(records, clock)
        self._clock = clock

    async def get(
        self, tenant: str, store_id: str, version_id: str, *, view: MemoryView = "full"
    ) -> MemoryVersion:
        """Raises: NotFound."""
        version = self._repository.read(await self._record(tenant, store_id, version_id))
        return await self._with_view(version, view)

    async def page(
        self, tenant: str, store_id: str, listing: VersionListing
    ) -> Page[MemoryVersion]:
        """Newest first.

        Raises: NotFound: the store; InvalidInput: a cursor of another list.
        """
        await self._stores.get(tenant, store_id)
        found = await self._matching(tenant, store_id, listing)
        shown, next_page = found[: listing.most], None
        if len(found) > listing.most:
            last = shown[-1]
            next_page = encode_cursor(last.created, last.id)
        versions = [
            await self._with_view(self._repository.read(item), listing.view) for item in shown
        ]
        return Page(data=versions, next_page=next_page)

    async def _matching(
        self, tenant: str, store_id: str, listing: VersionListing
    ) -> list[RecordRow]:
        """One more than are shown, if there is one."""
        after = None if listing.page is None else _cursor_record(listing.page)
        found: list[RecordRow] = []
        while len(found) <= listing.most and (
            batch := await self._after(tenant, store_id, listing, after)
        ):
            found += (item for item in batch if listing.wants(self._repository.read(item)))
            after = batch[-1]
        return found[: listing.most + 1]

    async def redact(
        self, tenant: str, store_id: str, version_id: str, actor: MemoryActor
    ) -> MemoryVersion:
        """Its path and content are gone for good; that there was a change, and whose, stays.

        Raises: NotFound; InvalidInput: it is what a memory has now.
        """
        for _ in range(_TRIES):
            record = await self._record(tenant, store_id, version_id)
            current = self._repository.read(record)
            if current.redacted_at is not None:
                return current
            await self._require_past(tenant, current)
            cleared = redact_version(current, actor, self._clock())
            try:
                await self._records.write(
                    self._repository.replace_change(record, cleared, content=b"")
                )
            except StaleVersion:
                continue
            return cleared
        raise StaleVersion(f"memory version {version_id}: others kept changing it; try again")

    async def _require_past(self, tenant: str, version: MemoryVersion) -> None:
        """Once it is past it stays so: a memory never goes back to a version."""
        try:
            memory = await self._memories.get(tenant, version.memory_id)
        except NotFound:
            return
        if memory.memory_version_id == version.id:
            raise InvalidInput(
                f"{version.id} is the current version of {MEMORY_KIND} {memory.id}: "
                "update or delete the"
                " memory first"
            )

    async def _after(
        self, tenant: str, store_id: str, listing: VersionListing, after: RecordRow | None
    ) -> list[RecordRow]:
        since, upto = listing.created_at_gte, listing.created_at_lte
        return await self._records.list(
            RecordQuery(
                kind=VERSION_KIND,
                tenant=tenant,
                parent=store_id,
                label=listing.memory_id,
                created_from=None if since is None else to_micros(since),
                created_upto=None if upto is None else to_micros(upto),
                after=after,
                limit=_BATCH,
            )
        )

    async def _record(self, tenant: str, store_id: str, version_id: str) -> RecordRow:
        record = await self._repository.record(tenant, version_id)
        if record.parent != store_id:
            raise NotFound(VERSION_KIND, version_id)
        return record

    async def _with_view(self, version: MemoryVersion, view: MemoryView) -> MemoryVersion:
        if view == "basic" or not version.has_content:
            return version
        content = await self._records.content(VERSION_KIND, version.id)
        if content_digest(content) != version.content_sha256:  # redacted since it was read
            return self._repository.read(await self._records.get(VERSION_KIND, version.id))
        return replace(version, content=content.decode())


def _cursor_record(cursor: str) -> RecordRow:
    match decode_cursor(cursor):
        case [int(created), str(id_)]:
            return RecordRow(
                tenant="", kind=VERSION_KIND, id=id_, created=created, updated=created, body=b""
            )
        case _:
            raise InvalidInput("page: not a cursor of this list")
