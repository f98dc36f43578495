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
from mainspring.edges.api.routes.environments import EnvironmentRoutes
from mainspring.edges.api.routes.events import EventRoutes, StreamRoutes
from mainspring.edges.api.routes.files import FileRoutes
from mainspring.edges.api.routes.front_page import FrontPageRoutes
from mainspring.edges.api.routes.halts import HaltRoutes, ParkedRoutes
from mainspring.edges.api.routes.keys import KeyRoutes
from mainspring.edges.api.routes.memory_stores import MemoryRoutes, MemoryStoreRoutes
from mainspring.edges.api.routes.resources import ResourceRoutes
from mainspring.edges.api.routes.session_insights import CostRoutes, InsightRoutes, PolicyRoutes
from mainspring.edges.api.routes.session_transfers import MoveRoutes
from mainspring.edges.api.routes.sessions import CommandRoutes, SessionRoutes
from mainspring.edges.api.routes.skills import SkillRoutes
from mainspring.edges.api.routes.tenants import TenantRoutes
from mainspring.edges.api.routes.threads import ThreadRoutes
from mainspring.edges.api.routes.triggers import TriggerRoutes
from mainspring.edges.api.routes.vaults import CredentialRoutes, VaultRoutes
from mainspring.edges.api.routes.webhooks import WebhookRoutes
from mainspring.edges.api.routes.work import WorkRoutes
from mainspring.service.sessions.cost_reports import Costs
from mainspring.service.sessions.rule_evaluation import RuleEvaluator
from mainspring.service.sessions.session_reports import SessionReports
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
from mainspring.wiring.transfer_client import build_moving, build_receiving


def all_routes(house: Service, *more: Route) -> tuple[Route, ...]:
    """With the document that tells of all of them, `more` included."""
    routes = (
        *_resource_routes(house.resources, house.schedules),
        *_session_routes(house.sessions),
        *_vault_routes(house.secrets),
        *_memory_routes(house.memory),
        *_schedule_routes(house.schedules),
        *_webhook_routes(house.webhooks),
        *_access_routes(house.access),
        *_insight_routes(house),
        *FrontPageRoutes(__version__).routes(),
        *more,
    )
    return (*routes, *OpenApiRoutes(routes, __version__).routes())


def _insight_routes(house: Service) -> tuple[Route, ...]:
    ground, sessions = house.infrastructure, house.sessions.sessions
    return (
        *InsightRoutes(
            SessionReports(sessions), Replays(sessions, facts=ground.models.facts)
        ).routes(),
        *CostRoutes(Costs(sessions, house.access.ledger)).routes(),
        *PolicyRoutes(RuleEvaluator(sessions)).routes(),
        *MoveRoutes(
            build_moving(ground.settings, sessions), build_receiving(ground.settings, sessions)
        ).routes(),
        *ParkedRoutes(house.sessions.parking, sessions).routes(),
    )


def _resource_routes(shelves: ResourceServices, calendar: ScheduleServices) -> tuple[Route, ...]:
    return (
        *AgentRoutes(shelves.agents, calendar.deployments.archive_for_agent).routes(),
        *EnvironmentRoutes(shelves.environments).routes(),
        *SkillRoutes(shelves.skills).routes(),
        *FileRoutes(shelves.files).routes(),
    )


def _session_routes(talk: SessionServices) -> tuple[Route, ...]:
    sessions = talk.sessions
    return (
        *SessionRoutes(sessions).routes(),
        *EventRoutes(sessions, talk.sending, talk.pages).routes(),
        *StreamRoutes(talk.streams, sessions.record).routes(),
        *ThreadRoutes(sessions, talk.threads, talk.pages).routes(),
        *ResourceRoutes(talk.resources).routes(),
        *WorkRoutes(talk.work).routes(),
        *ApprovalRoutes(talk.approvals).routes(),
        *CommandRoutes(talk.commands).routes(),
    )


def _vault_routes(safe: SecretServices) -> tuple[Route, ...]:
    return (
        *VaultRoutes(safe.vaults).routes(),
        *CredentialRoutes(safe.credentials, safe.validator).routes(),
    )


def _memory_routes(memory: MemoryServices) -> tuple[Route, ...]:
    return (
        *MemoryStoreRoutes(memory.stores).routes(),
        *MemoryRoutes(memory.memories, memory.versions).routes(),
    )


def _schedule_routes(calendar: ScheduleServices) -> tuple[Route, ...]:
    return (
        *DeploymentRoutes(calendar.deployments, calendar.firing).routes(),
        *DeploymentRunRoutes(calendar.runs).routes(),
        *TriggerRoutes(calendar.triggers, calendar.intake).routes(),
    )


def _webhook_routes(mail: WebhookServices) -> tuple[Route, ...]:
    return WebhookRoutes(mail.webhooks, mail.outbox, mail.deliveries).routes()


def _access_routes(gatehouse: AccessServices) -> tuple[Route, ...]:
    return (
        *KeyRoutes(gatehouse.keys).routes(),
        *TenantRoutes(gatehouse.tenants).routes(),
        *HaltRoutes(gatehouse.halts).routes(),
        *AuditRoutes(gatehouse.audit).routes(),
    )
