"""The assembled service, and what it is built on."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from mainspring.capabilities.network.rules import Network
from mainspring.capabilities.providers.model_registry import ModelRegistry
from mainspring.config import Settings
from mainspring.log.session_log import SessionLog
from mainspring.log.store import Store
from mainspring.service.jobs.dispatcher import Dispatcher
from mainspring.service.service_groups import (
    AccessServices,
    MemoryServices,
    ResourceServices,
    ScheduleServices,
    SecretServices,
    SessionServices,
    WebhookServices,
)
from mainspring.service.sessions.preview_deltas import Deltas
from mainspring.service.storage.repository import Seal
from mainspring.service.webhooks.webhook_deliveries import WebhookPoster


@dataclass(frozen=True, slots=True, kw_only=True)
class Infrastructure:
    """What all services need."""

    settings: Settings
    log: SessionLog
    dispatcher: Dispatcher
    deltas: Deltas
    seal: Seal
    models: ModelRegistry
    networks: tuple[Network, ...] = ()
    """Addresses that the service itself may call although they are not public."""
    meter_poster: Callable[[WebhookPoster], WebhookPoster] = lambda post: post
    """Wraps the poster of webhooks, to count what it posts."""

    @property
    def store(self) -> Store:
        return self.log.store


@dataclass(frozen=True, slots=True, kw_only=True)
class Service:
    infrastructure: Infrastructure
    resources: ResourceServices
    secrets: SecretServices
    memory_services: MemoryServices
    webhooks: WebhookServices
    sessions: SessionServices
    schedules: ScheduleServices
    access: AccessServices
