"""The table of all routes of the API, built over the assembled service."""

from __future__ import annotations

from mainspring import __version__
from mainspring.edges.api.openapi import OpenApiRoutes
from mainspring.edges.api.replays import Replays
from mainspring.edges.api.route import Route
from mainspring.edges.api.routes.agents import AgentRoutes
from mainspring.edges.api.routes.approvals import ApprovalRoutes
from mainspring.edges.api.routes.audit import AuditRoutes
from mainspring.edges.api.routes.deployments import DeploymentRoutes, DeploymentRunRoutes
from mainspring.edges.api.routes.environments import environment_routes
from mainspring.edges.api.routes.events import EventRoutes, StreamRoutes
from mainspring.edges.api.routes.files import FileRoutes
from mainspring.edges.api.routes.front_page import FrontPageRoutes
from mainspring.edges.api.routes.halts import HaltRoutes, ParkedRoutes
from mainspring.edges.api.routes.keys import KeyRoutes
from mainspring.edges.api.routes.memory_stores import MemoryRoutes, memory_store_routes
from mainspring.edges.api.routes.resources import ResourceRoutes
from mainspring.edges.api.routes.session_insights import CostRoutes, InsightRoutes, PolicyRoutes
from mainspring.edges.api.routes.session_transfers import MoveRoutes
from mainspring.edges.api.routes.sessions import CommandRoutes, SessionRoutes
from mainspring.edges.api.routes.skills import SkillRoutes
from mainspring.edges.api.routes.tenants import TenantRoutes
from mainspring.edges.api.routes.threads import ThreadRoutes
from mainspring.edges.api.routes.triggers import TriggerRoutes
from mainspring.edges.api.routes.vaults import credential_routes, vault_routes
from mainspring.edges.api.routes.webhooks import WebhookRoutes
from mainspring.edges.api.routes.work import WorkRoutes
from mainspring.service.sessions.cost_reports import Costs
from mainspring.service.sessions.rule_evaluation import RuleEvaluator
from mainspring.service.sessions.session_reports import SessionReports
from mainspring.wiring.service_assembly import build_moving, build_receiving
from mainspring.wiring.service_parts import (
    AccessServices,
    MemoryServices,
    ResourceServices,
    ScheduleServices,
    SecretServices,
    Service,
    SessionServices,
    WebhookServices,
)


def all_routes(service: Service, *more: Route) -> tuple[Route, ...]:
    """All routes, `more` included, with the OpenAPI document that describes them."""
    routes = (
        *_resource_routes(service.resources, service.schedules),
        *_session_routes(service.sessions),
        *_vault_routes(service.secrets),
        *_memory_routes(service.memory_services),
        *_schedule_routes(service.schedules),
        *_webhook_routes(service.webhooks),
        *_access_routes(service.access),
        *_insight_routes(service),
        *FrontPageRoutes(__version__).routes(),
        *more,
    )
    return (*routes, *OpenApiRoutes(routes, __version__).routes())


def _insight_routes(service: Service) -> tuple[Route, ...]:
    ground, sessions = service.infrastructure, service.sessions.sessions
    return (
        *InsightRoutes(
            SessionReports(sessions), Replays(sessions, facts=ground.models.facts)
        ).routes(),
        *CostRoutes(Costs(sessions, service.access.ledger)).routes(),
        *PolicyRoutes(RuleEvaluator(sessions)).routes(),
        *MoveRoutes(
            build_moving(ground.settings, sessions), build_receiving(ground.settings, sessions)
        ).routes(),
        *ParkedRoutes(service.sessions.parking, sessions).routes(),
    )


def _resource_routes(
    resource_services: ResourceServices, schedules: ScheduleServices
) -> tuple[Route, ...]:
    return (
        *AgentRoutes(resource_services.agents, schedules.deployments.archive_for_agent).routes(),
        *environment_routes(resource_services.environments),
        *SkillRoutes(resource_services.skills).routes(),
        *FileRoutes(resource_services.files).routes(),
    )


def _session_routes(session_services: SessionServices) -> tuple[Route, ...]:
    sessions = session_services.sessions
    return (
        *SessionRoutes(sessions).routes(),
        *EventRoutes(sessions, session_services.event_sender, session_services.pages).routes(),
        *StreamRoutes(session_services.event_streams, sessions.record).routes(),
        *ThreadRoutes(sessions, session_services.threads, session_services.pages).routes(),
        *ResourceRoutes(session_services.resources).routes(),
        *WorkRoutes(session_services.work).routes(),
        *ApprovalRoutes(session_services.approvals).routes(),
        *CommandRoutes(session_services.commands).routes(),
    )


def _vault_routes(secret_services: SecretServices) -> tuple[Route, ...]:
    return (
        *vault_routes(secret_services.vaults),
        *credential_routes(secret_services.credentials, secret_services.credential_validator),
    )


def _memory_routes(memory_services: MemoryServices) -> tuple[Route, ...]:
    return (
        *memory_store_routes(memory_services.stores),
        *MemoryRoutes(memory_services.memories, memory_services.versions).routes(),
    )


def _schedule_routes(schedules: ScheduleServices) -> tuple[Route, ...]:
    return (
        *DeploymentRoutes(schedules.deployments, schedules.deployment_runner).routes(),
        *DeploymentRunRoutes(schedules.runs).routes(),
        *TriggerRoutes(schedules.triggers, schedules.trigger_intake).routes(),
    )


def _webhook_routes(webhook_services: WebhookServices) -> tuple[Route, ...]:
    return WebhookRoutes(
        webhook_services.webhooks, webhook_services.outbox, webhook_services.deliveries
    ).routes()


def _access_routes(access_services: AccessServices) -> tuple[Route, ...]:
    return (
        *KeyRoutes(access_services.keys).routes(),
        *TenantRoutes(access_services.tenants).routes(),
        *HaltRoutes(access_services.halts).routes(),
        *AuditRoutes(access_services.audit).routes(),
    )
