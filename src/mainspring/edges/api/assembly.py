"""All routes of the API, over a house."""

from __future__ import annotations

from mainspring import __version__
from mainspring.edges.api.replays import Replays
from mainspring.edges.api.route import Route
from mainspring.edges.api.routes.agents import AgentRoutes
from mainspring.edges.api.routes.approvals import ApprovalRoutes
from mainspring.edges.api.routes.audit import AuditRoutes
from mainspring.edges.api.routes.commands import CommandRoutes
from mainspring.edges.api.routes.deployment_runs import DeploymentRunRoutes
from mainspring.edges.api.routes.deployments import DeploymentRoutes
from mainspring.edges.api.routes.environments import EnvironmentRoutes
from mainspring.edges.api.routes.events import EventRoutes
from mainspring.edges.api.routes.extensions import CostRoutes, InsightRoutes, PolicyRoutes
from mainspring.edges.api.routes.files import FileRoutes
from mainspring.edges.api.routes.front_page import FrontPageRoutes
from mainspring.edges.api.routes.halts import HaltRoutes
from mainspring.edges.api.routes.keys import KeyRoutes
from mainspring.edges.api.routes.memory_stores import MemoryRoutes, MemoryStoreRoutes
from mainspring.edges.api.routes.moves import MoveRoutes
from mainspring.edges.api.routes.openapi import OpenApiRoutes
from mainspring.edges.api.routes.parked import ParkedRoutes
from mainspring.edges.api.routes.resources import ResourceRoutes
from mainspring.edges.api.routes.sessions import SessionRoutes
from mainspring.edges.api.routes.skills import SkillRoutes
from mainspring.edges.api.routes.streams import StreamRoutes
from mainspring.edges.api.routes.tenants import TenantRoutes
from mainspring.edges.api.routes.threads import ThreadRoutes
from mainspring.edges.api.routes.triggers import TriggerRoutes
from mainspring.edges.api.routes.vaults import CredentialRoutes, VaultRoutes
from mainspring.edges.api.routes.webhooks import WebhookRoutes
from mainspring.edges.api.routes.work import WorkRoutes
from mainspring.service.sessions.costs import Costs
from mainspring.service.sessions.insights import Insights
from mainspring.service.sessions.rule_trials import RuleTrials
from mainspring.wiring.moves import moving_of, receiving_of
from mainspring.wiring.rooms import Calendar, Gatehouse, House, Mail, Memory, Safe, Shelves, Talk


def routes_of(house: House, *more: Route) -> tuple[Route, ...]:
    """With the document that tells of all of them, `more` included."""
    routes = (
        *_shelves(house.shelves, house.calendar),
        *_talk(house.talk),
        *_safe(house.safe),
        *_memory(house.memory),
        *_calendar(house.calendar),
        *_mail(house.mail),
        *_gatehouse(house.gatehouse),
        *_insights(house),
        *FrontPageRoutes(__version__).routes(),
        *more,
    )
    return (*routes, *OpenApiRoutes(routes, __version__).routes())


def _insights(house: House) -> tuple[Route, ...]:
    ground, sessions = house.ground, house.talk.sessions
    return (
        *InsightRoutes(Insights(sessions), Replays(sessions, facts=ground.shelf.facts)).routes(),
        *CostRoutes(Costs(sessions, house.gatehouse.ledger)).routes(),
        *PolicyRoutes(RuleTrials(sessions)).routes(),
        *MoveRoutes(
            moving_of(ground.settings, sessions), receiving_of(ground.settings, sessions)
        ).routes(),
        *ParkedRoutes(house.talk.parking, sessions).routes(),
    )


def _shelves(shelves: Shelves, calendar: Calendar) -> tuple[Route, ...]:
    return (
        *AgentRoutes(shelves.agents, calendar.deployments.archive_those_of).routes(),
        *EnvironmentRoutes(shelves.environments).routes(),
        *SkillRoutes(shelves.skills).routes(),
        *FileRoutes(shelves.files).routes(),
    )


def _talk(talk: Talk) -> tuple[Route, ...]:
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


def _safe(safe: Safe) -> tuple[Route, ...]:
    return (
        *VaultRoutes(safe.vaults).routes(),
        *CredentialRoutes(safe.credentials, safe.validator).routes(),
    )


def _memory(memory: Memory) -> tuple[Route, ...]:
    return (
        *MemoryStoreRoutes(memory.stores).routes(),
        *MemoryRoutes(memory.memories, memory.versions).routes(),
    )


def _calendar(calendar: Calendar) -> tuple[Route, ...]:
    return (
        *DeploymentRoutes(calendar.deployments, calendar.firing).routes(),
        *DeploymentRunRoutes(calendar.runs).routes(),
        *TriggerRoutes(calendar.triggers, calendar.intake).routes(),
    )


def _mail(mail: Mail) -> tuple[Route, ...]:
    return WebhookRoutes(mail.webhooks, mail.outbox, mail.deliveries).routes()


def _gatehouse(gatehouse: Gatehouse) -> tuple[Route, ...]:
    return (
        *KeyRoutes(gatehouse.keys).routes(),
        *TenantRoutes(gatehouse.tenants).routes(),
        *HaltRoutes(gatehouse.halts).routes(),
        *AuditRoutes(gatehouse.audit).routes(),
    )
