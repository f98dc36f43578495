"""`/v1/mainspring/tenants`: for administrators of the platform."""

from __future__ import annotations

from dataclasses import dataclass

from msgspec import Struct

from mainspring.edges.api.route import ApiCall, Empty, Route
from mainspring.service.access.tenants import (
    CreateTenant,
    Tenant,
    Tenants,
    UpdateTenant,
    require_platform,
)
from mainspring.service.storage.pagination import Limit, Page
from mainspring.service.storage.repository import ListQuery


class ListTenants(Struct, frozen=True, kw_only=True):
    limit: Limit = 20
    page: str | None = None


@dataclass(frozen=True, slots=True)
class TenantRoutes:
    tenants: Tenants

    def routes(self) -> tuple[Route, ...]:
        one = "/v1/mainspring/tenants/{tenant_id}"
        return (
            Route(
                method="POST",
                path="/v1/mainspring/tenants",
                handle=self.create,
                summary="Create a tenant",
                body=CreateTenant,
                response_type=Tenant,
                role="admin",
                is_extension=True,
            ),
            Route(
                method="GET",
                path="/v1/mainspring/tenants",
                handle=self.list,
                summary="List tenants",
                query=ListTenants,
                response_type=Page[Tenant],
                role="admin",
                is_extension=True,
            ),
            Route(
                method="GET",
                path=one,
                handle=self.get,
                summary="Get a tenant",
                response_type=Tenant,
                role="admin",
                is_extension=True,
            ),
            Route(
                method="POST",
                path=one,
                handle=self.update,
                summary="Update a tenant's name and limits",
                body=UpdateTenant,
                response_type=Tenant,
                role="admin",
                is_extension=True,
            ),
            Route(
                method="POST",
                path=f"{one}/disable",
                handle=self.disable,
                summary="Disable a tenant: all its keys are refused",
                response_type=Tenant,
                role="admin",
                is_extension=True,
            ),
            Route(
                method="POST",
                path=f"{one}/enable",
                handle=self.enable,
                summary="Enable a tenant",
                response_type=Tenant,
                role="admin",
                is_extension=True,
            ),
        )

    async def create(self, call: ApiCall[Empty, CreateTenant]) -> Tenant:
        require_platform(call.who)
        return await self.tenants.create(call.body)

    async def list(self, call: ApiCall[ListTenants, Empty]) -> Page[Tenant]:
        require_platform(call.who)
        return await self.tenants.page(ListQuery(limit=call.query.limit, page=call.query.page))

    async def get(self, call: ApiCall[Empty, Empty]) -> Tenant:
        require_platform(call.who)
        return await self.tenants.get(call["tenant_id"])

    async def update(self, call: ApiCall[Empty, UpdateTenant]) -> Tenant:
        require_platform(call.who)
        return await self.tenants.update(call["tenant_id"], call.body)

    async def disable(self, call: ApiCall[Empty, Empty]) -> Tenant:
        require_platform(call.who)
        return await self.tenants.disable(call["tenant_id"])

    async def enable(self, call: ApiCall[Empty, Empty]) -> Tenant:
        require_platform(call.who)
        return await self.tenants.enable(call["tenant_id"])
