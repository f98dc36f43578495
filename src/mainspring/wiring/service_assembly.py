"""Opens the service (`service/service.py`): its store, models, messaging and network access."""

from __future__ import annotations

import secrets
from collections.abc import AsyncGenerator, Callable
from contextlib import asynccontextmanager
from dataclasses import replace
from functools import partial
from importlib import import_module
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING

from mainspring.capabilities.mcp.api_login import ApiLogin
from mainspring.capabilities.network.outbound_http import HttpPoster, OutboundHttpClient
from mainspring.capabilities.network.rules import Network
from mainspring.capabilities.providers.model_registry import ModelRegistry
from mainspring.capabilities.tools.client_tools import client_tools
from mainspring.capabilities.vault.aes_seal import AesSeal
from mainspring.capabilities.vault.redaction import Scrubber
from mainspring.config import DATABASE, Settings, is_postgres
from mainspring.core.errors import InvalidInput
from mainspring.core.lazy_module import LazyModule
from mainspring.log.session_log import SessionLog
from mainspring.log.sqlite import open_sqlite
from mainspring.runtime.run_options import RunOptions
from mainspring.service.jobs.dispatcher import Dispatcher
from mainspring.service.jobs.embedded_dispatcher import EmbeddedDispatcher
from mainspring.service.service import (
    AgentFolderPorts,
    Infrastructure,
    Service,
    build_service,
)
from mainspring.service.sessions.preview_deltas import Deltas, LocalDeltas, SharedDeltas
from mainspring.service.views.local_records import LocalRecords
from mainspring.service.webhooks.webhook_deliveries import WebhookPoster
from mainspring.wiring.agent_selection import agent_selection
from mainspring.wiring.memory import open_store_passages
from mainspring.wiring.providers import open_model_registry
from mainspring.wiring.settings_files import read_project_files
from mainspring.wiring.stores import open_log
from mainspring.wiring.user_vault import known_secrets, user_vault

if TYPE_CHECKING:
    from mainspring.wiring import eval_assembly
else:
    eval_assembly = LazyModule("mainspring.wiring.eval_assembly")  # most services run no suites


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
        yield build_service(
            replace(
                _infrastructure(
                    settings, log, models, user_vault(settings).open_seal(), dispatcher
                ),
                deltas=deltas,
                send_request=http_client,
                login_client=ApiLogin(http_client.fetch),
                post_webhook=metered(HttpPoster(allowed=networks, allow_http=allow_http)),
                allow_http=allow_http,
            )
        )


@asynccontextmanager
async def open_local_service(
    settings: Settings, dispatcher: Dispatcher
) -> AsyncGenerator[Service, None]:
    """The service over the sessions that a person runs on this machine. `dispatcher` runs them.
    What it stores beside their logs is gone when it ends.

    Raises: InvalidInput: their store is no file. StoreFailed.
    """
    if "://" in settings.store:
        raise InvalidInput("this store is a server's; `mainspring serve` has its dashboard")
    with TemporaryDirectory() as folder:
        async with (
            open_sqlite(Path(settings.store)) as store,
            open_sqlite(Path(folder, DATABASE)) as others,
            open_model_registry(settings) as models,
        ):
            log = SessionLog(store, scrub=Scrubber(known_secrets(settings)))
            store.records = LocalRecords(log, others.records)
            seal = AesSeal(secrets.token_bytes(32))
            yield build_service(_infrastructure(settings, log, models, seal, dispatcher))


def _infrastructure(
    settings: Settings,
    log: SessionLog,
    models: ModelRegistry,
    seal: AesSeal,
    dispatcher: Dispatcher,
) -> Infrastructure:
    http_client = OutboundHttpClient(allowed=())
    return Infrastructure(
        log=log,
        dispatcher=dispatcher,
        deltas=LocalDeltas(),
        seal=seal,
        models=models,
        workspaces=Path(settings.workspaces),
        open_passages=partial(open_store_passages, settings),
        client_tools=client_tools,
        agent_folder=_agent_folder(settings),
        send_request=http_client,
        login_client=ApiLogin(http_client.fetch),
        post_webhook=HttpPoster(allowed=()),
    )


def _agent_folder(settings: Settings) -> AgentFolderPorts:
    folder, home = Path(settings.folder), Path(settings.home)
    return AgentFolderPorts(
        folder=folder,
        home=home,
        read_project=lambda: read_project_files(folder, home=home),
        open_agent=lambda: agent_selection(settings).open(RunOptions()).agent,
        open_runner=lambda options, is_drill: eval_assembly.open_suite_runner(
            settings, options, is_drill=is_drill
        ),
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
