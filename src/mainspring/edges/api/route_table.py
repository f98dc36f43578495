"""The table of all routes of the API, built over the assembled service."""

from __future__ import annotations

from mainspring import __version__
from mainspring.config import FOLDER
from mainspring.edges.api.replays import Replays
from mainspring.edges.api.route import Route, routes_of
from mainspring.edges.api.routes.define.agents import AgentRoutes
from mainspring.edges.api.routes.define.campaigns import CampaignRoutes
from mainspring.edges.api.routes.define.deployments import DeploymentRoutes, DeploymentRunRoutes
from mainspring.edges.api.routes.define.dreams import DreamRoutes
from mainspring.edges.api.routes.define.environments import EnvironmentRoutes
from mainspring.edges.api.routes.define.files import FileRoutes
from mainspring.edges.api.routes.define.memory_stores import MemoryRoutes, MemoryStoreRoutes
from mainspring.edges.api.routes.define.skills import SkillRoutes
from mainspring.edges.api.routes.define.vaults import CredentialRoutes, VaultRoutes
from mainspring.edges.api.routes.define.workflows import WorkflowRoutes, WorkflowRunRoutes
from mainspring.edges.api.routes.operate.alarms import AlarmRoutes
from mainspring.edges.api.routes.operate.audit import AuditRoutes
from mainspring.edges.api.routes.operate.halts import HaltRoutes, ParkedRoutes
from mainspring.edges.api.routes.operate.keys import KeyRoutes
from mainspring.edges.api.routes.operate.mcp_logins import McpLoginRoutes
from mainspring.edges.api.routes.operate.openapi import OpenApiRoutes
from mainspring.edges.api.routes.operate.tenants import TenantRoutes
from mainspring.edges.api.routes.operate.triggers import TriggerRoutes
from mainspring.edges.api.routes.operate.webhooks import WebhookRoutes
from mainspring.edges.api.routes.run.approvals import ApprovalRoutes
from mainspring.edges.api.routes.run.eval_runs import EvalRunRoutes
from mainspring.edges.api.routes.run.events import EventRoutes, StreamRoutes
from mainspring.edges.api.routes.run.resources import ResourceRoutes
from mainspring.edges.api.routes.run.session_insights import (
    ActivityRoutes,
    CostRoutes,
    InsightRoutes,
    PolicyRoutes,
)
from mainspring.edges.api.routes.run.session_transfers import MoveRoutes
from mainspring.edges.api.routes.run.sessions import CommandRoutes, SessionRoutes
from mainspring.edges.api.routes.run.threads import ThreadRoutes
from mainspring.edges.api.routes.run.work import WorkRoutes
from mainspring.edges.dashboard.pages import DashboardPages
from mainspring.edges.dashboard.sign_in import SignInRoutes
from mainspring.edges.dashboard.view_routes import (
    ChangeRoutes,
    FileViewRoutes,
    ListedSessionRoutes,
    LogRoutes,
)
from mainspring.edges.mcp.agent_features import INSTRUCTIONS, AgentFeatures
from mainspring.edges.mcp.http_endpoint import HostRules
from mainspring.edges.mcp.http_server import mcp_routes, new_server
from mainspring.edges.mcp.service_agents import ServiceAgents
from mainspring.service.service import Service
from mainspring.service.sessions.activity_list import ActivityList
from mainspring.service.sessions.cost_reports import Costs
from mainspring.service.sessions.rule_evaluation import RuleEvaluator
from mainspring.service.sessions.session_reports import SessionReports
from mainspring.service.sessions.session_transfer import build_transfers


def all_routes(service: Service, *more: Route) -> tuple[Route, ...]:
    """All routes, `more` included, with the OpenAPI document that describes them."""
    routes = (
        *_resource_routes(service),
        *_session_routes(service),
        *_report_routes(service),
        *_access_routes(service),
        *_mcp_routes(service),
        *_dashboard_routes(service),
        *more,
    )
    return (*routes, *routes_of(OpenApiRoutes(routes, __version__)))


def _resource_routes(service: Service) -> tuple[Route, ...]:
    resources, schedules, secrets = service.resources, service.schedules, service.secrets
    memory, webhooks = service.memory_services, service.webhooks
    return routes_of(
        AgentRoutes(resources.agents, schedules.deployments.archive_for_agent),
        EnvironmentRoutes(resources.environments),
        SkillRoutes(resources.skills),
        FileRoutes(resources.files),
        VaultRoutes(secrets.vaults),
        CredentialRoutes(secrets.credentials, secrets.credential_validator),
        McpLoginRoutes(secrets.mcp_logins),
        MemoryStoreRoutes(memory.stores),
        MemoryRoutes(memory.memories, memory.versions, memory.search),
        DreamRoutes(service.dreams),
        AlarmRoutes(service.evals.alarms),
        CampaignRoutes(service.campaigns),
        EvalRunRoutes(service.evals.runs),
        DeploymentRoutes(schedules.deployments, schedules.deployment_runner),
        DeploymentRunRoutes(schedules.runs),
        WorkflowRoutes(service.workflows.workflows),
        WorkflowRunRoutes(service.workflows.runs),
        TriggerRoutes(schedules.triggers, schedules.trigger_intake),
        WebhookRoutes(webhooks.webhooks, webhooks.outbox, webhooks.deliveries),
    )


def _session_routes(service: Service) -> tuple[Route, ...]:
    services = service.sessions
    sessions = services.sessions
    return routes_of(
        SessionRoutes(sessions),
        EventRoutes(sessions, services.event_sender, services.pages),
        StreamRoutes(services.event_streams, sessions.record),
        ThreadRoutes(sessions, services.threads, services.pages),
        ResourceRoutes(services.resources),
        WorkRoutes(services.work),
        ApprovalRoutes(services.approvals),
        CommandRoutes(services.commands),
        ParkedRoutes(services.parking, sessions),
    )


def _report_routes(service: Service) -> tuple[Route, ...]:
    infrastructure, sessions = service.infrastructure, service.sessions.sessions
    replays = Replays(sessions, facts=infrastructure.models.facts)
    return routes_of(
        ActivityRoutes(ActivityList(sessions)),
        InsightRoutes(SessionReports(sessions), replays),
        CostRoutes(Costs(sessions, service.access.ledger)),
        PolicyRoutes(RuleEvaluator(sessions)),
        MoveRoutes(*build_transfers(sessions, infrastructure.workspaces, FOLDER)),
    )


def _access_routes(service: Service) -> tuple[Route, ...]:
    access = service.access
    return routes_of(
        KeyRoutes(access.keys),
        TenantRoutes(access.tenants),
        HaltRoutes(access.halts),
        AuditRoutes(access.audit),
    )


def _dashboard_routes(service: Service) -> tuple[Route, ...]:
    return routes_of(
        *view_handlers(service),
        SignInRoutes(service.access.browser_sessions, __version__),
        DashboardPages(__version__),
    )


def view_handlers(service: Service) -> tuple[object, ...]:
    """The handlers of sessions as lines, what changed, and logs in windows."""
    views = service.views
    return (
        ListedSessionRoutes(views.listed),
        ChangeRoutes(views.feed),
        LogRoutes(views.windows, service.sessions.event_streams),
        FileViewRoutes(views.files),
    )


def _mcp_routes(service: Service) -> tuple[Route, ...]:
    """The MCP endpoint. Any host name is accepted: requests need a key, which no web page has."""
    return mcp_routes(
        new_server("mainspring", instructions=INSTRUCTIONS),
        lambda who: AgentFeatures(ServiceAgents(service.resources, service.sessions, who)),
        HostRules(hosts=None),
    )
