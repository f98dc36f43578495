"""`mainspring ui`: the dashboard of the sessions of this folder, in a browser."""

from __future__ import annotations

import webbrowser
from contextlib import AbstractAsyncContextManager
from functools import partial
from typing import Annotated

import anyio
import typer
from anyio import to_thread

from mainspring import __version__
from mainspring.config import Settings
from mainspring.edges.api.app import Api, http_server
from mainspring.edges.api.connections import bind_sockets
from mainspring.edges.api.replays import Replays
from mainspring.edges.api.route import Route, routes_of
from mainspring.edges.api.route_table import view_handlers
from mainspring.edges.api.routes.define.campaigns import CampaignRoutes
from mainspring.edges.api.routes.define.workflows import WorkflowRunRoutes
from mainspring.edges.api.routes.run.approvals import ApprovalRoutes
from mainspring.edges.api.routes.run.eval_runs import EvalRunRoutes
from mainspring.edges.api.routes.run.events import EventRoutes
from mainspring.edges.api.routes.run.session_insights import CostRoutes, InsightRoutes
from mainspring.edges.api.routes.run.sessions import SessionRoutes
from mainspring.edges.cli.render.printing import Screen, print_note
from mainspring.edges.cli.run.session_runner import SessionRunner, open_session_runner
from mainspring.edges.cli.workflows.opening import open_workflows_here
from mainspring.edges.dashboard.local_access import LocalAccess
from mainspring.edges.dashboard.local_service import open_local_service
from mainspring.edges.dashboard.local_sessions import LocalDispatcher, LocalSessions
from mainspring.edges.dashboard.pages import DashboardPages
from mainspring.log.task_groups import run_in_background
from mainspring.runtime.run_options import RunOptions
from mainspring.service.service import Service
from mainspring.service.sessions.cost_reports import Costs
from mainspring.service.sessions.session_reports import SessionReports

_UNAVAILABLE = frozenset(
    {
        "post /v1/sessions",
        "delete /v1/sessions/{session_id}",
        "post /v1/mainspring/workflow_runs",
        "delete /v1/mainspring/workflow_runs/{workflow_run_id}",
        "post /v1/mainspring/workflow_runs/{workflow_run_id}/fork",
        "post /v1/mainspring/campaigns",
        "post /v1/mainspring/campaigns/{campaign_id}/resume",
    }
)
"""The command line does this: it knows the agent, and the files that belong to a session."""


async def ui(
    settings: Settings,
    *,
    port: Annotated[
        int, typer.Option(min=0, max=65535, help="The port on 127.0.0.1. [default: any free one]")
    ] = 0,
    no_open: Annotated[
        bool, typer.Option("--no-open", help="Print the address and open no browser.")
    ] = False,
) -> int:
    """Show this folder's sessions in a browser.

    You can watch, answer and continue them there. Only this machine reaches it, and only with the
    address that is printed, which works once.
    """
    dispatcher = LocalDispatcher()
    async with open_local_service(settings, dispatcher) as service:
        [listener, *_] = sockets = await bind_sockets("127.0.0.1", port)
        access = LocalAccess(settings.user, __version__, listener.getsockname()[1])
        api = Api(_routes(service, access), access_control=access)
        sessions = LocalSessions(
            service,
            dispatcher,
            partial(_open_runner, settings),
            partial(_run_workflow, settings),
        )
        async with (
            http_server(api.application(), sockets) as url,
            run_in_background(sessions.work),
        ):
            address = f"{url}/#token={access.token}"
            Screen(settings).line(("dashboard: ", "bold"), (address, ""))
            print_note(settings, "the address works once; Ctrl-C ends the dashboard")
            if not no_open:
                await to_thread.run_sync(webbrowser.open, address)
            await anyio.sleep_forever()
    return 0


def _open_runner(settings: Settings, session_id: str) -> AbstractAsyncContextManager[SessionRunner]:
    options = RunOptions()
    return open_session_runner(settings, options, session_id, answered_later=True, unattended=True)


async def _run_workflow(settings: Settings, run_id: str) -> None:
    """Continue a run as `mainspring workflow resume` does. Raises: LeaseHeld, InvalidInput."""
    async with open_workflows_here(settings, RunOptions()) as workflows:
        await workflows.go_on(run_id)


def _routes(service: Service, access: LocalAccess) -> tuple[Route, ...]:
    sessions = service.sessions
    replays = Replays(sessions.sessions, facts=service.infrastructure.models.facts)
    routes = routes_of(
        SessionRoutes(sessions.sessions),
        EventRoutes(sessions.sessions, sessions.event_sender, sessions.pages),
        ApprovalRoutes(sessions.approvals),
        InsightRoutes(SessionReports(sessions.sessions), replays),
        CostRoutes(Costs(sessions.sessions, service.access.ledger)),
        WorkflowRunRoutes(service.workflows.runs),
        CampaignRoutes(service.campaigns),
        EvalRunRoutes(service.evals.runs),
        *view_handlers(service),
        access,
        DashboardPages(__version__),
    )
    return tuple(item for item in routes if item.operation not in _UNAVAILABLE)
