"""Tenants, which share nothing with each other. Only administrators of the platform see all."""

from __future__ import annotations

from contextlib import suppress
from datetime import datetime
from decimal import Decimal
from typing import Annotated, Literal, TypeAlias

from msgspec import UNSET, Meta, Struct, UnsetType
from msgspec.structs import replace

from mainspring import error_table
from mainspring.core import clock as clocks
from mainspring.core import ids
from mainspring.core.clock import Clock
from mainspring.core.errors import AlreadyExists, Forbidden, InvalidInput
from mainspring.log.records import Put, Records
from mainspring.service.access.principal import Principal
from mainspring.service.storage.metadata import apply_patch, copy_fields
from mainspring.service.storage.pagination import Page
from mainspring.service.storage.repository import ListQuery, Repository

ROOT_TENANT = "default"
"""The first tenant, created at the first start. Its administrators are the platform's."""
PLATFORM_TENANT = ""
"""The owner of tenant records: no key belongs to this tenant."""

TenantId = Annotated[ids.TenantId, Meta(pattern=r"^[a-z0-9][a-z0-9_-]{0,62}\Z")]
PerMinute: TypeAlias = Annotated[int, Meta(ge=1, le=10_000_000)]
Usd: TypeAlias = Decimal
"""Dollars, as text in JSON."""
AgentBudgets: TypeAlias = Annotated[dict[str, Usd], Meta(max_length=1000)]


class Tenant(Struct, frozen=True, kw_only=True):
    id: str
    name: str
    created_at: datetime
    updated_at: datetime
    requests_per_minute: int | None = None
    """The limit of all its keys together, for each API process; `null`: the platform's default."""
    daily_budget_usd: Usd | None = None
    agent_daily_budgets_usd: AgentBudgets = {}
    """By the agent's name; `*` for all others."""
    disabled_at: datetime | None = None
    type: Literal["tenant"] = "tenant"


class CreateTenant(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    id: TenantId
    name: Annotated[str, Meta(max_length=256)] = ""
    requests_per_minute: PerMinute | None = None
    daily_budget_usd: Usd | None = None
    agent_daily_budgets_usd: AgentBudgets = {}


class UpdateTenant(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Omitted fields keep their values; `null` removes a limit."""

    name: Annotated[str, Meta(max_length=256)] | UnsetType = UNSET
    requests_per_minute: PerMinute | UnsetType | None = UNSET
    daily_budget_usd: Usd | UnsetType | None = UNSET
    agent_daily_budgets_usd: AgentBudgets | UnsetType = UNSET


class Tenants:
    def __init__(
        self, records: Records, *, clock: Clock = clocks.now, is_single: bool = False
    ) -> None:
        """`is_single`: no other tenant than the first may be created."""
        self._repository = Repository(records, "tenant", Tenant, clock=clock)
        self._clock = clock
        self._is_single = is_single

    async def create(self, request: CreateTenant) -> Tenant:
        """Raises: AlreadyExists, InvalidInput."""
        return await self._repository.put(PLATFORM_TENANT, self._new_tenant(request))

    def create_change(self, request: CreateTenant) -> Put:
        """The change that `create` makes, to combine several changes in one write."""
        return self._repository.put_change(PLATFORM_TENANT, self._new_tenant(request))

    async def ensure_root(self) -> None:
        with suppress(AlreadyExists):
            await self.create(CreateTenant(id=ROOT_TENANT))

    async def get(self, tenant_id: str) -> Tenant:
        """Raises: NotFound."""
        return await self._repository.get(PLATFORM_TENANT, tenant_id)

    async def is_disabled(self, tenant_id: str) -> bool:
        """Whether the tenant is disabled: then neither its requests nor its schedules are
        served."""
        tenant = await self._repository.find(PLATFORM_TENANT, tenant_id)
        return tenant is not None and tenant.disabled_at is not None

    async def update(self, tenant_id: str, request: UpdateTenant) -> Tenant:
        """Raises: NotFound, InvalidInput."""

        def change(current: Tenant) -> Tenant:
            return _check_tenant(apply_patch(current, request, updated_at=self._clock()))

        return await self._repository.update(PLATFORM_TENANT, tenant_id, change)

    async def disable(self, tenant_id: str) -> Tenant:
        """Disable a tenant: within seconds its keys are refused and its agents stop; nothing is
        deleted.

        Raises: InvalidInput: the root tenant, without which nobody could enable it again.
        """
        if tenant_id == ROOT_TENANT:
            raise InvalidInput(
                f"the tenant {ROOT_TENANT} belongs to the platform and cannot be disabled"
            )

        def change(current: Tenant) -> Tenant:
            now = self._clock()
            return replace(current, disabled_at=current.disabled_at or now, updated_at=now)

        return await self._repository.update(PLATFORM_TENANT, tenant_id, change)

    async def enable(self, tenant_id: str) -> Tenant:
        return await self._repository.update(
            PLATFORM_TENANT,
            tenant_id,
            lambda current: replace(current, disabled_at=None, updated_at=self._clock()),
        )

    async def require_single(self) -> None:
        """Raises: InvalidInput: there are other tenants than the first."""
        page = await self._repository.page(
            PLATFORM_TENANT, ListQuery(limit=2, include_archived=True)
        )
        others = [tenant.id for tenant in page.data if tenant.id != ROOT_TENANT]
        if others:
            raise error_table.CONTAINER_TENANTS.error(InvalidInput, tenant=others[0])

    async def page(self, query: ListQuery) -> Page[Tenant]:
        return await self._repository.page(PLATFORM_TENANT, query)

    def _new_tenant(self, request: CreateTenant) -> Tenant:
        if self._is_single and request.id != ROOT_TENANT:
            raise error_table.CONTAINER_TENANTS.error(InvalidInput, tenant=request.id)
        now = self._clock()
        name = request.name or request.id
        return _check_tenant(
            copy_fields(Tenant, request, name=name, created_at=now, updated_at=now)
        )


def require_platform(principal: Principal) -> None:
    """Raises: Forbidden: only administrators of the root tenant manage tenants."""
    principal.require("admin")
    principal.require_human()
    if principal.tenant != ROOT_TENANT or principal.agent_id is not None:
        raise Forbidden(
            f"only administrators may manage tenants, with a key of the tenant {ROOT_TENANT}"
        )


def check_usd(name: str, amount: Decimal | None) -> None:
    """Raises: InvalidInput."""
    if amount is not None and not (amount.is_finite() and 0 <= amount <= 1_000_000_000):
        raise InvalidInput(f"{name}: must be an amount of US dollars, 0 or more")


def _check_tenant(tenant: Tenant) -> Tenant:
    check_usd("daily_budget_usd", tenant.daily_budget_usd)
    for agent, amount in tenant.agent_daily_budgets_usd.items():
        check_usd(f"agent_daily_budgets_usd.{agent}", amount)
    return tenant
