"""`mainspring webhooks`: how its commands are called."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Annotated, TypeAlias

import typer

from mainspring.core.lazy_module import LazyModule
from mainspring.edges.cli.action import Action
from mainspring.edges.cli.keys import TenantOption
from mainspring.edges.cli.log import JsonOption

if TYPE_CHECKING:
    from mainspring.edges.cli import webhooks_acts
else:
    webhooks_acts = LazyModule("mainspring.edges.cli.webhooks_acts")

app = typer.Typer(help="Who is told of what happens.", no_args_is_help=True, rich_markup_mode=None)

WebhookArgument: TypeAlias = Annotated[
    str, typer.Argument(metavar="WEBHOOK", help="Its id: whk_...")
]


@app.command()
def ls(tenant: TenantOption = "default", json: JsonOption = False) -> Action:
    """List webhook endpoints and how they do."""
    return partial(webhooks_acts.ls, tenant=tenant, json=json)


@app.command()
def deliveries(
    webhook: WebhookArgument,
    tenant: TenantOption = "default",
    dead: Annotated[bool, typer.Option("--dead", help="Only what was given up.")] = False,
    limit: Annotated[int, typer.Option("--limit", "-n", help="How many.", min=1, max=1000)] = 20,
    json: JsonOption = False,
) -> Action:
    """List what was sent to an endpoint, or is to be; newest first."""
    return partial(
        webhooks_acts.deliveries,
        tenant=tenant,
        webhook_id=webhook,
        dead=dead,
        limit=limit,
        json=json,
    )


@app.command()
def resend(
    meant: Annotated[
        str,
        typer.Argument(
            metavar="ID", help="A delivery, whd_...; or an endpoint, whk_..., for all it gave up."
        ),
    ],
    tenant: TenantOption = "default",
    json: JsonOption = False,
) -> Action:
    """Have a worker send again what was not taken."""
    return partial(webhooks_acts.resend, tenant=tenant, meant=meant, json=json)
