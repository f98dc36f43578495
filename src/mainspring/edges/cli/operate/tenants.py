"""`mainspring tenants`, `halt` and `resume`: work directly on the store."""

from __future__ import annotations

from decimal import Decimal
from typing import Annotated, TypeAlias

import msgspec
import typer
from msgspec import Struct

from mainspring.config import Settings
from mainspring.core.errors import InvalidInput, NotFound
from mainspring.edges.cli.commands import command, command_group
from mainspring.edges.cli.operate.operator_access import open_as_operator
from mainspring.edges.cli.options import JsonOption, parse_dollars
from mainspring.edges.cli.render.printing import (
    Screen,
    StyledText,
    dollars,
    local_time,
    print_list,
    print_note,
    print_result,
)
from mainspring.error_table import with_hints
from mainspring.log.records import Records
from mainspring.service.access.budget_ledger import DailyBudgetLedger
from mainspring.service.access.kill_switch import (
    ALL_TENANTS,
    HALT_CACHE_SECONDS,
    CreateHalt,
    Halt,
    Halts,
)
from mainspring.service.access.request_ids import check_ids_exist, ids_in
from mainspring.service.access.tenants import (
    ROOT_TENANT,
    CreateTenant,
    Tenant,
    Tenants,
    UpdateTenant,
)
from mainspring.service.storage.repository import ListQuery, all_pages

app = command_group()

TenantId: TypeAlias = Annotated[
    str, typer.Argument(metavar="ID", help="The tenant's id, such as acme or team-7.")
]
NameOption: TypeAlias = Annotated[
    str | None, typer.Option("--name", help="A name for display.", metavar="NAME")
]
RateOption: TypeAlias = Annotated[
    int | None,
    typer.Option("--rate", help="Requests per minute, of all its keys.", min=1, metavar="N"),
]
BudgetOption: TypeAlias = Annotated[
    Decimal | None,
    typer.Option(
        "--daily-budget",
        parser=parse_dollars,
        metavar="USD",
        help="The cost limit of its sessions per day.",
    ),
]
AgentBudgetsOption: TypeAlias = Annotated[
    list[str] | None,
    typer.Option(
        "--agent-budget",
        metavar="NAME=USD",
        help="The cost limit of one agent's sessions per day; * for all others. Can be repeated.",
    ),
]


class TenantView(Struct, frozen=True, kw_only=True):
    tenant: Tenant
    spent_today_usd: Decimal


@command(app)
async def create(  # parameters: the options of the command
    settings: Settings,
    *,
    tenant: TenantId,
    name: NameOption = None,
    rate: RateOption = None,
    daily_budget: BudgetOption = None,
    agent_budget: AgentBudgetsOption = None,
    json: JsonOption = False,
) -> int:
    """Create a tenant."""
    fields = _changed_fields(name, rate, daily_budget, agent_budget)
    try:
        request = msgspec.convert({"id": tenant, **fields}, CreateTenant)
    except msgspec.ValidationError as error:
        hint = "an id consists of lower-case letters, digits, - and _"
        raise with_hints(InvalidInput(f"{tenant}: {error}"), hint) from error
    async with open_as_operator(settings, is_new=True) as operator:
        tenants = Tenants(operator.records, is_single=settings.container_is_boundary)
        created = await tenants.create(request)
        await operator.audit(tenant, "tenants create", tenant)
    return _print_change(settings, "created", created, json=json)


@command(app, "set")
async def change(  # parameters: the options of the command
    settings: Settings,
    *,
    tenant: TenantId,
    name: NameOption = None,
    rate: RateOption = None,
    daily_budget: BudgetOption = None,
    agent_budget: AgentBudgetsOption = None,
    json: JsonOption = False,
) -> int:
    """Change a tenant's name or limits. Everything else stays the same."""
    fields = _changed_fields(name, rate, daily_budget, agent_budget)
    request = msgspec.convert(fields, UpdateTenant)
    async with open_as_operator(settings) as operator:
        changed = await Tenants(operator.records).update(tenant, request)
        await operator.audit(tenant, "tenants set", tenant)
    return _print_change(settings, "changed", changed, json=json)


def _changed_fields(
    name: str | None, rate: int | None, daily_budget: Decimal | None, agents: list[str] | None
) -> dict[str, object]:
    budgets: dict[str, Decimal] = {}
    for item in agents or ():
        agent, equals, amount = item.rpartition("=")
        if not (agent and equals):
            raise typer.BadParameter(f"{item!r} is not of the form NAME=USD")
        budgets[agent] = parse_dollars(amount)
    fields = {
        "name": name,
        "requests_per_minute": rate,
        "daily_budget_usd": daily_budget,
        "agent_daily_budgets_usd": budgets or None,
    }
    return {field: value for field, value in fields.items() if value is not None}


@command(app)
async def ls(settings: Settings, *, json: JsonOption = False) -> int:
    """List tenants, newest first."""
    async with open_as_operator(settings) as operator:
        tenants = await all_pages(Tenants(operator.records).page, ListQuery(limit=1000))
    return print_list(
        settings,
        tenants,
        json=json,
        heads=["ID", "NAME", "BUDGET", "CREATED", "STATE"],
        row=_tenant_row,
        empty="there are no tenants",
    )


@command(app)
async def show(settings: Settings, *, tenant: TenantId, json: JsonOption = False) -> int:
    """Show a tenant, its limits and its cost today."""
    async with open_as_operator(settings) as operator:
        tenant_object = await Tenants(operator.records).get(tenant)
        spent = await DailyBudgetLedger(operator.records).spent_usd(tenant, "tenant", tenant)
    screen = Screen(settings)
    if json:
        screen.json(TenantView(tenant=tenant_object, spent_today_usd=spent))
        return 0
    rate = tenant_object.requests_per_minute
    disabled_at = tenant_object.disabled_at
    lines = [
        ("name", tenant_object.name),
        ("created", local_time(tenant_object.created_at)),
        ("state", f"disabled {local_time(disabled_at)}" if disabled_at else "enabled"),
        ("requests a minute", "the platform's default" if rate is None else str(rate)),
        ("budget a day", _amount_text(tenant_object.daily_budget_usd) or "none"),
        ("spent today", dollars(spent)),
        *(
            (f"agent {name}", f"{dollars(amount)} a day")
            for name, amount in tenant_object.agent_daily_budgets_usd.items()
        ),
    ]
    screen.line((tenant_object.id, "bold"))
    for label, value in lines:
        screen.line((f"  {label:<18}", "dim"), (value, ""))
    return 0


@command(app)
async def disable(settings: Settings, *, tenant: TenantId, json: JsonOption = False) -> int:
    """Refuse all requests of a tenant, within seconds. No data is lost."""
    async with open_as_operator(settings) as operator:
        changed = await Tenants(operator.records).disable(tenant)
        await operator.audit(tenant, "tenants disable", tenant)
    return _print_change(settings, "disabled", changed, json=json)


@command(app)
async def enable(settings: Settings, *, tenant: TenantId, json: JsonOption = False) -> int:
    """Accept requests of a disabled tenant again."""
    async with open_as_operator(settings) as operator:
        changed = await Tenants(operator.records).enable(tenant)
        await operator.audit(tenant, "tenants enable", tenant)
    return _print_change(settings, "enabled", changed, json=json)


def _print_change(settings: Settings, verb: str, tenant: Tenant, *, json: bool) -> int:
    return print_result(settings, tenant, (f"{verb} ", "green"), (tenant.id, "bold"), json=json)


def _tenant_row(tenant: Tenant) -> list[StyledText]:
    return [
        (tenant.id, "bold"),
        (tenant.name, ""),
        (_amount_text(tenant.daily_budget_usd), ""),
        (local_time(tenant.created_at), "dim"),
        ("disabled" if tenant.disabled_at else "", "red"),
    ]


def _amount_text(usd: Decimal | None) -> str:
    return "" if usd is None else dollars(usd)


AgentOption: TypeAlias = Annotated[
    str | None, typer.Option("--agent", help="Only this agent.", metavar="ID")
]
TenantOnly: TypeAlias = Annotated[
    str | None,
    typer.Option(
        "--tenant", help="Only this tenant; with --agent, the tenant of the agent.", metavar="ID"
    ),
]
EverythingOption: TypeAlias = Annotated[
    bool, typer.Option("--all", help="Everything, for all tenants.")
]


async def halt(
    settings: Settings,
    *,
    agent: AgentOption = None,
    tenant: TenantOnly = None,
    everything: EverythingOption = False,
    reason: Annotated[str, typer.Option(help="The reason, which others see.")] = "",
    json: JsonOption = False,
) -> int:
    """Stop an agent, a tenant or everything. Without options, show what is stopped."""
    if not (agent or tenant or everything):
        if reason:
            raise typer.BadParameter("--reason needs --agent, --tenant or --all")
        return await _list_halts(settings, json=json)
    tenant_id = _halted_tenant(agent, tenant, everything=everything)
    request = CreateHalt(agent_id=agent, reason=reason)
    async with open_as_operator(settings, is_new=True) as operator:
        await _check_exists(operator.records, tenant_id, request)
        principal = operator.principal_in(tenant_id)
        created = await Halts(operator.records).halt(tenant_id, principal, request)
        await operator.audit(tenant_id, "halt", created.id)
    text = (("stopped ", "green"), (_halt_text(created), "bold"))
    print_result(settings, created, *text, json=json)
    if not json:
        print_note(settings, f"workers stop within {HALT_CACHE_SECONDS:.0f} s")
    return 0


async def _check_exists(records: Records, tenant: str, request: CreateHalt) -> None:
    """Raises: NotFound: halting something that does not exist would stop nothing."""
    tenants = Tenants(records)
    if tenant == ROOT_TENANT:
        await tenants.ensure_root()
    if tenant != ALL_TENANTS:
        await tenants.get(tenant)
    await check_ids_exist(records, tenant, ids_in(request, CreateHalt))


async def resume(
    settings: Settings,
    *,
    agent: AgentOption = None,
    tenant: TenantOnly = None,
    everything: EverythingOption = False,
    json: JsonOption = False,
) -> int:
    """Resume what `halt` stopped. Use the same options as for `halt`."""
    if not (agent or tenant or everything):
        raise typer.BadParameter("name what to resume: --agent, --tenant or --all")
    tenant_id = _halted_tenant(agent, tenant, everything=everything)
    async with open_as_operator(settings) as operator:
        try:
            await Halts(operator.records).resume(tenant_id, operator.principal_in(tenant_id), agent)
        except NotFound as error:
            hint = "`mainspring halt` shows what is"
            raise with_hints(InvalidInput("that is not stopped"), hint) from error
        await operator.audit(tenant_id, "resume", agent)
    view = {"tenant_id": tenant_id, "agent_id": agent}
    return print_result(settings, view, ("resumed", "green"), json=json)


def _halted_tenant(agent: str | None, tenant: str | None, *, everything: bool) -> str:
    if everything and (agent or tenant):
        raise typer.BadParameter("--all cannot be combined with --agent or --tenant")
    return ALL_TENANTS if everything else tenant or "default"


async def _list_halts(settings: Settings, *, json: bool) -> int:
    async with open_as_operator(settings) as operator:
        halts = await Halts(operator.records).everything()
    return print_list(
        settings,
        halts,
        json=json,
        heads=["STOPPED", "SINCE", "BY", "WHY"],
        row=_halt_row,
        empty="nothing is stopped",
    )


def _halt_row(halt: Halt) -> list[StyledText]:
    return [
        (_halt_text(halt), "bold"),
        (local_time(halt.created_at), "dim"),
        (halt.created_by, ""),
        (halt.reason, ""),
    ]


def _halt_text(halt: Halt) -> str:
    if halt.tenant_id == ALL_TENANTS:
        return "everything"
    return halt.tenant_id if halt.agent_id is None else f"{halt.agent_id} of {halt.tenant_id}"
