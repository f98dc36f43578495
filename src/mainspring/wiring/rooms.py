"""The rooms of the house: what the service keeps and does, by what it is about."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from mainspring.capabilities.network.rules import Network
from mainspring.config import Settings
from mainspring.log.session_log import SessionLog
from mainspring.log.store import Store
from mainspring.service.agents import Agents
from mainspring.service.approvals import Approvals
from mainspring.service.audit import Audit
from mainspring.service.credentials import Credentials
from mainspring.service.deliveries import Deliveries, Poster
from mainspring.service.deltas import Deltas
from mainspring.service.deployment_runs import DeploymentRuns
from mainspring.service.deployments import Deployments
from mainspring.service.dispatch import Dispatcher
from mainspring.service.environments import Environments
from mainspring.service.event_pages import EventPages
from mainspring.service.files import Files
from mainspring.service.firing import Firing
from mainspring.service.halts import Halts
from mainspring.service.intake import Intake
from mainspring.service.keys import Keys
from mainspring.service.ledger import TallyLedger
from mainspring.service.memories import Memories
from mainspring.service.memory_stores import MemoryStores
from mainspring.service.memory_versions import MemoryVersions
from mainspring.service.outbox import Outbox
from mainspring.service.parking import Parking
from mainspring.service.resources import SessionResources
from mainspring.service.seal import Seal
from mainspring.service.sending import Sending
from mainspring.service.session_news import SessionNews
from mainspring.service.sessions import Sessions
from mainspring.service.skills import Skills
from mainspring.service.streams import Streams
from mainspring.service.tenants import Tenants
from mainspring.service.threads import Threads
from mainspring.service.triggers import Triggers
from mainspring.service.usable import UsableCredentials
from mainspring.service.validating import Validator
from mainspring.service.vaults import Vaults
from mainspring.service.webhooks import Webhooks
from mainspring.service.work_queue import WorkQueue
from mainspring.service.work_tokens import WorkTokens
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
    streams: Streams
    work: WorkQueue
    """For clients with hands of their own."""
    work_tokens: WorkTokens
    parking: Parking
    approvals: Approvals


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
