"""`/v1/mainspring/tenants`: for administrators of the platform."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from mainspring.edges.api.route import ApiCall, Empty, PageQuery, RouteOptions, list_query, route
from mainspring.service.access.tenants import (
    CreateTenant,
    Tenant,
    Tenants,
    UpdateTenant,
    require_platform,
)
from mainspring.service.storage.pagination import Page


@dataclass(frozen=True, slots=True)
class TenantRoutes:
    tenants: Tenants
    route_options: ClassVar[RouteOptions] = {"role": "admin"}

    @route("POST /v1/mainspring/tenants", "Create a tenant")
    async def create(self, call: ApiCall[Empty, CreateTenant]) -> Tenant:
        require_platform(call.who)
        return await self.tenants.create(call.body)

    @route("GET /v1/mainspring/tenants", "List tenants")
    async def list(self, call: ApiCall[PageQuery, Empty]) -> Page[Tenant]:
        require_platform(call.who)
        return await self.tenants.page(list_query(call.query))

    @route("GET /v1/mainspring/tenants/{tenant_id}", "Get a tenant")
    async def get(self, call: ApiCall[Empty, Empty]) -> Tenant:
        require_platform(call.who)
        return await self.tenants.get(call["tenant_id"])

    @route("POST /v1/mainspring/tenants/{tenant_id}", "Update a tenant's name and limits")
    async def update(self, call: ApiCall[Empty, UpdateTenant]) -> Tenant:
        require_platform(call.who)
        return await self.tenants.update(call["tenant_id"], call.body)

    @route(
        "POST /v1/mainspring/tenants/{tenant_id}/disable",
        "Disable a tenant: all its keys are refused",
    )
    async def disable(self, call: ApiCall[Empty, Empty]) -> Tenant:
        require_platform(call.who)
        return await self.tenants.disable(call["tenant_id"])

    @route("POST /v1/mainspring/tenants/{tenant_id}/enable", "Enable a tenant")
    async def enable(self, call: ApiCall[Empty, Empty]) -> Tenant:
        require_platform(call.who)
        return await self.tenants.enable(call["tenant_id"])
