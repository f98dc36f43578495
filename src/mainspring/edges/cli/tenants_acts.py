"""What `mainspring tenants` does, straight on the store."""

from __future__ import annotations

from decimal import Decimal

import msgspec
from msgspec import Struct

from mainspring.config import Settings
from mainspring.core.errors import InvalidInput
from mainspring.edges.cli.operator_access import open_as_operator
from mainspring.edges.cli.printing import Screen, dollars, local_time
from mainspring.service.access.budget_ledger import DailyBudgetLedger
from mainspring.service.access.tenants import CreateTenant, Tenant, Tenants, UpdateTenant
from mainspring.service.storage.repository import ListQuery


class TenantView(Struct, frozen=True, kw_only=True):
    tenant: Tenant
    spent_today_usd: Decimal


async def create(settings: Settings, *, tenant: str, given: dict[str, object], json: bool) -> int:
    try:
        asked = msgspec.convert({"id": tenant, **given}, CreateTenant)
    except msgspec.ValidationError as error:
        wrong = InvalidInput(f"{tenant}: {error}")
        wrong.add_note("an id is made of small letters, digits, - and _")
        raise wrong from error
    async with open_as_operator(settings, is_new=True) as operator:
        made = await Tenants(operator.records).create(asked)
        await operator.audit(tenant, "tenants create", tenant)
    _print_tenant(settings, "made", made, json=json)
    return 0


async def change(settings: Settings, *, tenant: str, given: dict[str, object], json: bool) -> int:
    asked = msgspec.convert(given, UpdateTenant)
    async with open_as_operator(settings) as operator:
        changed = await Tenants(operator.records).update(tenant, asked)
        await operator.audit(tenant, "tenants set", tenant)
    _print_tenant(settings, "changed", changed, json=json)
    return 0


async def set_enabled(settings: Settings, *, tenant: str, is_enabled: bool, json: bool) -> int:
    async with open_as_operator(settings) as operator:
        tenants = Tenants(operator.records)
        changed = await (tenants.enable if is_enabled else tenants.disable)(tenant)
        command = "enable" if is_enabled else "disable"
        await operator.audit(tenant, f"tenants {command}", tenant)
    _print_tenant(settings, f"{command}d", changed, json=json)
    return 0


def _print_tenant(settings: Settings, what: str, tenant: Tenant, *, json: bool) -> None:
    screen = Screen(settings)
    if json:
        screen.json(msgspec.json.encode(tenant))
    else:
        screen.line((f"{what} ", "green"), (tenant.id, "bold"))


async def ls(settings: Settings, *, json: bool) -> int:
    found: list[Tenant] = []
    async with open_as_operator(settings) as operator:
        tenants = Tenants(operator.records)
        shown = await tenants.page(ListQuery(limit=1000))
        found += shown.data
        while shown.next_page is not None:
            shown = await tenants.page(ListQuery(limit=1000, page=shown.next_page))
            found += shown.data
    screen = Screen(settings)
    if json:
        for tenant in found:
            screen.json(msgspec.json.encode(tenant))
        return 0
    screen.table(
        ["ID", "NAME", "BUDGET", "CREATED", "STATE"],
        [
            [
                (tenant.id, "bold"),
                (tenant.name, ""),
                (_amount_text(tenant.daily_budget_usd), ""),
                (local_time(tenant.created_at), "dim"),
                ("disabled" if tenant.disabled_at else "", "red"),
            ]
            for tenant in found
        ],
    )
    return 0


async def show(settings: Settings, *, tenant: str, json: bool) -> int:
    async with open_as_operator(settings) as operator:
        known = await Tenants(operator.records).get(tenant)
        spent = await DailyBudgetLedger(operator.records).spent_usd(tenant, "tenant", tenant)
    screen = Screen(settings)
    if json:
        screen.json(msgspec.json.encode(TenantView(tenant=known, spent_today_usd=spent)))
        return 0
    rate = known.requests_per_minute
    budgets = known.agent_daily_budgets_usd
    lines = [
        ("name", known.name),
        ("created", local_time(known.created_at)),
        ("state", f"disabled {local_time(known.disabled_at)}" if known.disabled_at else "enabled"),
        ("requests a minute", "as the platform grants" if rate is None else str(rate)),
        ("budget a day", _amount_text(known.daily_budget_usd) or "none"),
        ("spent today", dollars(spent)),
        *((f"agent {name}", f"{dollars(amount)} a day") for name, amount in budgets.items()),
    ]
    screen.line((known.id, "bold"))
    for what, value in lines:
        screen.line((f"  {what:<18}", "dim"), (value, ""))
    return 0


def _amount_text(usd: Decimal | None) -> str:
    return "" if usd is None else dollars(usd)
