"""What `mainspring deployments` does, straight on the store."""

from __future__ import annotations

import msgspec

from mainspring.config import Settings
from mainspring.edges.cli.offline_services import offline_services
from mainspring.edges.cli.operator_access import open_as_operator
from mainspring.edges.cli.printing import Screen, StyledText, local_time
from mainspring.service.schedules.deployment_runs import RunListing
from mainspring.service.schedules.deployment_types import (
    Deployment,
    DeploymentRun,
    ErrorPause,
    ScheduledRun,
)
from mainspring.service.storage.repository import ListQuery


async def ls(settings: Settings, *, tenant: str, everything: bool, json: bool) -> int:
    found: list[Deployment] = []
    page: str | None = None
    async with open_as_operator(settings) as operator:
        deployments = offline_services(settings, operator.records).deployments
        while True:
            listing = ListQuery(limit=100, page=page, include_archived=everything)
            shown = await deployments.page(tenant, listing)
            found += shown.data
            if (page := shown.next_page) is None:
                break
    screen = Screen(settings)
    if json:
        for item in found:
            screen.json(msgspec.json.encode(item))
        return 0
    if not found:
        Screen(settings, stderr=True).paragraph(("there are no deployments", "dim"))
        return 0
    screen.table(
        ["ID", "NAME", "AGENT", "SCHEDULE", "NEXT", "LAST", "STATE"],
        [_deployment_row(item) for item in found],
    )
    return 0


async def show(settings: Settings, *, tenant: str, deployment_id: str, json: bool) -> int:
    async with open_as_operator(settings) as operator:
        found = await offline_services(settings, operator.records).deployments.get(
            tenant, deployment_id
        )
    _print_deployment(settings, found, json=json)
    return 0


async def run(settings: Settings, *, tenant: str, deployment_id: str, json: bool) -> int:
    async with open_as_operator(settings) as operator:
        parts = offline_services(settings, operator.records)
        run_id = await parts.deployments.request_run(tenant, deployment_id)
        await operator.audit(tenant, "deployments run", deployment_id)
    screen = Screen(settings)
    if json:
        screen.json(msgspec.json.encode({"deployment_id": deployment_id, "run_id": run_id}))
        return 0
    screen.line(("asked for ", "green"), (run_id, "bold"))
    note = "a worker runs it soon; `mainspring deployments runs` shows what came of it"
    Screen(settings, stderr=True).paragraph((note, "dim"))
    return 0


async def pause(settings: Settings, *, tenant: str, deployment_id: str, json: bool) -> int:
    async with open_as_operator(settings) as operator:
        parts = offline_services(settings, operator.records)
        paused = await parts.deployments.pause(tenant, deployment_id)
        await operator.audit(tenant, "deployments pause", deployment_id)
    _print_deployment(settings, paused, json=json)
    return 0


async def unpause(settings: Settings, *, tenant: str, deployment_id: str, json: bool) -> int:
    async with open_as_operator(settings) as operator:
        parts = offline_services(settings, operator.records)
        going = await parts.deployments.unpause(tenant, deployment_id)
        await operator.audit(tenant, "deployments unpause", deployment_id)
    _print_deployment(settings, going, json=json)
    return 0


async def runs(
    settings: Settings,
    *,
    tenant: str,
    deployment_id: str | None,
    failed: bool,
    limit: int,
    json: bool,
) -> int:
    listing = RunListing(
        limit=limit, deployment_id=deployment_id, has_error=True if failed else None
    )
    async with open_as_operator(settings) as operator:
        found = (await offline_services(settings, operator.records).runs.page(tenant, listing)).data
    screen = Screen(settings)
    if json:
        for item in found:
            screen.json(msgspec.json.encode(item))
        return 0
    if not found:
        Screen(settings, stderr=True).paragraph(("there are no runs", "dim"))
        return 0
    screen.table(
        ["RUN", "DEPLOYMENT", "AT", "BY", "CAME OF IT"], [_run_row(item) for item in found]
    )
    return 0


def _print_deployment(settings: Settings, found: Deployment, *, json: bool) -> None:
    screen = Screen(settings)
    if json:
        screen.json(msgspec.json.encode(found))
        return
    state, style = _deployment_state(found)
    screen.line((found.id, "bold"), (f"  {found.name}  ", ""), (state or "active", style))
    screen.line((f"agent {found.agent.id}, version {found.agent.version}", "dim"))
    if found.schedule is None:
        screen.line(("runs when asked to", "dim"))
        return
    screen.line((_schedule_text(found), ""))
    for at in found.schedule.upcoming_runs_at if found.status == "active" else ():
        screen.line((f"  {local_time(at)}", "dim"))


def _deployment_row(each: Deployment) -> list[StyledText]:
    schedule = each.schedule
    ahead = schedule.upcoming_runs_at if schedule is not None else ()
    last = schedule.last_run_at if schedule is not None else None
    return [
        (each.id, ""),
        (each.name, "bold"),
        (f"{each.agent.id} v{each.agent.version}", ""),
        (_schedule_text(each), ""),
        (local_time(ahead[0]) if ahead and each.status == "active" else "", "dim"),
        (local_time(last) if last else "", "dim"),
        _deployment_state(each),
    ]


def _run_row(each: DeploymentRun) -> list[StyledText]:
    by = "schedule" if isinstance(each.trigger_context, ScheduledRun) else "hand"
    came: StyledText = (each.session_id or "", "")
    if each.error is not None:
        came = (f"{each.error.type}: {each.error.message}", "red")
    return [
        (each.id, ""),
        (each.deployment_id, ""),
        (local_time(each.created_at), "dim"),
        (by, ""),
        came,
    ]


def _schedule_text(each: Deployment) -> str:
    return "" if each.schedule is None else f"{each.schedule.expression} {each.schedule.timezone}"


def _deployment_state(each: Deployment) -> StyledText:
    if each.archived_at is not None:
        return "archived", "dim"
    if isinstance(each.paused_reason, ErrorPause):
        return f"paused: {each.paused_reason.error.type}", "red"
    return ("paused", "yellow") if each.status == "paused" else ("", "")
