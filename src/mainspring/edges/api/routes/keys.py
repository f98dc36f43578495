"""`/v1/mainspring/keys`: the keys of a tenant, for its administrators."""

from __future__ import annotations

from dataclasses import dataclass

from msgspec import Struct

from mainspring.edges.api.route import ApiCall, Empty, Route
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

    def routes(self) -> tuple[Route, ...]:
        one = "/v1/mainspring/keys/{key_id}"
        return (
            Route(
                method="POST",
                path="/v1/mainspring/keys",
                handle=self.create,
                summary="Create a key; only this response contains its secret",
                body=CreateKey,
                response_type=NewKey,
                role="admin",
                is_extension=True,
            ),
            Route(
                method="GET",
                path="/v1/mainspring/keys",
                handle=self.list,
                summary="List keys",
                query=ListKeys,
                response_type=Page[Key],
                role="admin",
                is_extension=True,
            ),
            Route(
                method="GET",
                path=one,
                handle=self.get,
                summary="Get a key",
                response_type=Key,
                role="admin",
                is_extension=True,
            ),
            Route(
                method="POST",
                path=f"{one}/revoke",
                handle=self.revoke,
                summary="Revoke a key permanently",
                response_type=Key,
                role="admin",
                is_extension=True,
            ),
        )

    async def create(self, call: ApiCall[Empty, CreateKey]) -> NewKey:
        return await self.keys.create(call.who, call.body)

    async def list(self, call: ApiCall[ListKeys, Empty]) -> Page[Key]:
        query = call.query
        return await self.keys.page(
            call.tenant,
            ListQuery(limit=query.limit, page=query.page, include_archived=query.include_revoked),
        )

    async def get(self, call: ApiCall[Empty, Empty]) -> Key:
        return await self.keys.get(call.tenant, call["key_id"])

    async def revoke(self, call: ApiCall[Empty, Empty]) -> Key:
        call.who.require_human()
        return await self.keys.revoke(call.tenant, call["key_id"])
