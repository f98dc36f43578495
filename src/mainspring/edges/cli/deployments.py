"""`mainspring deployments`: how its commands are called."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Annotated, TypeAlias

import typer

from mainspring.core.lazy_module import LazyModule
from mainspring.edges.cli.action import Action
from mainspring.edges.cli.keys import TenantOption
from mainspring.edges.cli.log import JsonOption

if TYPE_CHECKING:
    from mainspring.edges.cli import deployments_acts
else:
    deployments_acts = LazyModule("mainspring.edges.cli.deployments_acts")

app = typer.Typer(
    help="Agents that run by themselves.", no_args_is_help=True, rich_markup_mode=None
)

DeploymentArgument: TypeAlias = Annotated[
    str, typer.Argument(metavar="DEPLOYMENT", help="Its id: depl_...")
]


@app.command()
def ls(
    tenant: TenantOption = "default",
    everything: Annotated[bool, typer.Option("--all", help="Archived ones too.")] = False,
    json: JsonOption = False,
) -> Action:
    """List deployments: what runs when."""
    return partial(deployments_acts.ls, tenant=tenant, everything=everything, json=json)


@app.command()
def show(
    deployment: DeploymentArgument, tenant: TenantOption = "default", json: JsonOption = False
) -> Action:
    """Show a deployment and when it runs next."""
    return partial(deployments_acts.show, tenant=tenant, deployment_id=deployment, json=json)


@app.command()
def run(
    deployment: DeploymentArgument, tenant: TenantOption = "default", json: JsonOption = False
) -> Action:
    """Have a worker run it once, soon."""
    return partial(deployments_acts.run, tenant=tenant, deployment_id=deployment, json=json)


@app.command()
def pause(
    deployment: DeploymentArgument, tenant: TenantOption = "default", json: JsonOption = False
) -> Action:
    """Have it not run by itself. Sessions that run go on."""
    return partial(deployments_acts.pause, tenant=tenant, deployment_id=deployment, json=json)


@app.command()
def unpause(
    deployment: DeploymentArgument, tenant: TenantOption = "default", json: JsonOption = False
) -> Action:
    """Have it run by itself again, from the next time on."""
    return partial(deployments_acts.unpause, tenant=tenant, deployment_id=deployment, json=json)


@app.command()
def runs(
    deployment: Annotated[
        str | None, typer.Argument(metavar="[DEPLOYMENT]", help="Only of this one.")
    ] = None,
    tenant: TenantOption = "default",
    failed: Annotated[bool, typer.Option("--failed", help="Only those that failed.")] = False,
    limit: Annotated[int, typer.Option("--limit", "-n", help="How many.", min=1, max=1000)] = 20,
    json: JsonOption = False,
) -> Action:
    """List runs, newest first: what came of each."""
    return partial(
        deployments_acts.runs,
        tenant=tenant,
        deployment_id=deployment,
        failed=failed,
        limit=limit,
        json=json,
    )
