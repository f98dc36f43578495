"""`mainspring tenants`, `halt` and `resume`: how they are called."""

from __future__ import annotations

from decimal import Decimal
from functools import partial
from typing import TYPE_CHECKING, Annotated, TypeAlias

import typer

from mainspring.core.lazy_module import LazyModule
from mainspring.edges.cli.action import Action
from mainspring.edges.cli.keys import parse_dollars
from mainspring.edges.cli.log import JsonOption

if TYPE_CHECKING:
    from mainspring.edges.cli import halts_acts, tenants_acts
else:
    halts_acts = LazyModule("mainspring.edges.cli.halts_acts")
    tenants_acts = LazyModule("mainspring.edges.cli.tenants_acts")

app = typer.Typer(
    help="Tenants: who shares nothing with whom.", no_args_is_help=True, rich_markup_mode=None
)

TenantId: TypeAlias = Annotated[
    str, typer.Argument(metavar="ID", help="Its id, such as acme or team-7.")
]
NameOption: TypeAlias = Annotated[
    str | None, typer.Option("--name", help="What people call it.", metavar="NAME")
]
RateOption: TypeAlias = Annotated[
    int | None,
    typer.Option("--rate", help="Requests a minute, of all its keys.", min=1, metavar="N"),
]
BudgetOption: TypeAlias = Annotated[
    Decimal | None,
    typer.Option(parser=parse_dollars, metavar="USD", help="What its sessions may cost a day."),
]
AgentBudgets: TypeAlias = Annotated[
    list[str] | None,
    typer.Option(
        "--agent-budget",
        metavar="NAME=USD",
        help="What one agent's sessions may cost a day; * for all others. May be repeated.",
    ),
]


@app.command()
def create(
    tenant: TenantId,
    name: NameOption = None,
    rate: RateOption = None,
    daily_budget: BudgetOption = None,
    agent_budget: AgentBudgets = None,
    json: JsonOption = False,
) -> Action:
    """Make a tenant."""
    return partial(
        tenants_acts.create,
        tenant=tenant,
        given=_changed_fields(name, rate, daily_budget, agent_budget),
        json=json,
    )


@app.command("set")
def change(
    tenant: TenantId,
    name: NameOption = None,
    rate: RateOption = None,
    daily_budget: BudgetOption = None,
    agent_budget: AgentBudgets = None,
    json: JsonOption = False,
) -> Action:
    """Change a tenant's name or limits; what is not given stays."""
    return partial(
        tenants_acts.change,
        tenant=tenant,
        given=_changed_fields(name, rate, daily_budget, agent_budget),
        json=json,
    )


def _changed_fields(
    name: str | None, rate: int | None, daily_budget: Decimal | None, agents: list[str] | None
) -> dict[str, object]:
    budgets: dict[str, Decimal] = {}
    for item in agents or ():
        agent, equals, amount = item.rpartition("=")
        if not (agent and equals):
            raise typer.BadParameter(f"{item!r} is not as NAME=USD")
        budgets[agent] = parse_dollars(amount)
    given = {
        "name": name,
        "requests_per_minute": rate,
        "daily_budget_usd": daily_budget,
        "agent_daily_budgets_usd": budgets or None,
    }
    return {field: value for field, value in given.items() if value is not None}


@app.command()
def ls(json: JsonOption = False) -> Action:
    """List tenants, newest first."""
    return partial(tenants_acts.ls, json=json)


@app.command()
def show(tenant: TenantId, json: JsonOption = False) -> Action:
    """Show a tenant, its limits and what it has spent today."""
    return partial(tenants_acts.show, tenant=tenant, json=json)


@app.command()
def disable(tenant: TenantId, json: JsonOption = False) -> Action:
    """Let nobody of a tenant in, within seconds; nothing of it is lost."""
    return partial(tenants_acts.set_enabled, tenant=tenant, is_enabled=False, json=json)


@app.command()
def enable(tenant: TenantId, json: JsonOption = False) -> Action:
    """Let a tenant in again."""
    return partial(tenants_acts.set_enabled, tenant=tenant, is_enabled=True, json=json)


AgentOption: TypeAlias = Annotated[str | None, typer.Option(help="Only this agent.", metavar="ID")]
TenantOnly: TypeAlias = Annotated[
    str | None, typer.Option(help="This tenant; with --agent, the agent's.", metavar="ID")
]
EverythingOption: TypeAlias = Annotated[
    bool, typer.Option("--all", help="Everything, of all tenants.")
]


def halt(
    agent: AgentOption = None,
    tenant: TenantOnly = None,
    everything_option: EverythingOption = False,
    reason: Annotated[str, typer.Option(help="Why; people will ask.")] = "",
    json_option: JsonOption = False,
) -> Action:
    """Stop an agent, a tenant or everything; without any of these, show what is stopped."""
    if not (agent or tenant or everything_option):
        return partial(halts_acts.ls, json=json_option)
    scope = _scope(agent, tenant, everything=everything_option)
    return partial(halts_acts.halt, scope=scope, reason=reason, json=json_option)


def resume(
    agent: AgentOption = None,
    tenant: TenantOnly = None,
    everything_option: EverythingOption = False,
    json_option: JsonOption = False,
) -> Action:
    """Let what was stopped go on, named as it was when it was stopped."""
    if not (agent or tenant or everything_option):
        raise typer.BadParameter("what? --agent, --tenant or --all")
    scope = _scope(agent, tenant, everything=everything_option)
    return partial(halts_acts.resume, scope=scope, json=json_option)


def _scope(agent: str | None, tenant: str | None, *, everything: bool) -> tuple[str, str | None]:
    if everything and (agent or tenant):
        raise typer.BadParameter("--all is everything: no --agent or --tenant with it")
    return ("", None) if everything else (tenant or "default", agent)
