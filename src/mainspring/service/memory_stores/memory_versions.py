"""Versions of memories: what was changed, by whom; and redaction."""

from __future__ import annotations

import dataclasses
from datetime import datetime
from typing import Annotated

from msgspec import Meta, Struct
from msgspec.structs import replace

from mainspring.core import clock as clocks
from mainspring.core.clock import Clock
from mainspring.core.errors import InvalidInput
from mainspring.core.ids import ExternalId, KeyId, MemoryId, SessionId
from mainspring.log.records import RecordQuery, RecordRow, Records, Replace
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
from mainspring.service.storage.pagination import Page, cut_page, decode_cursor
from mainspring.service.storage.repository import optional_micros, row_at

MAX_FULL_PAGE = 20  # versions with their contents
_BATCH = 500  # versions read at once

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
    """Matches nothing: there are no service accounts."""
    created_at_gte: Moment | None = None
    created_at_lte: Moment | None = None

    @property
    def most(self) -> int:
        return min(self.limit, MAX_FULL_PAGE) if self.view == "full" else self.limit

    def matches(self, version: MemoryVersion) -> bool:
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
        version = await self._repository.get(tenant, version_id, parent=store_id)
        return await self._with_view(version, view)

    async def page(
        self, tenant: str, store_id: str, listing: VersionListing
    ) -> Page[MemoryVersion]:
        """Newest first.

        Raises: NotFound: the store; InvalidInput: a cursor of another list.
        """
        await self._stores.get(tenant, store_id)
        rows = await self._matching(tenant, store_id, listing)
        page = cut_page(rows, listing.most, lambda row: (row.created, row.id)).map(
            self._repository.read
        )
        versions = [await self._with_view(version, listing.view) for version in page.data]
        return Page(data=versions, next_page=page.next_page)

    async def _matching(
        self, tenant: str, store_id: str, listing: VersionListing
    ) -> list[RecordRow]:
        """The records of a page, and one more if there is one."""
        page = listing.page
        query = RecordQuery(
            kind=VERSION_KIND,
            tenant=tenant,
            parent=store_id,
            label=listing.memory_id,
            created_from=optional_micros(listing.created_at_gte),
            created_upto=optional_micros(listing.created_at_lte),
            after=None if page is None else row_at(*decode_cursor(page, tuple[int, str])),
            limit=_BATCH,
        )
        rows: list[RecordRow] = []
        while len(rows) <= listing.most and (batch := await self._records.list(query)):
            rows += (row for row in batch if listing.matches(self._repository.read(row)))
            query = dataclasses.replace(query, after=batch[-1])
        return rows[: listing.most + 1]

    async def redact(
        self, tenant: str, store_id: str, version_id: str, actor: MemoryActor
    ) -> MemoryVersion:
        """Delete the path and content of a version; that there was a change, and by whom, stays.

        Raises: NotFound; InvalidInput: it is the current version.
        """

        async def prepare() -> tuple[MemoryVersion, list[Replace]]:
            row = await self._repository.row(tenant, version_id, parent=store_id)
            current = self._repository.read(row)
            if current.redacted_at is not None:
                return current, []
            await self._require_past(tenant, current)
            redacted = redact_version(current, actor, self._clock())
            return redacted, [self._repository.replace_change(row, redacted, content=b"")]

        redacted = await self._repository.transact(version_id, prepare)
        await self._stores.forget(tenant, store_id)  # the index may contain its text
        return redacted

    async def _require_past(self, tenant: str, version: MemoryVersion) -> None:
        """Check that a version is not current; a past version never becomes current again."""
        memory = await self._memories.find(tenant, version.memory_id)
        if memory is not None and memory.memory_version_id == version.id:
            raise InvalidInput(
                f"{version.id} is the current version of {MEMORY_KIND} {memory.id}: update or"
                " delete the memory first"
            )

    async def _with_view(self, version: MemoryVersion, view: MemoryView) -> MemoryVersion:
        if view == "basic" or not version.has_content:
            return version
        content = await self._records.content(VERSION_KIND, version.id)
        if content_digest(content) != version.content_sha256:  # redacted since it was read
            return self._repository.read(await self._records.get(VERSION_KIND, version.id))
        return replace(version, content=content.decode())
