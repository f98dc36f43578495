"""Assemble the service over one store: resources, secrets, memory, webhooks, sessions,
schedules, access.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import asynccontextmanager, suppress
from importlib import import_module
from pathlib import Path

from mainspring.capabilities.network.rules import Network
from mainspring.config import Settings, is_postgres
from mainspring.core import clock
from mainspring.core.errors import InvalidInput, StoreFailed
from mainspring.log.session_log import SessionLog
from mainspring.service.access.api_keys import Keys
from mainspring.service.access.audit import Audit
from mainspring.service.access.budget_ledger import DailyBudgetLedger
from mainspring.service.access.idempotency import IdempotentRequests
from mainspring.service.access.kill_switch import Halts
from mainspring.service.access.tenants import Tenants
from mainspring.service.approvals.approval_policy import ApprovalPolicies
from mainspring.service.approvals.approvals import Approvals
from mainspring.service.jobs.dispatcher import Dispatcher, Job
from mainspring.service.jobs.embedded_dispatcher import EmbeddedDispatcher
from mainspring.service.jobs.parking import WAKE_TASK, Parking
from mainspring.service.memory_stores.memories import Memories
from mainspring.service.memory_stores.memory_stores import MemoryStores
from mainspring.service.memory_stores.memory_versions import MemoryVersions
from mainspring.service.resources.agent_multiagent import AgentReference
from mainspring.service.resources.agents import Agents
from mainspring.service.resources.environments import Environments, SelfHostedConfig
from mainspring.service.resources.file_resources import Files
from mainspring.service.resources.skill_resources import Skills
from mainspring.service.schedules.deployment_runner import DeploymentRunner
from mainspring.service.schedules.deployment_runs import DeploymentRuns
from mainspring.service.schedules.deployment_store import DeploymentStore
from mainspring.service.schedules.deployments import Deployments
from mainspring.service.schedules.session_starter import ServiceSessionStarter
from mainspring.service.schedules.trigger_intake import TriggerIntake
from mainspring.service.schedules.triggers import Triggers
from mainspring.service.self_hosted.work_queue import WorkQueue, WorkQueueOptions, needs_worker
from mainspring.service.self_hosted.work_tokens import WorkTokens
from mainspring.service.sessions.dependencies import SessionDependencies
from mainspring.service.sessions.event_pages import EventPages
from mainspring.service.sessions.event_sender import EventSender
from mainspring.service.sessions.event_streams import EventStreams
from mainspring.service.sessions.output_files import SessionOutputs
from mainspring.service.sessions.preview_deltas import Deltas, LocalDeltas, SharedDeltas
from mainspring.service.sessions.resource_lookups import (
    FileContent,
    MemoryStoreInfo,
    ResourceLookups,
)
from mainspring.service.sessions.session_commands import SessionCommands
from mainspring.service.sessions.session_record import SessionRecord
from mainspring.service.sessions.session_resources import SessionResources
from mainspring.service.sessions.session_threads import Threads
from mainspring.service.sessions.sessions import Sessions
from mainspring.service.sessions.workspace_expiry import KIND as EXPIRY
from mainspring.service.storage.repository import delete_children
from mainspring.service.vaults.credential_validation import CredentialValidator
from mainspring.service.vaults.credentials import Credentials
from mainspring.service.vaults.session_credentials import SessionCredentials
from mainspring.service.vaults.token_refresh import Refresher
from mainspring.service.vaults.vaults import Vaults
from mainspring.service.webhooks.session_event_forwarder import SessionEventForwarder
from mainspring.service.webhooks.webhook_deliveries import Deliveries, WebhookPoster
from mainspring.service.webhooks.webhook_endpoints import Webhooks
from mainspring.service.webhooks.webhook_outbox import Outbox
from mainspring.wiring.aes_seal import open_seal
from mainspring.wiring.outbound_http import HttpPoster, McpInitializeProbe, OutboundHttpClient
from mainspring.wiring.runtime_assembly import open_model_registry
from mainspring.wiring.service_parts import (
    AccessServices,
    Infrastructure,
    MemoryServices,
    ResourceServices,
    ScheduleServices,
    SecretServices,
    Service,
    SessionServices,
    WebhookServices,
)
from mainspring.wiring.session_skills import SessionSkills
from mainspring.wiring.stores import open_log
from mainspring.wiring.workspace_cleanup import CLEAR_TASK


@asynccontextmanager
async def open_service(
    settings: Settings,
    *,
    networks: tuple[Network, ...] = (),
    tenant_limit: int | None = None,
    metered: Callable[[WebhookPoster], WebhookPoster] = lambda post: post,
) -> AsyncGenerator[Service, None]:
    """Over the store that the settings name; nothing works in it yet, and nobody is let in.
    `networks` and `metered`: see `Ground`; `tenant_limit`: how many jobs of one tenant run at once.

    Raises: InvalidInput, StoreFailed: it cannot be opened, and why.
    """
    async with (
        open_log(settings) as log,
        open_model_registry(settings) as shelf,
        _open_messaging(settings, log, tenant_limit) as (dispatcher, deltas),
    ):
        ground = Infrastructure(
            settings=settings,
            log=log,
            dispatcher=dispatcher,
            deltas=deltas,
            seal=open_seal(settings),
            models=shelf,
            networks=networks,
            meter_poster=metered,
        )
        yield build_service(ground)


def build_service(ground: Infrastructure) -> Service:
    records = ground.store.records
    mail = _build_webhooks(ground)
    shelves = ResourceServices(
        agents=Agents(records, check_model=ground.models.facts),
        environments=Environments(records),
        skills=Skills(records),
        files=Files(records),
    )
    safe = _build_secrets(ground, mail.outbox)
    memory = _build_memory(ground)
    talk = _build_sessions(ground, shelves, safe, memory, mail)
    return Service(
        infrastructure=ground,
        resources=shelves,
        secrets=safe,
        memory=memory,
        webhooks=mail,
        sessions=talk,
        schedules=_build_schedules(ground, shelves, talk, mail.outbox),
        access=AccessServices(
            keys=Keys(records),
            tenants=Tenants(records),
            halts=Halts(records),
            ledger=DailyBudgetLedger(records),
            audit=Audit(records),
            repeated=IdempotentRequests(records, ground.seal),
        ),
    )


@asynccontextmanager
async def _open_messaging(
    settings: Settings, log: SessionLog, tenant_limit: int | None
) -> AsyncGenerator[tuple[Dispatcher, Deltas], None]:
    """How processes of the service hear of each other: by the database, if it is shared."""
    if not is_postgres(settings.store):
        yield EmbeddedDispatcher(log.store.records, tenant_limit=tenant_limit), LocalDeltas()
        return
    fleet = import_module(
        "mainspring.service.jobs.postgres_dispatcher"
    )  # by name: an extra, and long to import
    broadcast = import_module("mainspring.log.postgres.broadcast")
    async with (
        fleet.open_fleet(settings.store, tenant_limit=tenant_limit) as dispatcher,
        broadcast.open_broadcast(settings.store) as radio,
    ):
        yield dispatcher, SharedDeltas(radio)


def _build_webhooks(ground: Infrastructure) -> WebhookServices:
    records, put = ground.store.records, ground.dispatcher.put
    allow_http = bool(ground.networks)  # inside, not everything speaks TLS
    webhooks = Webhooks(records, seal=ground.seal, allow_http=allow_http)
    outbox = Outbox(records, webhooks, put=put)
    poster = ground.meter_poster(HttpPoster(allowed=ground.networks, allow_http=allow_http))
    return WebhookServices(
        webhooks=webhooks,
        outbox=outbox,
        deliveries=Deliveries(records, webhooks, post=poster, put=put),
        news=SessionEventForwarder(records, webhooks, outbox, ground.log),
    )


def _build_secrets(ground: Infrastructure, outbox: Outbox) -> SecretServices:
    records, notify = ground.store.records, outbox.notify
    asker = OutboundHttpClient(allowed=ground.networks)
    vaults = Vaults(records, notify=notify)
    credentials = Credentials(records, ground.seal, vaults, notify=notify)
    refresher = Refresher(credentials, asker, notify=notify)
    return SecretServices(
        vaults=vaults,
        credentials=credentials,
        validator=CredentialValidator(
            credentials, probe=McpInitializeProbe(asker), refresher=refresher
        ),
        usable=SessionCredentials(records, credentials, refresher),
    )


def _build_memory(ground: Infrastructure) -> MemoryServices:
    records = ground.store.records
    stores = MemoryStores(records)  # what becomes of them is told by the routes
    return MemoryServices(
        stores=stores,
        memories=Memories(records, stores),
        versions=MemoryVersions(records, stores),
    )


def _build_sessions(
    ground: Infrastructure,
    shelves: ResourceServices,
    safe: SecretServices,
    memory: MemoryServices,
    mail: WebhookServices,
) -> SessionServices:
    async def wake(tenant: str, session_id: str) -> None:
        # What is in the inbox is found again by looking: no need to write down that it is there,
        # nor to refuse what was taken because nobody could be told: it would be sent again.
        with suppress(StoreFailed):
            await ground.dispatcher.remind([Job(task=WAKE_TASK, key=session_id, tenant=tenant)])
            await offer_to_client_worker(
                talk, tenant, await sessions.drawer.get(tenant, session_id)
            )

    async def over(tenant: str, session: SessionRecord, *, is_deleted: bool) -> None:
        await talk.work.withdraw(tenant, session.environment_id, session.id)
        await talk.approvals.keeper.catch_up(tenant, session.id)  # nobody waits there any more
        if is_deleted:
            await mail.news.forget(tenant, session.id)
            await talk.outputs.forget(tenant, session.id)
            await delete_children(ground.store.records, EXPIRY, tenant=tenant, parent=session.id)
            await talk.parking.forget(Job(task=WAKE_TASK, key=session.id, tenant=tenant))
            await ground.dispatcher.put(Job(task=CLEAR_TASK, key=session.id, tenant=tenant))

    async def memory_store(tenant: str, store_id: str) -> MemoryStoreInfo:
        store = await memory.stores.active(tenant, store_id)
        return MemoryStoreInfo(name=store.name, description=store.description or "")

    sessions = Sessions(
        ground.log,
        SessionDependencies(
            agents=shelves.agents,
            environments=shelves.environments,
            lookups=ResourceLookups(
                seal=ground.seal,
                file_content=file_content(shelves.files),
                check_file=shelves.files.get,
                check_vault=safe.vaults.active,
                memory_store=memory_store,
            ),
            wake=wake,
            on_session_end=over,
            actor=SessionSkills(Path(ground.settings.workspaces), shelves.skills).actor,
            check_override=ApprovalPolicies(ground.store.records).require_overriding,
            notify=mail.outbox.notify,
        ),
    )
    tokens = WorkTokens(ground.store.records, ground.seal)
    sending = EventSender(sessions)
    talk = SessionServices(
        sessions=sessions,
        sending=sending,
        commands=SessionCommands(sessions, sending),
        pages=EventPages(ground.log),
        threads=Threads(sessions),
        resources=SessionResources(sessions),
        outputs=SessionOutputs(ground.store.records, shelves.files),
        streams=EventStreams(ground.log, ground.deltas),
        work=WorkQueue(
            ground.store.records,
            shelves.environments,
            WorkQueueOptions(is_wanted=needs_worker(sessions), issue=tokens.secret),
        ),
        work_tokens=tokens,
        parking=Parking(ground.log, ground.dispatcher),
        approvals=Approvals(
            ground.log,
            wake=wake,
            put=ground.dispatcher.put,
            teller=mail.outbox,
            digests=sessions.digests,
        ),
    )
    return talk


async def offer_to_client_worker(
    talk: SessionServices, tenant: str, session: SessionRecord
) -> None:
    """Have a worker of the client's look after a session, if its hands are the client's."""
    if isinstance(session.environment, SelfHostedConfig):
        await talk.work.offer(tenant, session.environment_id, session.id)


def file_content(files: Files) -> Callable[[str, str], Awaitable[FileContent]]:
    async def content(tenant: str, file_id: str) -> FileContent:
        file, held = await files.content(tenant, file_id)
        return FileContent(content=held, media_type=file.mime_type, name=file.filename)

    return content


def _build_schedules(
    ground: Infrastructure, shelves: ResourceServices, talk: SessionServices, outbox: Outbox
) -> ScheduleServices:
    async def pin_agent(tenant: str, agent_id: str, version: int | None) -> AgentReference:
        agent = await shelves.agents.get(tenant, agent_id, version)
        if agent.archived_at is not None:
            raise InvalidInput(f"agent {agent_id} is archived; nothing new is started with it")
        return AgentReference(id=agent.id, version=agent.version)

    records = ground.store.records
    keep = DeploymentStore(
        records, outbox=outbox, seal=ground.seal, put=ground.dispatcher.put, clock=clock.now
    )
    runs = DeploymentRuns(records)
    ordering = ServiceSessionStarter(talk.sessions, talk.sending)
    triggers = Triggers(records, seal=ground.seal, pin_agent=pin_agent)
    return ScheduleServices(
        deployments=Deployments(keep, pin_agent=pin_agent),
        runs=runs,
        firing=DeploymentRunner(keep, runs, sessions=ordering),
        triggers=triggers,
        intake=TriggerIntake(triggers, sessions=ordering),
    )
