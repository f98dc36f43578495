"""`/v1/mainspring/keys`: the keys of a tenant, for its administrators."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from mainspring.edges.api.route import ApiCall, Empty, PageQuery, RouteOptions, list_query, route
from mainspring.service.access.api_keys import CreateKey, Key, Keys, NewKey
from mainspring.service.storage.pagination import Page


class ListKeys(PageQuery, frozen=True, kw_only=True):
    include_revoked: bool = False


@dataclass(frozen=True, slots=True)
class KeyRoutes:
    keys: Keys
    route_options: ClassVar[RouteOptions] = {"role": "admin"}

    @route("POST /v1/mainspring/keys", "Create a key; only this response contains its secret")
    async def create(self, call: ApiCall[Empty, CreateKey]) -> NewKey:
        return await self.keys.create(call.who, call.body)

    @route("GET /v1/mainspring/keys", "List keys")
    async def list(self, call: ApiCall[ListKeys, Empty]) -> Page[Key]:
        listing = list_query(call.query, include_archived=call.query.include_revoked)
        return await self.keys.page(call.tenant, listing)

    @route("GET /v1/mainspring/keys/{key_id}", "Get a key")
    async def get(self, call: ApiCall[Empty, Empty]) -> Key:
        return await self.keys.get(call.tenant, call["key_id"])

    @route("POST /v1/mainspring/keys/{key_id}/revoke", "Revoke a key permanently")
    async def revoke(self, call: ApiCall[Empty, Empty]) -> Key:
        call.who.require_human()
        return await self.keys.revoke(call.tenant, call["key_id"])
