"""The rooms of the house: what the service keeps and does, by what it is about."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from mainspring.capabilities.network.rules import Network
from mainspring.config import Settings
from mainspring.log.session_log import SessionLog
from mainspring.log.store import Store
from mainspring.service.access.audit import Audit
from mainspring.service.access.halts import Halts
from mainspring.service.access.keys import Keys
from mainspring.service.access.ledger import TallyLedger
from mainspring.service.access.repeated_requests import RepeatedRequests
from mainspring.service.access.tenants import Tenants
from mainspring.service.approvals.approvals import Approvals
from mainspring.service.calendar.deployments import Deployments
from mainspring.service.calendar.firing import Firing
from mainspring.service.calendar.intake import Intake
from mainspring.service.calendar.runs import DeploymentRuns
from mainspring.service.calendar.triggers import Triggers
from mainspring.service.describing.agents import Agents
from mainspring.service.describing.environments import Environments
from mainspring.service.describing.files import Files
from mainspring.service.describing.skills import Skills
from mainspring.service.keeping.seal import Seal
from mainspring.service.mail.deliveries import Deliveries, Poster
from mainspring.service.mail.outbox import Outbox
from mainspring.service.mail.session_news import SessionNews
from mainspring.service.mail.webhooks import Webhooks
from mainspring.service.memory.memories import Memories
from mainspring.service.memory.stores import MemoryStores
from mainspring.service.memory.versions import MemoryVersions
from mainspring.service.self_hosted.queue import WorkQueue
from mainspring.service.self_hosted.tokens import WorkTokens
from mainspring.service.sessions.commands import SessionCommands
from mainspring.service.sessions.deltas import Deltas
from mainspring.service.sessions.event_pages import EventPages
from mainspring.service.sessions.outputs import SessionOutputs
from mainspring.service.sessions.resources import SessionResources
from mainspring.service.sessions.sending import Sending
from mainspring.service.sessions.sessions import Sessions
from mainspring.service.sessions.streams import Streams
from mainspring.service.sessions.threads import Threads
from mainspring.service.vaults.credentials import Credentials
from mainspring.service.vaults.usable import UsableCredentials
from mainspring.service.vaults.validating import Validator
from mainspring.service.vaults.vaults import Vaults
from mainspring.service.work.dispatch import Dispatcher
from mainspring.service.work.parking import Parking
from mainspring.wiring.models import Shelf


@dataclass(frozen=True, slots=True, kw_only=True)
class Ground:
    """What all of it stands on."""

    settings: Settings
    log: SessionLog
    dispatcher: Dispatcher
    deltas: Deltas
    seal: Seal
    shelf: Shelf
    networks: tuple[Network, ...] = ()
    """Addresses that the service itself may call although they are not public."""
    metered: Callable[[Poster], Poster] = lambda post: post
    """Who counts what is posted."""

    @property
    def store(self) -> Store:
        return self.log.store


@dataclass(frozen=True, slots=True, kw_only=True)
class Shelves:
    """What people describe."""

    agents: Agents
    environments: Environments
    skills: Skills
    files: Files


@dataclass(frozen=True, slots=True, kw_only=True)
class Safe:
    vaults: Vaults
    credentials: Credentials
    validator: Validator
    usable: UsableCredentials


@dataclass(frozen=True, slots=True, kw_only=True)
class Memory:
    stores: MemoryStores
    memories: Memories
    versions: MemoryVersions


@dataclass(frozen=True, slots=True, kw_only=True)
class Mail:
    webhooks: Webhooks
    outbox: Outbox
    deliveries: Deliveries
    news: SessionNews


@dataclass(frozen=True, slots=True, kw_only=True)
class Talk:
    """Sessions, and what is said in them."""

    sessions: Sessions
    sending: Sending
    pages: EventPages
    threads: Threads
    resources: SessionResources
    outputs: SessionOutputs
    streams: Streams
    work: WorkQueue
    """For clients with hands of their own."""
    work_tokens: WorkTokens
    parking: Parking
    approvals: Approvals
    commands: SessionCommands


@dataclass(frozen=True, slots=True, kw_only=True)
class Calendar:
    """What starts sessions by itself."""

    deployments: Deployments
    runs: DeploymentRuns
    firing: Firing
    triggers: Triggers
    intake: Intake


@dataclass(frozen=True, slots=True, kw_only=True)
class Gatehouse:
    """Who may come in, and what they did."""

    keys: Keys
    tenants: Tenants
    halts: Halts
    ledger: TallyLedger
    audit: Audit
    repeated: RepeatedRequests


@dataclass(frozen=True, slots=True, kw_only=True)
class House:
    ground: Ground
    shelves: Shelves
    safe: Safe
    memory: Memory
    mail: Mail
    talk: Talk
    calendar: Calendar
    gatehouse: Gatehouse
