"""Opens the service over the sessions that a person runs on this machine."""

from __future__ import annotations

import secrets
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from dataclasses import replace
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory

from mainspring.capabilities.mcp.login.api_login import ApiLogin
from mainspring.capabilities.network.outbound_http import HttpPoster, OutboundHttpClient
from mainspring.capabilities.tools.client_tools import client_tools
from mainspring.capabilities.vault.aes_seal import AesSeal
from mainspring.capabilities.vault.redaction import Scrubber
from mainspring.config import DATABASE, Settings
from mainspring.core.errors import InvalidInput
from mainspring.log.session_log import SessionLog
from mainspring.log.sqlite import open_sqlite
from mainspring.service.jobs.dispatcher import Dispatcher
from mainspring.service.service import Infrastructure, Service, build_service
from mainspring.service.sessions.events.preview_deltas import LocalDeltas
from mainspring.service.views.local_records import LOCAL_TENANT, LocalRecords
from mainspring.wiring.memory import open_store_passages
from mainspring.wiring.providers import open_model_registry
from mainspring.wiring.service_assembly import agent_folder_ports
from mainspring.wiring.session_files import open_snapshots
from mainspring.wiring.user_vault import known_secrets, store_key


@asynccontextmanager
async def open_local_service(
    settings: Settings, dispatcher: Dispatcher
) -> AsyncGenerator[Service, None]:
    """`dispatcher` runs the sessions. What the service stores beside their logs is gone when it
    ends.

    Raises: InvalidInput: their store is no file. StoreFailed.
    """
    if "://" in settings.store:
        raise InvalidInput("this store is a server's; `mainspring serve` has its dashboard")
    with TemporaryDirectory() as folder:
        async with (
            open_sqlite(Path(settings.store), key=store_key(settings)) as store,
            open_sqlite(Path(folder, DATABASE)) as others,
            open_model_registry(settings) as models,
        ):
            log = SessionLog(store, scrub=Scrubber(known_secrets(settings)))
            store.records = LocalRecords(log, others.records)
            seal = AesSeal(secrets.token_bytes(32))
            http_client = OutboundHttpClient(allowed=())
            yield build_service(
                Infrastructure(
                    log=log,
                    dispatcher=dispatcher,
                    deltas=LocalDeltas(),
                    seal=seal,
                    models=models,
                    workspaces=Path(settings.workspaces),
                    open_passages=partial(open_store_passages, settings),
                    client_tools=client_tools,
                    agent_folder=replace(agent_folder_ports(settings), tenant=LOCAL_TENANT),
                    open_snapshots=partial(open_snapshots, settings),
                    send_request=http_client,
                    login_client=ApiLogin(http_client.fetch),
                    post_webhook=HttpPoster(allowed=()),
                )
            )
