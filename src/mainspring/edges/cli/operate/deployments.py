"""`mainspring deployments`: works directly on the store."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from functools import partial
from typing import Annotated, TypeAlias

import typer

from mainspring.config import Settings
from mainspring.edges.cli.commands import command, command_group
from mainspring.edges.cli.operate.offline_services import offline_services
from mainspring.edges.cli.operate.operator_access import open_as_operator
from mainspring.edges.cli.options import JsonOption, LimitOption, TenantOption
from mainspring.edges.cli.render.printing import (
    Screen,
    StyledText,
    local_time,
    print_list,
    print_note,
    print_result,
)
from mainspring.service.schedules.deployment_runner import run_labels
from mainspring.service.schedules.deployment_types import (
    Deployment,
    DeploymentRun,
    ErrorPause,
    ScheduledRun,
)
from mainspring.service.schedules.deployments import Deployments
from mainspring.service.storage.repository import ListQuery, all_pages

app = command_group()

DeploymentArgument: TypeAlias = Annotated[
    str, typer.Argument(metavar="DEPLOYMENT", help="The deployment's id: depl_...")
]


@command(app)
async def ls(
    settings: Settings,
    *,
    tenant: TenantOption = "default",
    everything: Annotated[
        bool, typer.Option("--all", help="Include archived deployments.")
    ] = False,
    json: JsonOption = False,
) -> int:
    """List deployments and when they run."""
    async with open_as_operator(settings) as operator:
        service = offline_services(settings, operator.records).deployments
        query = ListQuery(limit=100, include_archived=everything)
        deployments = await all_pages(partial(service.page, tenant), query)
    return print_list(
        settings,
        deployments,
        json=json,
        heads=["ID", "NAME", "AGENT", "SCHEDULE", "NEXT", "LAST", "STATE"],
        row=_deployment_row,
        empty="there are no deployments",
    )


@command(app)
async def show(
    settings: Settings,
    *,
    deployment: DeploymentArgument,
    tenant: TenantOption = "default",
    json: JsonOption = False,
) -> int:
    """Show a deployment and when it runs next."""
    async with open_as_operator(settings) as operator:
        service = offline_services(settings, operator.records).deployments
        return _print_deployment(settings, await service.get(tenant, deployment), json=json)


@command(app)
async def run(
    settings: Settings,
    *,
    deployment: DeploymentArgument,
    tenant: TenantOption = "default",
    json: JsonOption = False,
) -> int:
    """Ask a worker to run a deployment once, as soon as possible."""
    async with _audited(settings, tenant, "run", deployment) as deployments:
        run_id = await deployments.request_run(tenant, deployment)
    view = {"deployment_id": deployment, "run_id": run_id}
    print_result(settings, view, ("requested ", "green"), (run_id, "bold"), json=json)
    if not json:
        print_note(settings, "a worker will run it; `mainspring deployments runs` shows the result")
    return 0


@command(app)
async def pause(
    settings: Settings,
    *,
    deployment: DeploymentArgument,
    tenant: TenantOption = "default",
    json: JsonOption = False,
) -> int:
    """Pause the schedule. Running sessions continue."""
    async with _audited(settings, tenant, "pause", deployment) as deployments:
        deployment_object = await deployments.pause(tenant, deployment)
    return _print_deployment(settings, deployment_object, json=json)


@command(app)
async def unpause(
    settings: Settings,
    *,
    deployment: DeploymentArgument,
    tenant: TenantOption = "default",
    json: JsonOption = False,
) -> int:
    """Resume the schedule. Runs that were missed are not made up for."""
    async with _audited(settings, tenant, "unpause", deployment) as deployments:
        deployment_object = await deployments.unpause(tenant, deployment)
    return _print_deployment(settings, deployment_object, json=json)


@asynccontextmanager
async def _audited(
    settings: Settings, tenant: str, verb: str, deployment_id: str
) -> AsyncGenerator[Deployments, None]:
    """Open the deployments; audit the command if the block succeeds."""
    async with open_as_operator(settings) as operator:
        yield offline_services(settings, operator.records).deployments
        await operator.audit(tenant, f"deployments {verb}", deployment_id)


@command(app)
async def runs(
    settings: Settings,
    *,
    deployment: Annotated[
        str | None, typer.Argument(metavar="[DEPLOYMENT]", help="Only runs of this deployment.")
    ] = None,
    tenant: TenantOption = "default",
    failed: Annotated[bool, typer.Option("--failed", help="Only failed runs.")] = False,
    limit: LimitOption = 20,
    json: JsonOption = False,
) -> int:
    """List runs and their results, newest first."""
    label = run_labels(has_error=True) if failed else None
    listing = ListQuery(limit=limit, parent=deployment, label=label)
    async with open_as_operator(settings) as operator:
        page = await offline_services(settings, operator.records).runs.page(tenant, listing)
    return print_list(
        settings,
        page.data,
        json=json,
        heads=["RUN", "DEPLOYMENT", "AT", "BY", "RESULT"],
        row=_run_row,
        empty="there are no runs",
    )


def _print_deployment(settings: Settings, deployment: Deployment, *, json: bool) -> int:
    state, style = _deployment_state(deployment)
    text = ((deployment.id, "bold"), (f"  {deployment.name}  ", ""), (state or "active", style))
    print_result(settings, deployment, *text, json=json)
    if json:
        return 0
    screen = Screen(settings)
    screen.line((f"agent {deployment.agent.id}, version {deployment.agent.version}", "dim"))
    if deployment.schedule is None:
        screen.line(("runs on request only", "dim"))
        return 0
    screen.line((_schedule_text(deployment), ""))
    for at in deployment.schedule.upcoming_runs_at if deployment.status == "active" else ():
        screen.line((f"  {local_time(at)}", "dim"))
    return 0


def _deployment_row(deployment: Deployment) -> list[StyledText]:
    schedule = deployment.schedule
    upcoming = schedule.upcoming_runs_at if schedule is not None else ()
    last = schedule.last_run_at if schedule is not None else None
    is_active = deployment.status == "active"
    return [
        (deployment.id, ""),
        (deployment.name, "bold"),
        (f"{deployment.agent.id} v{deployment.agent.version}", ""),
        (_schedule_text(deployment), ""),
        (local_time(upcoming[0]) if upcoming and is_active else "", "dim"),
        (local_time(last) if last else "", "dim"),
        _deployment_state(deployment),
    ]


def _run_row(run: DeploymentRun) -> list[StyledText]:
    trigger = "schedule" if isinstance(run.trigger_context, ScheduledRun) else "hand"
    result: StyledText = (run.session_id or "", "")
    if run.error is not None:
        result = (f"{run.error.type}: {run.error.message}", "red")
    return [
        (run.id, ""),
        (run.deployment_id, ""),
        (local_time(run.created_at), "dim"),
        (trigger, ""),
        result,
    ]


def _schedule_text(deployment: Deployment) -> str:
    schedule = deployment.schedule
    return "" if schedule is None else f"{schedule.expression} {schedule.timezone}"


def _deployment_state(deployment: Deployment) -> StyledText:
    if deployment.archived_at is not None:
        return "archived", "dim"
    if isinstance(deployment.paused_reason, ErrorPause):
        return f"paused: {deployment.paused_reason.error.type}", "red"
    return ("paused", "yellow") if deployment.status == "paused" else ("", "")
