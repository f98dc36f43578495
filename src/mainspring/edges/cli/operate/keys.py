"""`mainspring keys`: works directly on the store."""

from __future__ import annotations

from datetime import timedelta
from decimal import Decimal
from functools import partial
from typing import Annotated, Literal, TypeAlias

import typer

from mainspring.config import Settings
from mainspring.core import clock
from mainspring.edges.cli.commands import command, command_group
from mainspring.edges.cli.operate.operator_access import open_as_operator
from mainspring.edges.cli.options import JsonOption, TenantOption, parse_dollars, parse_duration
from mainspring.edges.cli.render.printing import (
    Screen,
    StyledText,
    local_time,
    print_list,
    print_note,
    print_result,
)
from mainspring.service.access.api_keys import CreateKey, Key, Keys
from mainspring.service.access.request_ids import check_ids_exist, ids_in
from mainspring.service.access.tenants import ROOT_TENANT, Tenants
from mainspring.service.storage.repository import ListQuery, all_pages

app = command_group()


RoleChoice: TypeAlias = Literal["viewer", "user", "operator", "admin"]


@command(app)
async def create(  # noqa: PLR0913 (the options of the command)
    settings: Settings,
    *,
    name: Annotated[str, typer.Argument(metavar="NAME", help="A name for display.")],
    tenant: TenantOption = "default",
    role: Annotated[RoleChoice, typer.Option(help="The role of the key.")] = "user",
    agent: Annotated[str | None, typer.Option(help="Only for this agent.", metavar="ID")] = None,
    environment: Annotated[
        str | None, typer.Option(help="Only for workers of this environment.", metavar="ID")
    ] = None,
    lent_to: Annotated[
        str | None,
        typer.Option(
            help="Requests with the key act for this agent; it cannot approve.", metavar="ID"
        ),
    ] = None,
    grant: Annotated[
        list[str] | None,
        typer.Option(
            help="With --agent: a vault, memory store, file, skill or self-hosted environment that"
            " it may give to sessions. Can be repeated.",
            metavar="ID",
        ),
    ] = None,
    expires_in: Annotated[
        timedelta | None,
        typer.Option(
            parser=parse_duration,
            metavar="TIME",
            help="How long the key is valid, such as 12h, 30d or 8w.",
        ),
    ] = None,
    rate: Annotated[
        int | None, typer.Option(help="Requests per minute.", min=1, metavar="N")
    ] = None,
    daily_budget: Annotated[
        Decimal | None,
        typer.Option(
            parser=parse_dollars, metavar="USD", help="The cost limit of its sessions per day."
        ),
    ] = None,
    json: JsonOption = False,
) -> int:
    """Create a key. Its secret is shown only once."""
    request = CreateKey(
        name=name,
        role=role,
        agent_id=agent,
        grants=tuple(grant or ()),
        environment_id=environment,
        lent_to=lent_to,
        expires_at=None if expires_in is None else clock.now() + expires_in,
        requests_per_minute=rate,
        daily_budget_usd=daily_budget,
    )
    async with open_as_operator(settings, is_new=True) as operator:
        tenants = Tenants(operator.records)
        if tenant == ROOT_TENANT:
            await tenants.ensure_root()
        await tenants.get(tenant)
        await check_ids_exist(operator.records, tenant, ids_in(request, CreateKey))
        key = await Keys(operator.records).create(operator.principal_in(tenant), request)
        await operator.audit(tenant, "keys create", key.id)
    screen = Screen(settings)
    if json:
        screen.json(key)
        return 0
    screen.paragraph((key.key, "bold"))
    note = f"{key.id}, {key.role} of {key.tenant_id}; save it now: it is not shown again"
    print_note(settings, note)
    return 0


@command(app)
async def ls(
    settings: Settings,
    *,
    tenant: TenantOption = "default",
    everything: Annotated[bool, typer.Option("--all", help="Include revoked keys.")] = False,
    json: JsonOption = False,
) -> int:
    """List keys, newest first, without their secrets."""
    async with open_as_operator(settings) as operator:
        await Tenants(operator.records).get(tenant)
        query = ListQuery(limit=1000, include_archived=everything)
        keys = await all_pages(partial(Keys(operator.records).page, tenant), query)
    return print_list(
        settings,
        keys,
        json=json,
        heads=["ID", "NAME", "ROLE", "FOR", "CREATED", "USED", "STATE"],
        row=_key_row,
        empty="there are no keys",
    )


def _key_row(key: Key) -> list[StyledText]:
    scope = key.agent_id or key.environment_id or ""
    lent = f"lent to {key.lent_to}" if key.lent_to else ""
    last_use = "" if key.last_used_at is None else local_time(key.last_used_at)
    return [
        (key.id, ""),
        (key.name, "bold"),
        (key.role, ""),
        (" ".join(part for part in (scope, lent) if part), ""),
        (local_time(key.created_at), "dim"),
        (last_use, "dim"),
        _key_state(key),
    ]


def _key_state(key: Key) -> StyledText:
    if key.revoked_at is not None:
        return "revoked", "red"
    if key.expires_at is None:
        return "", ""
    is_expired = key.expires_at <= clock.now()
    return ("expired", "red") if is_expired else (f"until {local_time(key.expires_at)}", "dim")


@command(app)
async def revoke(
    settings: Settings,
    *,
    key: Annotated[str, typer.Argument(metavar="KEY", help="The key's id, or its secret.")],
    json: JsonOption = False,
) -> int:
    """Revoke a key permanently. It stops working within seconds."""
    async with open_as_operator(settings) as operator:
        keys = Keys(operator.records)
        api_key = await keys.find_any_tenant(key)
        revoked = await keys.revoke(api_key.tenant_id, api_key.id)
        await operator.audit(api_key.tenant_id, "keys revoke", api_key.id)
    text = (("revoked ", "green"), (revoked.id, "bold"), (f"  {revoked.name}", "dim"))
    return print_result(settings, revoked, *text, json=json)
