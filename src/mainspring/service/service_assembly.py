"""Assembles the parts of the service over one store: resources, secrets, memory, webhooks,
sessions, schedules, access. What implements them outside of the service is given as `ServicePorts`.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from mainspring.core import clock
from mainspring.core.errors import StoreFailed
from mainspring.core.tool import Tool
from mainspring.log.session_log import SessionLog
from mainspring.log.store import Store
from mainspring.runtime.session_context import Models
from mainspring.runtime.settings.project_trust import ProjectFiles
from mainspring.service.access.api_keys import Keys
from mainspring.service.access.audit import Audit
from mainspring.service.access.budget_ledger import DailyBudgetLedger
from mainspring.service.access.idempotency import IdempotentRequests
from mainspring.service.access.kill_switch import Halts
from mainspring.service.access.tenants import Tenants
from mainspring.service.approvals.approval_policy import AnswerPermission, ApprovalPolicies
from mainspring.service.approvals.approvals import Approvals
from mainspring.service.dreams.dreams import DreamDependencies, Dreams
from mainspring.service.evals.alarms import Alarms
from mainspring.service.evals.production_watch import ProductionWatch
from mainspring.service.evals.scheduled_evals import (
    OpenSuiteRunner,
    ScheduledEvalPorts,
    ScheduledEvals,
)
from mainspring.service.jobs.dispatcher import Dispatcher, Job
from mainspring.service.jobs.parking import WAKE_TASK, Parking
from mainspring.service.memory_stores.memories import Memories
from mainspring.service.memory_stores.memory_stores import MemoryStores
from mainspring.service.memory_stores.memory_versions import MemoryVersions
from mainspring.service.resources.agents import Agents
from mainspring.service.resources.environments import Environments
from mainspring.service.resources.file_resources import Files
from mainspring.service.resources.skill_resources import Skills
from mainspring.service.schedules.deployment_runner import DeploymentRunner, DeploymentRuns
from mainspring.service.schedules.deployment_store import DeploymentStore
from mainspring.service.schedules.deployments import Deployments
from mainspring.service.schedules.session_starter import ServiceSessionStarter
from mainspring.service.schedules.trigger_intake import TriggerIntake
from mainspring.service.schedules.triggers import Triggers
from mainspring.service.self_hosted.work_queue import WorkQueue, WorkQueueOptions, needs_worker
from mainspring.service.self_hosted.work_tokens import WorkTokens
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
from mainspring.service.sessions.dependencies import SessionDependencies
from mainspring.service.sessions.event_pages import EventPages
from mainspring.service.sessions.event_sender import EventSender
from mainspring.service.sessions.event_streams import EventStreams
from mainspring.service.sessions.output_files import SessionOutputs
from mainspring.service.sessions.preview_deltas import Deltas
from mainspring.service.sessions.resource_types import (
    MemoryStoreInfo,
    ResourceLookups,
    file_content,
)
from mainspring.service.sessions.session_commands import SessionCommands
from mainspring.service.sessions.session_record import SessionRecord
from mainspring.service.sessions.session_resources import SessionResources
from mainspring.service.sessions.session_skills import SessionSkills
from mainspring.service.sessions.session_threads import Threads
from mainspring.service.sessions.sessions import Sessions
from mainspring.service.sessions.workspace_expiry import CLEAR_TASK
from mainspring.service.sessions.workspace_expiry import KIND as EXPIRY
from mainspring.service.storage.repository import Seal, delete_children
from mainspring.service.vaults.credential_validation import CredentialValidator, McpInitializeProbe
from mainspring.service.vaults.credentials import Credentials
from mainspring.service.vaults.mcp_logins import LoginClient, McpLogins
from mainspring.service.vaults.session_credentials import SessionCredentials
from mainspring.service.vaults.token_refresh import Refresher, SendTokenRequest
from mainspring.service.vaults.vaults import Vaults
from mainspring.service.webhooks.webhook_deliveries import Deliveries, WebhookPoster
from mainspring.service.webhooks.webhook_endpoints import Webhooks
from mainspring.service.webhooks.webhook_outbox import Outbox, SessionEventForwarder


@dataclass(frozen=True, slots=True, kw_only=True)
class AgentFolderPorts:
    """The folder that the service runs in: its agent, suites and trust."""

    folder: Path
    home: Path
    read_project: Callable[[], ProjectFiles]
    open_runner: OpenSuiteRunner


@dataclass(frozen=True, slots=True, kw_only=True)
class ServicePorts:
    """What the service needs from outside."""

    log: SessionLog
    dispatcher: Dispatcher
    deltas: Deltas
    seal: Seal
    models: Models
    workspaces: Path
    """The folder with the workspaces of all sessions."""
    client_tools: Callable[[Collection[str]], Sequence[Tool]]
    """The built-in tools of these names, as a client runs them."""
    send_request: SendTokenRequest
    login_client: LoginClient
    post_webhook: WebhookPoster
    agent_folder: AgentFolderPorts
    allow_http: bool = False
    """Webhooks may have addresses without TLS."""

    @property
    def store(self) -> Store:
        return self.log.store


@dataclass(frozen=True, slots=True, kw_only=True)
class ServiceParts:
    resources: ResourceServices
    secrets: SecretServices
    memory_services: MemoryServices
    dreams: Dreams
    evals: EvalServices
    webhooks: WebhookServices
    sessions: SessionServices
    schedules: ScheduleServices
    access: AccessServices


def build_parts(ports: ServicePorts) -> ServiceParts:
    records = ports.store.records
    webhooks = _build_webhooks(ports)
    resources = ResourceServices(
        agents=Agents(records, check_model=ports.models.facts),
        environments=Environments(records),
        skills=Skills(records),
        files=Files(records),
    )
    secrets = _build_secrets(ports, webhooks.outbox)
    memory = _build_memory(ports)
    services = _build_sessions(ports, resources, secrets, memory, webhooks)
    dreams = _build_dreams(ports, memory, services)
    evals = _build_evals(ports, webhooks.outbox)
    return ServiceParts(
        resources=resources,
        secrets=secrets,
        memory_services=memory,
        dreams=dreams,
        evals=evals,
        webhooks=webhooks,
        sessions=services,
        schedules=_build_schedules(ports, resources, services, webhooks.outbox, (dreams, evals)),
        access=AccessServices(
            keys=Keys(records),
            tenants=Tenants(records),
            halts=Halts(records),
            ledger=DailyBudgetLedger(records),
            audit=Audit(records),
            repeated=IdempotentRequests(records, ports.seal),
        ),
    )


def _build_webhooks(ports: ServicePorts) -> WebhookServices:
    records, put = ports.store.records, ports.dispatcher.put
    webhooks = Webhooks(records, seal=ports.seal, allow_http=ports.allow_http)
    outbox = Outbox(records, webhooks, put=put)
    return WebhookServices(
        webhooks=webhooks,
        outbox=outbox,
        deliveries=Deliveries(records, webhooks, post=ports.post_webhook, put=put),
        news=SessionEventForwarder(records, webhooks, outbox, ports.log),
    )


def _build_secrets(ports: ServicePorts, outbox: Outbox) -> SecretServices:
    records, notify = ports.store.records, outbox.notify
    vaults = Vaults(records, notify=notify)
    credentials = Credentials(records, ports.seal, vaults, notify=notify)
    refresher = Refresher(credentials, ports.send_request, notify=notify)
    return SecretServices(
        vaults=vaults,
        credentials=credentials,
        credential_validator=CredentialValidator(
            credentials, probe=McpInitializeProbe(ports.send_request), refresher=refresher
        ),
        mcp_logins=McpLogins(vaults, credentials, ports.seal, ports.login_client),
        usable=SessionCredentials(records, credentials, refresher),
    )


def _build_memory(ports: ServicePorts) -> MemoryServices:
    records = ports.store.records
    stores = MemoryStores(records)  # what becomes of them is told by the routes
    return MemoryServices(
        stores=stores,
        memories=Memories(records, stores),
        versions=MemoryVersions(records, stores),
    )


def _build_dreams(ports: ServicePorts, memory: MemoryServices, sessions: SessionServices) -> Dreams:
    needs = DreamDependencies(
        log=ports.log,
        models=ports.models,
        stores=memory.stores,
        memories=memory.memories,
        sessions=sessions.sessions,
        put=ports.dispatcher.put,
    )
    return Dreams(ports.store.records, needs)


def _build_evals(ports: ServicePorts, outbox: Outbox) -> EvalServices:
    records, place = ports.store.records, ports.agent_folder
    alarms = Alarms(records, outbox)
    scheduled = ScheduledEvalPorts(
        records=records,
        alarms=alarms,
        put=ports.dispatcher.put,
        folder=place.folder,
        open_runner=place.open_runner,
    )
    watch = ProductionWatch(
        log=ports.log,
        alarms=alarms,
        folder=place.folder,
        home=place.home,
        read_project=place.read_project,
        open_runner=place.open_runner,
    )
    return EvalServices(alarms=alarms, scheduled=ScheduledEvals(scheduled), watch=watch)


def _build_sessions(
    ports: ServicePorts,
    resource_services: ResourceServices,
    secret_services: SecretServices,
    memory_services: MemoryServices,
    webhook_services: WebhookServices,
) -> SessionServices:
    async def wake(tenant: str, session: SessionRecord) -> None:
        # What is in the inbox is found again by looking: no need to write down that it is there,
        # nor to refuse what was taken because nobody could be told: it would be sent again.
        with suppress(StoreFailed):
            await ports.dispatcher.remind([Job(task=WAKE_TASK, key=session.id, tenant=tenant)])
            await services.work.offer_session(tenant, session)

    async def over(tenant: str, session: SessionRecord, *, is_deleted: bool) -> None:
        await services.work.withdraw(tenant, session.environment_id, session.id)
        await services.approvals.keeper.catch_up(tenant, session.id)  # nobody waits there any more
        if is_deleted:
            await webhook_services.news.forget(tenant, session.id)
            await services.outputs.forget(tenant, session.id)
            await delete_children(ports.store.records, EXPIRY, tenant=tenant, parent=session.id)
            await services.parking.forget(Job(task=WAKE_TASK, key=session.id, tenant=tenant))
            await ports.dispatcher.put(Job(task=CLEAR_TASK, key=session.id, tenant=tenant))

    async def memory_store(tenant: str, store_id: str) -> MemoryStoreInfo:
        store = await memory_services.stores.active(tenant, store_id)
        return MemoryStoreInfo(name=store.name, description=store.description or "")

    sessions = Sessions(
        ports.log,
        SessionDependencies(
            agents=resource_services.agents,
            environments=resource_services.environments,
            lookups=ResourceLookups(
                seal=ports.seal,
                file_content=file_content(resource_services.files),
                check_file=resource_services.files.get,
                check_vault=secret_services.vaults.active,
                memory_store=memory_store,
            ),
            wake_session=wake,
            on_session_end=over,
            resolved_agent=SessionSkills(
                ports.workspaces, resource_services.skills, ports.client_tools
            ).actor,
            check_override=ApprovalPolicies(ports.store.records).require_overriding,
            notify=webhook_services.outbox.notify,
        ),
    )
    tokens = WorkTokens(ports.store.records, ports.seal)
    sending = EventSender(sessions, AnswerPermission(ports.store.records, clock=sessions.clock))
    services = SessionServices(
        sessions=sessions,
        event_sender=sending,
        commands=SessionCommands(sessions, sending),
        pages=EventPages(ports.log),
        threads=Threads(sessions),
        resources=SessionResources(sessions),
        outputs=SessionOutputs(ports.store.records, resource_services.files),
        event_streams=EventStreams(ports.log, ports.deltas),
        work=WorkQueue(
            ports.store.records,
            resource_services.environments,
            WorkQueueOptions(needs_worker=needs_worker(sessions), issue_token=tokens.secret),
        ),
        work_tokens=tokens,
        parking=Parking(ports.log, ports.dispatcher),
        approvals=Approvals(
            ports.log,
            wake_session=wake,
            put=ports.dispatcher.put,
            notification_writer=webhook_services.outbox,
            digests=sessions.digests,
        ),
    )
    return services


def _build_schedules(
    ports: ServicePorts,
    resource_services: ResourceServices,
    session_services: SessionServices,
    outbox: Outbox,
    actions: tuple[Dreams, EvalServices],
) -> ScheduleServices:
    dreams, evals = actions
    pin_agent = resource_services.agents.reference
    records = ports.store.records
    store = DeploymentStore(
        records,
        outbox=outbox,
        seal=ports.seal,
        put=ports.dispatcher.put,
        clock=clock.now,
    )
    runs = DeploymentRuns(records)
    starter = ServiceSessionStarter(
        session_services.sessions,
        session_services.event_sender,
        dreams.start_scheduled,
        evals.scheduled,
    )
    triggers = Triggers(records, seal=ports.seal, pin_agent=pin_agent)
    return ScheduleServices(
        deployments=Deployments(store, pin_agent=pin_agent, check_action=evals.scheduled.check),
        runs=runs,
        deployment_runner=DeploymentRunner(store, runs, session_starter=starter),
        triggers=triggers,
        trigger_intake=TriggerIntake(triggers, session_starter=starter),
    )
