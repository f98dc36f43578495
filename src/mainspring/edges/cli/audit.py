"""`mainspring audit`: how its commands are called."""

from __future__ import annotations

from datetime import timedelta
from functools import partial
from typing import TYPE_CHECKING, Annotated

import typer

from mainspring.core.lazy_module import LazyModule
from mainspring.edges.cli.action import Action
from mainspring.edges.cli.keys import TenantOption
from mainspring.edges.cli.log import JsonOption, parse_duration

if TYPE_CHECKING:
    from mainspring.edges.cli import audit_acts
else:
    audit_acts = LazyModule("mainspring.edges.cli.audit_acts")

app = typer.Typer(help="Who did what to the service.", no_args_is_help=True, rich_markup_mode=None)


@app.command()
def ls(
    tenant: TenantOption = "default",
    limit: Annotated[int, typer.Option("--limit", "-n", help="How many.", min=1, max=1000)] = 20,
    key: Annotated[str | None, typer.Option(help="Only of this key.", metavar="ID")] = None,
    json: JsonOption = False,
) -> Action:
    """List what was done, newest first."""
    return partial(audit_acts.ls, tenant=tenant, limit=limit, key=key, json=json)


@app.command()
def verify(
    tenant: TenantOption = "default",
    head: Annotated[
        str | None,
        typer.Option(help="A hash that was kept elsewhere; it must be there.", metavar="HASH"),
    ] = None,
    json: JsonOption = False,
) -> Action:
    """Check that nothing was changed or taken out. Tells the hash of the end, to be kept."""
    return partial(audit_acts.verify, tenant=tenant, head=head, json=json)


@app.command()
def export(tenant: TenantOption = "default") -> Action:
    """Write all entries from the first on, as JSON, one a line."""
    return partial(audit_acts.export, tenant=tenant)


@app.command()
def prune(
    older_than: Annotated[
        timedelta,
        typer.Option(parser=parse_duration, metavar="TIME", help="Older than: 90d, 52w."),
    ],
    tenant: TenantOption = "default",
    json: JsonOption = False,
) -> Action:
    """Let go what is old; what remains can still be verified."""
    return partial(audit_acts.prune, tenant=tenant, keep=older_than, json=json)
