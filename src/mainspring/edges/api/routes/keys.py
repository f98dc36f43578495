"""`/v1/mainspring/keys`: the keys of a tenant, for its administrators."""

from __future__ import annotations

from dataclasses import dataclass

from msgspec import Struct

from mainspring.edges.api.route import ApiCall, Empty, route
from mainspring.service.access.api_keys import CreateKey, Key, Keys, NewKey
from mainspring.service.storage.pagination import Limit, Page
from mainspring.service.storage.repository import ListQuery


class ListKeys(Struct, frozen=True, kw_only=True):
    limit: Limit = 20
    page: str | None = None
    include_revoked: bool = False


@dataclass(frozen=True, slots=True)
class KeyRoutes:
    keys: Keys

    @route(
        "POST /v1/mainspring/keys",
        "Create a key; only this response contains its secret",
        role="admin",
    )
    async def create(self, call: ApiCall[Empty, CreateKey]) -> NewKey:
        return await self.keys.create(call.who, call.body)

    @route("GET /v1/mainspring/keys", "List keys", role="admin")
    async def list(self, call: ApiCall[ListKeys, Empty]) -> Page[Key]:
        query = call.query
        return await self.keys.page(
            call.tenant,
            ListQuery(limit=query.limit, page=query.page, include_archived=query.include_revoked),
        )

    @route("GET /v1/mainspring/keys/{key_id}", "Get a key", role="admin")
    async def get(self, call: ApiCall[Empty, Empty]) -> Key:
        return await self.keys.get(call.tenant, call["key_id"])

    @route("POST /v1/mainspring/keys/{key_id}/revoke", "Revoke a key permanently", role="admin")
    async def revoke(self, call: ApiCall[Empty, Empty]) -> Key:
        call.who.require_human()
        return await self.keys.revoke(call.tenant, call["key_id"])
