"""Open the service: its store, models, messaging and ways out, and over them its parts
(`service/service_assembly.py`).
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING

from anyio import to_thread

from mainspring.capabilities.network.outbound_http import HttpPoster, OutboundHttpClient
from mainspring.capabilities.network.rules import Network
from mainspring.capabilities.providers.model_registry import ModelRegistry
from mainspring.capabilities.tools.client_tools import client_tools
from mainspring.config import Settings, is_postgres
from mainspring.core.lazy_module import LazyModule
from mainspring.log.session_log import SessionLog
from mainspring.log.store import Store
from mainspring.runtime.run_options import RunOptions
from mainspring.service.dreams.dreams import Dreams
from mainspring.service.jobs.dispatcher import Dispatcher
from mainspring.service.jobs.embedded_dispatcher import EmbeddedDispatcher
from mainspring.service.schedules.local_schedule import LocalSchedule, ScheduleStatus
from mainspring.service.service_assembly import AgentFolderPorts, ServicePorts, build_parts
from mainspring.service.service_groups import (
    AccessServices,
    EvalServices,
    MemoryServices,
    ResourceServices,
    ScheduleServices,
    SecretServices,
    SessionServices,
    WebhookServices,
)
from mainspring.service.sessions.preview_deltas import Deltas, LocalDeltas, SharedDeltas
from mainspring.service.storage.repository import Seal
from mainspring.service.webhooks.webhook_deliveries import WebhookPoster
from mainspring.wiring.agent_selection import open_agent
from mainspring.wiring.mcp_login import OAuthLogin
from mainspring.wiring.providers import open_model_registry
from mainspring.wiring.settings_files import read_project_files
from mainspring.wiring.stores import open_log
from mainspring.wiring.user_vault import open_seal

if TYPE_CHECKING:
    from mainspring.wiring import eval_assembly
else:
    eval_assembly = LazyModule("mainspring.wiring.eval_assembly")  # most services run no suites


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
    dreams: Dreams
    evals: EvalServices
    webhooks: WebhookServices
    sessions: SessionServices
    schedules: ScheduleServices
    access: AccessServices


@asynccontextmanager
async def open_service(
    settings: Settings,
    *,
    networks: tuple[Network, ...] = (),
    tenant_limit: int | None = None,
    metered: Callable[[WebhookPoster], WebhookPoster] = lambda post: post,
) -> AsyncGenerator[Service, None]:
    """The service over the store of the settings, without workers and without access control.
    `networks` and `metered`: see `Infrastructure`; `tenant_limit`: the most jobs of one tenant that
    run at once.

    Raises: InvalidInput, StoreFailed: why it cannot be opened.
    """
    async with (
        open_log(settings) as log,
        open_model_registry(settings) as models,
        _open_messaging(settings, log, tenant_limit) as (dispatcher, deltas),
    ):
        infrastructure = Infrastructure(
            settings=settings,
            log=log,
            dispatcher=dispatcher,
            deltas=deltas,
            seal=open_seal(settings),
            models=models,
            networks=networks,
            meter_poster=metered,
        )
        yield build_service(infrastructure)


def build_service(infrastructure: Infrastructure) -> Service:
    networks, settings = infrastructure.networks, infrastructure.settings
    folder, home = Path(settings.folder), Path(settings.home)
    allow_http = bool(networks)  # inside, not everything speaks TLS
    http_client = OutboundHttpClient(allowed=networks)
    parts = build_parts(
        ServicePorts(
            log=infrastructure.log,
            dispatcher=infrastructure.dispatcher,
            deltas=infrastructure.deltas,
            seal=infrastructure.seal,
            models=infrastructure.models,
            workspaces=Path(settings.workspaces),
            client_tools=client_tools,
            send_request=http_client,
            login_client=OAuthLogin(http_client.fetch),
            post_webhook=infrastructure.meter_poster(
                HttpPoster(allowed=networks, allow_http=allow_http)
            ),
            agent_folder=AgentFolderPorts(
                folder=folder,
                home=home,
                read_project=lambda: read_project_files(folder, home=home),
                open_runner=lambda options, *, is_drill=False: eval_assembly.open_suite_runner(
                    settings, options, is_drill=is_drill
                ),
            ),
            allow_http=allow_http,
        )
    )
    return Service(
        infrastructure=infrastructure,
        resources=parts.resources,
        secrets=parts.secrets,
        memory_services=parts.memory_services,
        dreams=parts.dreams,
        evals=parts.evals,
        webhooks=parts.webhooks,
        sessions=parts.sessions,
        schedules=parts.schedules,
        access=parts.access,
    )


@asynccontextmanager
async def _open_messaging(
    settings: Settings, log: SessionLog, tenant_limit: int | None
) -> AsyncGenerator[tuple[Dispatcher, Deltas], None]:
    """How processes of the service inform each other: through the database, if they share one."""
    if not is_postgres(settings.store):
        yield EmbeddedDispatcher(log.store.records, tenant_limit=tenant_limit), LocalDeltas()
        return
    fleet = import_module(
        "mainspring.service.jobs.postgres_dispatcher"
    )  # by name: an extra, and long to import
    broadcast = import_module("mainspring.log.postgres.broadcast")
    async with (
        fleet.open_fleet(settings.store, tenant_limit=tenant_limit) as dispatcher,
        broadcast.open_broadcast(settings.store) as pubsub,
    ):
        yield dispatcher, SharedDeltas(pubsub)


async def sync_schedule(service: Service, settings: Settings) -> ScheduleStatus | None:
    """Update the deployment for the schedule in the folder's agent.yaml."""
    folder = await to_thread.run_sync(Path(settings.folder).resolve)
    home = Path(settings.home)
    local = LocalSchedule(
        deployments=service.schedules.deployments,
        agents=service.resources.agents,
        environments=service.resources.environments,
        folder=folder,
        home=home,
        read_project=lambda: read_project_files(folder, home=home),
        open_agent=lambda: open_agent(settings, RunOptions()).agent,
    )
    return await local.sync()
