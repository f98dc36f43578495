"""`/v1/dreams`."""

from __future__ import annotations

from dataclasses import dataclass

from mainspring.edges.api.route import ApiCall, Empty, ShortPageQuery, Timestamp, list_query, route
from mainspring.service.dreams.dream_types import CreateDream, DreamObject, DreamState
from mainspring.service.dreams.dreams import Dreams
from mainspring.service.storage.pagination import Page


class ListDreams(ShortPageQuery, frozen=True, kw_only=True):
    include_archived: bool = False
    statuses: tuple[DreamState, ...] = ()
    created_at_gt: Timestamp | None = None
    created_at_lt: Timestamp | None = None


@dataclass(frozen=True, slots=True)
class DreamRoutes:
    dreams: Dreams

    @route("POST /v1/dreams", "Create a dream")
    async def create(self, call: ApiCall[Empty, CreateDream]) -> DreamObject:
        return await self.dreams.create(call.who, call.body)

    @route("GET /v1/dreams", "List dreams")
    async def list(self, call: ApiCall[ListDreams, Empty]) -> Page[DreamObject]:
        listing = list_query(call.query, label=call.query.statuses or None)
        return await self.dreams.page(call.tenant, listing)

    @route("GET /v1/dreams/{dream_id}", "Get a dream")
    async def get(self, call: ApiCall[Empty, Empty]) -> DreamObject:
        return await self.dreams.get(call.tenant, call["dream_id"])

    @route("POST /v1/dreams/{dream_id}/cancel", "Cancel a dream")
    async def cancel(self, call: ApiCall[Empty, Empty]) -> DreamObject:
        return await self.dreams.cancel(call.tenant, call["dream_id"])

    @route("POST /v1/dreams/{dream_id}/archive", "Archive a dream")
    async def archive(self, call: ApiCall[Empty, Empty]) -> DreamObject:
        return await self.dreams.archive(call.tenant, call["dream_id"])
