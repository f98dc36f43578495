"""`mainspring keys`: how its commands are called."""

from __future__ import annotations

from datetime import timedelta
from decimal import Decimal, InvalidOperation
from enum import StrEnum
from functools import partial
from typing import TYPE_CHECKING, Annotated, TypeAlias

import typer

from mainspring.core.lazy_module import LazyModule
from mainspring.edges.cli.action import Action
from mainspring.edges.cli.log import JsonOption, parse_duration

if TYPE_CHECKING:
    from mainspring.edges.cli import keys_acts
else:
    keys_acts = LazyModule("mainspring.edges.cli.keys_acts")

app = typer.Typer(help="Keys of the API.", no_args_is_help=True, rich_markup_mode=None)

TenantOption: TypeAlias = Annotated[
    str, typer.Option("--tenant", help="The tenant that is meant.", metavar="ID")
]


class RoleName(StrEnum):
    viewer = "viewer"
    user = "user"
    operator = "operator"
    admin = "admin"


def parse_dollars(text: str) -> Decimal:
    try:
        return Decimal(text.removeprefix("$"))
    except InvalidOperation:
        raise typer.BadParameter(f"{text!r} is no amount such as 25 or 0.50") from None


@app.command()
def create(  # noqa: PLR0913, PLR0917 (the options of the command)
    name: Annotated[str, typer.Argument(metavar="NAME", help="What people call it.")],
    tenant: TenantOption = "default",
    role: Annotated[RoleName, typer.Option(help="What it may do.")] = RoleName.user,
    agent: Annotated[str | None, typer.Option(help="Only for this agent.", metavar="ID")] = None,
    environment: Annotated[
        str | None, typer.Option(help="Only for workers of this environment.", metavar="ID")
    ] = None,
    lent_to: Annotated[
        str | None,
        typer.Option(help="For the requests of this agent: it approves nothing.", metavar="ID"),
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
            parser=parse_duration, metavar="TIME", help="How long it holds: 12h, 30d, 8w."
        ),
    ] = None,
    rate: Annotated[int | None, typer.Option(help="Requests a minute.", min=1, metavar="N")] = None,
    daily_budget: Annotated[
        Decimal | None,
        typer.Option(parser=parse_dollars, metavar="USD", help="What its sessions may cost a day."),
    ] = None,
    json: JsonOption = False,
) -> Action:
    """Make a key. It is shown this once and cannot be shown again."""
    asked = keys_acts.KeyOptions(
        name=name,
        role=role.value,
        agent_id=agent,
        grants=tuple(grant or ()),
        environment_id=environment,
        lent_to=lent_to,
        expires_in=expires_in,
        requests_per_minute=rate,
        daily_budget_usd=daily_budget,
    )
    return partial(keys_acts.create, tenant=tenant, key_options=asked, json=json)


@app.command()
def ls(
    tenant: TenantOption = "default",
    everything: Annotated[bool, typer.Option("--all", help="Revoked ones too.")] = False,
    json: JsonOption = False,
) -> Action:
    """List keys, newest first; never their secrets."""
    return partial(keys_acts.ls, tenant=tenant, everything=everything, json=json)


@app.command()
def revoke(
    key: Annotated[str, typer.Argument(metavar="KEY", help="Its id, or the secret itself.")],
    json: JsonOption = False,
) -> Action:
    """Have a key open nothing any more, within seconds and for good."""
    return partial(keys_acts.revoke, meant=key, json=json)
