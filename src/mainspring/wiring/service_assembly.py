"""Opens the service (`service/service.py`): its store, models, messaging and network access."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Callable
from contextlib import asynccontextmanager
from functools import partial
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING

from mainspring.capabilities.mcp.login.api_login import ApiLogin
from mainspring.capabilities.network.outbound_http import HttpPoster, OutboundHttpClient
from mainspring.capabilities.network.rules import Network
from mainspring.capabilities.tools.client_tools import client_tools
from mainspring.config import Settings, is_postgres
from mainspring.core.lazy_module import LazyModule
from mainspring.log.session_log import SessionLog
from mainspring.runtime.adoption import require_own_records
from mainspring.runtime.run_options import RunOptions
from mainspring.service.jobs.dispatcher import Dispatcher
from mainspring.service.jobs.embedded_dispatcher import EmbeddedDispatcher
from mainspring.service.service import (
    AgentFolderPorts,
    Infrastructure,
    Service,
    build_service,
)
from mainspring.service.sessions.events.preview_deltas import Deltas, LocalDeltas, SharedDeltas
from mainspring.service.sessions.session_filters import fill_filters
from mainspring.service.webhooks.webhook_deliveries import WebhookPoster
from mainspring.wiring.agent_selection import agent_selection
from mainspring.wiring.memory import open_store_passages
from mainspring.wiring.providers import open_model_registry
from mainspring.wiring.session_files import served_snapshots
from mainspring.wiring.settings_files import read_project_files
from mainspring.wiring.stores import open_log
from mainspring.wiring.user_vault import user_vault

if TYPE_CHECKING:
    from mainspring.wiring import eval_assembly, evolution_assembly
else:
    eval_assembly = LazyModule("mainspring.wiring.eval_assembly")  # most services run no suites
    evolution_assembly = LazyModule("mainspring.wiring.evolution_assembly")


@asynccontextmanager
async def open_service(
    settings: Settings,
    *,
    networks: tuple[Network, ...] = (),
    tenant_limit: int | None = None,
    metered: Callable[[WebhookPoster], WebhookPoster] = lambda post: post,
) -> AsyncGenerator[Service, None]:
    """The service over the store of the settings, without workers and without access control.
    `networks`: private addresses that it may call; `metered` wraps the poster of webhooks, to count
    its posts; `tenant_limit`: how many jobs of one tenant may run at once.

    Raises: InvalidInput, StoreFailed: why it cannot be opened.
    """
    http_client = OutboundHttpClient(allowed=networks)
    allow_http = bool(networks)  # inside, not everything speaks TLS
    async with (
        open_log(settings) as log,
        open_model_registry(settings) as models,
        _open_messaging(settings, log, tenant_limit) as (dispatcher, deltas),
    ):
        await require_own_records(log.store)
        await fill_filters(log)
        yield build_service(
            Infrastructure(
                log=log,
                dispatcher=dispatcher,
                deltas=deltas,
                seal=user_vault(settings).open_seal(),
                models=models,
                workspaces=Path(settings.workspaces),
                open_passages=partial(open_store_passages, settings),
                client_tools=client_tools,
                agent_folder=agent_folder_ports(settings),
                open_snapshots=served_snapshots(settings),
                send_request=http_client,
                login_client=ApiLogin(http_client.fetch),
                post_webhook=metered(HttpPoster(allowed=networks, allow_http=allow_http)),
                allow_http=allow_http,
                is_single_tenant=settings.container_is_boundary,
            )
        )


def agent_folder_ports(settings: Settings) -> AgentFolderPorts:
    folder, home = Path(settings.folder), Path(settings.home)
    return AgentFolderPorts(
        folder=folder,
        home=home,
        read_project=lambda: read_project_files(folder, home=home),
        open_agent=lambda: agent_selection(settings).open(RunOptions()).agent,
        open_runner=lambda options, is_drill: eval_assembly.open_suite_runner(
            settings, options, is_drill=is_drill
        ),
        open_campaigns=lambda sender: evolution_assembly.open_folder_campaigns(settings, sender),
    )


@asynccontextmanager
async def _open_messaging(
    settings: Settings, log: SessionLog, tenant_limit: int | None
) -> AsyncGenerator[tuple[Dispatcher, Deltas], None]:
    """How processes of the service notify each other: through the database, if they share one."""
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
