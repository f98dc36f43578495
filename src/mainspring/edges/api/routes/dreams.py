"""`/v1/dreams`."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

from msgspec import Meta, Struct

from mainspring.edges.api.route import ApiCall, Empty, Timestamp, route
from mainspring.service.dreams.dream_types import CreateDream, DreamObject, DreamState
from mainspring.service.dreams.dreams import Dreams
from mainspring.service.schedules.deployment_runner import just_after, just_before
from mainspring.service.storage.pagination import Page
from mainspring.service.storage.repository import ListQuery


class ListDreams(Struct, frozen=True, kw_only=True):
    limit: Annotated[int, Meta(ge=1, le=100)] = 20
    page: str | None = None
    include_archived: bool = False
    statuses: tuple[DreamState, ...] = ()
    created_at_gt: Timestamp | None = None
    created_at_lt: Timestamp | None = None


@dataclass(frozen=True, slots=True)
class DreamRoutes:
    dreams: Dreams

    @route("POST /v1/dreams", "Create a dream", role="operator")
    async def create(self, call: ApiCall[Empty, CreateDream]) -> DreamObject:
        return await self.dreams.create(call.who, call.body)

    @route("GET /v1/dreams", "List dreams")
    async def list(self, call: ApiCall[ListDreams, Empty]) -> Page[DreamObject]:
        query = call.query
        listing = ListQuery(
            limit=query.limit,
            page=query.page,
            include_archived=query.include_archived,
            created_from=query.created_at_gt and just_after(query.created_at_gt),
            created_upto=query.created_at_lt and just_before(query.created_at_lt),
        )
        return await self.dreams.page(call.tenant, listing, query.statuses)

    @route("GET /v1/dreams/{dream_id}", "Get a dream")
    async def get(self, call: ApiCall[Empty, Empty]) -> DreamObject:
        return await self.dreams.get(call.tenant, call["dream_id"])

    @route("POST /v1/dreams/{dream_id}/cancel", "Cancel a dream", role="operator")
    async def cancel(self, call: ApiCall[Empty, Empty]) -> DreamObject:
        return await self.dreams.cancel(call.tenant, call["dream_id"])

    @route("POST /v1/dreams/{dream_id}/archive", "Archive a dream", role="operator")
    async def archive(self, call: ApiCall[Empty, Empty]) -> DreamObject:
        return await self.dreams.archive(call.tenant, call["dream_id"])
