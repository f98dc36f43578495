"""The service over one store: resources, secrets, memory, webhooks, sessions, schedules, access.

Its external dependencies are its `Infrastructure`, which `wiring` opens.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import assert_never

from anyio import to_thread

from mainspring.core import clock
from mainspring.core.errors import StoreFailed
from mainspring.core.ports import Seal
from mainspring.core.tool import Tool
from mainspring.log.session_log import SessionLog
from mainspring.log.store import Store
from mainspring.retrieval.passage_index import PassageIndex
from mainspring.runtime.agent import Agent
from mainspring.runtime.session_context import Models
from mainspring.runtime.settings.project_trust import ProjectFiles
from mainspring.service.access.api_keys import Keys
from mainspring.service.access.audit import Audit
from mainspring.service.access.browser_sessions import BrowserSessions
from mainspring.service.access.budget_ledger import DailyBudgetLedger
from mainspring.service.access.idempotency import IdempotentRequests
from mainspring.service.access.kill_switch import Halts
from mainspring.service.access.tenants import Tenants
from mainspring.service.approvals.approval_policy import AnswerPermission, ApprovalPolicies
from mainspring.service.approvals.approvals import Approvals
from mainspring.service.dreams.dreams import DreamDependencies, Dreams, SuiteSource
from mainspring.service.evals.alarms import Alarms
from mainspring.service.evals.eval_runs import EvalRuns
from mainspring.service.evals.production_watch import ProductionWatch
from mainspring.service.evals.scheduled_evals import OpenSuiteRunner, ScheduledEvals
from mainspring.service.evolution.campaigns import Campaigns, OpenCampaigns
from mainspring.service.jobs.dispatcher import Dispatcher, Job
from mainspring.service.jobs.parking import WAKE_TASK, Parking
from mainspring.service.memory_stores.memories import Memories
from mainspring.service.memory_stores.memory_search import MemorySearch, StoreIndex
from mainspring.service.memory_stores.memory_stores import MemoryStores
from mainspring.service.memory_stores.memory_versions import MemoryVersions
from mainspring.service.resources.agents import Agents
from mainspring.service.resources.environments import Environments
from mainspring.service.resources.file_resources import Files
from mainspring.service.resources.skill_resources import Skills
from mainspring.service.schedules.deployment_runner import DeploymentRunner, run_repository
from mainspring.service.schedules.deployment_store import DeploymentStore
from mainspring.service.schedules.deployment_types import (
    Action,
    CampaignAction,
    DreamAction,
    EvalAction,
    WorkflowAction,
)
from mainspring.service.schedules.deployments import Deployments
from mainspring.service.schedules.local_schedule import TENANT, LocalSchedule, ScheduleStatus
from mainspring.service.schedules.session_starter import ServiceSessionStarter
from mainspring.service.schedules.trigger_intake import TriggerIntake
from mainspring.service.schedules.triggers import Triggers
from mainspring.service.self_hosted.work_queue import WorkQueue, needs_worker
from mainspring.service.self_hosted.work_tokens import WorkTokens
from mainspring.service.service_groups import (
    AccessServices,
    EvalServices,
    MemoryServices,
    ResourceServices,
    ScheduleServices,
    SecretServices,
    SessionServices,
    ViewServices,
    WebhookServices,
    WorkflowServices,
)
from mainspring.service.sessions.dependencies import END_TASK, SessionDependencies
from mainspring.service.sessions.event_sender import EventSender
from mainspring.service.sessions.events.event_pages import EventPages
from mainspring.service.sessions.events.event_streams import EventStreams
from mainspring.service.sessions.events.preview_deltas import Deltas
from mainspring.service.sessions.resource_types import (
    MemoryStoreInfo,
    ResourceLookups,
    file_content,
)
from mainspring.service.sessions.session_commands import SessionCommands
from mainspring.service.sessions.session_record import SessionRecord
from mainspring.service.sessions.session_resources import SessionResources
from mainspring.service.sessions.session_threads import Threads
from mainspring.service.sessions.sessions import Sessions
from mainspring.service.sessions.workspaces.output_files import SessionOutputs
from mainspring.service.sessions.workspaces.session_skills import SessionSkills
from mainspring.service.sessions.workspaces.workspace_expiry import CLEAR_TASK
from mainspring.service.sessions.workspaces.workspace_expiry import KIND as EXPIRY
from mainspring.service.storage.repository import delete_children
from mainspring.service.vaults.credential_validation import CredentialValidator, McpInitializeProbe
from mainspring.service.vaults.credentials import Credentials
from mainspring.service.vaults.mcp_logins import LoginClient, McpLogins
from mainspring.service.vaults.session_credentials import SessionCredentials
from mainspring.service.vaults.token_refresh import Refresher, SendTokenRequest
from mainspring.service.vaults.vaults import Vaults
from mainspring.service.views.change_feed import ChangeFeed
from mainspring.service.views.listed_sessions import ListedSessions
from mainspring.service.views.log_windows import LogWindows
from mainspring.service.views.session_files import FilesOfSessions, OpenSessionSnapshots
from mainspring.service.webhooks.webhook_deliveries import Deliveries, WebhookPoster
from mainspring.service.webhooks.webhook_endpoints import Webhooks
from mainspring.service.webhooks.webhook_outbox import Outbox, SessionEventForwarder
from mainspring.service.workflows.stored_workflows import Workflows
from mainspring.service.workflows.workflow_runs import WorkflowRuns


@dataclass(frozen=True, slots=True, kw_only=True)
class AgentFolderPorts:
    """The folder that the service runs in: its agent, suites and trust."""

    folder: Path
    home: Path
    read_project: Callable[[], ProjectFiles]
    open_agent: Callable[[], Agent]
    open_runner: OpenSuiteRunner
    open_campaigns: OpenCampaigns
    tenant: str = TENANT
    """The tenant that the folder belongs to."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Infrastructure:
    """The external dependencies of the service."""

    log: SessionLog
    dispatcher: Dispatcher
    deltas: Deltas
    seal: Seal
    models: Models
    workspaces: Path
    """The folder with the workspaces of all sessions."""
    open_passages: Callable[[], PassageIndex]
    """The index of all memory stores. Blocks."""
    client_tools: Callable[[Collection[str]], Sequence[Tool]]
    """The built-in tools of these names, as a client runs them."""
    send_request: SendTokenRequest
    login_client: LoginClient
    post_webhook: WebhookPoster
    agent_folder: AgentFolderPorts
    open_snapshots: OpenSessionSnapshots
    allow_http: bool = False
    """Whether webhooks may have URLs without TLS."""
    is_single_tenant: bool = False
    """Whether programs are not isolated well enough for more than one tenant."""

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
    campaigns: Campaigns
    webhooks: WebhookServices
    sessions: SessionServices
    views: ViewServices
    workflows: WorkflowServices
    schedules: ScheduleServices
    access: AccessServices


def build_service(infrastructure: Infrastructure) -> Service:
    records = infrastructure.store.records
    webhooks = _build_webhooks(infrastructure)
    resources = ResourceServices(
        agents=Agents(records, check_model=infrastructure.models.facts),
        environments=Environments(records),
        skills=Skills(records),
        files=Files(records),
    )
    secrets = _build_secrets(infrastructure, webhooks.outbox)
    memory = _build_memory(infrastructure)
    services = _build_sessions(infrastructure, resources, secrets, memory, webhooks)
    dreams = _build_dreams(infrastructure, memory, services)
    evals = _build_evals(infrastructure, webhooks.outbox, services.sessions)
    workflows = _build_workflows(infrastructure, services)
    campaigns = Campaigns(
        log=infrastructure.log,
        put=infrastructure.dispatcher.put,
        folder=infrastructure.agent_folder.folder,
        open_campaigns=infrastructure.agent_folder.open_campaigns,
        tenant=infrastructure.agent_folder.tenant,
    )
    return Service(
        infrastructure=infrastructure,
        resources=resources,
        secrets=secrets,
        memory_services=memory,
        dreams=dreams,
        evals=evals,
        campaigns=campaigns,
        webhooks=webhooks,
        sessions=services,
        views=_build_views(infrastructure, services),
        workflows=workflows,
        schedules=_build_schedules(
            infrastructure,
            resources,
            services,
            webhooks.outbox,
            _Actions(dreams, evals, workflows.runs, campaigns),
        ),
        access=AccessServices(
            keys=Keys(records),
            browser_sessions=BrowserSessions(records, infrastructure.seal),
            tenants=Tenants(records, is_single=infrastructure.is_single_tenant),
            halts=Halts(records),
            ledger=DailyBudgetLedger(records),
            audit=Audit(records),
            repeated=IdempotentRequests(records, infrastructure.seal),
        ),
    )


def _build_views(infrastructure: Infrastructure, sessions: SessionServices) -> ViewServices:
    listed = ListedSessions(sessions.sessions)
    return ViewServices(
        listed=listed,
        windows=LogWindows(sessions.sessions, listed),
        feed=ChangeFeed(listed),
        files=FilesOfSessions(sessions.sessions, infrastructure.open_snapshots),
    )


def _build_workflows(infrastructure: Infrastructure, sessions: SessionServices) -> WorkflowServices:
    place = infrastructure.agent_folder
    workflows = Workflows(
        records=infrastructure.store.records, folder=place.folder, home=place.home
    )
    runs = WorkflowRuns(sessions.sessions, sessions.approvals, workflows)
    return WorkflowServices(workflows=workflows, runs=runs)


def _build_webhooks(infrastructure: Infrastructure) -> WebhookServices:
    records, put = infrastructure.store.records, infrastructure.dispatcher.put
    webhooks = Webhooks(records, seal=infrastructure.seal, allow_http=infrastructure.allow_http)
    outbox = Outbox(records, webhooks, put=put)
    return WebhookServices(
        webhooks=webhooks,
        outbox=outbox,
        deliveries=Deliveries(records, webhooks, post=infrastructure.post_webhook, put=put),
        news=SessionEventForwarder(records, webhooks, outbox, infrastructure.log),
    )


def _build_secrets(infrastructure: Infrastructure, outbox: Outbox) -> SecretServices:
    records, notify = infrastructure.store.records, outbox.notify
    vaults = Vaults(records, notify=notify)
    credentials = Credentials(records, infrastructure.seal, vaults, notify=notify)
    refresher = Refresher(credentials, infrastructure.send_request, notify=notify)
    return SecretServices(
        vaults=vaults,
        credentials=credentials,
        credential_validator=CredentialValidator(
            credentials, probe=McpInitializeProbe(infrastructure.send_request), refresher=refresher
        ),
        mcp_logins=McpLogins(vaults, credentials, infrastructure.seal, infrastructure.login_client),
        usable=SessionCredentials(records, credentials, refresher),
    )


def _build_memory(infrastructure: Infrastructure) -> MemoryServices:
    records = infrastructure.store.records
    index = StoreIndex(infrastructure.open_passages)
    stores = MemoryStores(records, forget=index.forget)  # routes report changes of memory stores
    memories = Memories(records, stores)
    return MemoryServices(
        stores=stores,
        memories=memories,
        versions=MemoryVersions(records, stores),
        search=MemorySearch(memories, index),
    )


def _build_dreams(
    infrastructure: Infrastructure, memory: MemoryServices, sessions: SessionServices
) -> Dreams:
    place = infrastructure.agent_folder
    needs = DreamDependencies(
        log=infrastructure.log,
        models=infrastructure.models,
        stores=memory.stores,
        memories=memory.memories,
        sessions=sessions.sessions,
        put=infrastructure.dispatcher.put,
        suites=SuiteSource(folder=place.folder, tenant=TENANT, open_runner=place.open_runner),
    )
    return Dreams(infrastructure.store.records, needs)


def _build_evals(
    infrastructure: Infrastructure, outbox: Outbox, sessions: Sessions
) -> EvalServices:
    records, place = infrastructure.store.records, infrastructure.agent_folder
    alarms = Alarms(records, outbox)
    scheduled = ScheduledEvals(
        records,
        alarms,
        put=infrastructure.dispatcher.put,
        folder=place.folder,
        open_runner=place.open_runner,
    )
    watch = ProductionWatch(
        log=infrastructure.log,
        alarms=alarms,
        folder=place.folder,
        home=place.home,
        read_project=place.read_project,
        open_runner=place.open_runner,
    )
    runs = EvalRuns(
        sessions=sessions, folder=place.folder, tenant=place.tenant, open_agent=place.open_agent
    )
    return EvalServices(alarms=alarms, scheduled=scheduled, watch=watch, runs=runs)


def _build_sessions(
    infrastructure: Infrastructure,
    resource_services: ResourceServices,
    secret_services: SecretServices,
    memory_services: MemoryServices,
    webhook_services: WebhookServices,
) -> SessionServices:
    async def wake(tenant: str, session: SessionRecord) -> None:
        # The inbox is found again by polling, so this need not be durable. Nor is the accepted
        # event refused if the reminder fails: the client would send it again.
        with suppress(StoreFailed):
            await infrastructure.dispatcher.remind(
                [Job(task=WAKE_TASK, key=session.id, tenant=tenant)]
            )
            await services.work.offer_session(tenant, session)

    async def end_session(tenant: str, session: SessionRecord, *, is_deleted: bool) -> None:
        await services.work.withdraw(tenant, session.environment_id, session.id)
        await services.approvals.keeper.catch_up(tenant, session.id)  # its calls no longer wait
        if is_deleted:
            await webhook_services.news.forget(tenant, session.id)
            await services.outputs.forget(tenant, session.id)
            await delete_children(
                infrastructure.store.records, EXPIRY, tenant=tenant, parent=session.id
            )
            await services.parking.forget(Job(task=WAKE_TASK, key=session.id, tenant=tenant))
        task = CLEAR_TASK if is_deleted else END_TASK
        await infrastructure.dispatcher.put(Job(task=task, key=session.id, tenant=tenant))

    async def memory_store(tenant: str, store_id: str) -> MemoryStoreInfo:
        store = await memory_services.stores.active(tenant, store_id)
        return MemoryStoreInfo(name=store.name, description=store.description or "")

    sessions = Sessions(
        infrastructure.log,
        SessionDependencies(
            agents=resource_services.agents,
            environments=resource_services.environments,
            lookups=ResourceLookups(
                seal=infrastructure.seal,
                file_content=file_content(resource_services.files),
                check_file=resource_services.files.get,
                check_vault=secret_services.vaults.active,
                memory_store=memory_store,
            ),
            wake_session=wake,
            on_session_end=end_session,
            resolved_agent=SessionSkills(
                infrastructure.workspaces, resource_services.skills, infrastructure.client_tools
            ).actor,
            check_override=ApprovalPolicies(infrastructure.store.records).require_overriding,
            notify=webhook_services.outbox.notify,
        ),
    )
    tokens = WorkTokens(infrastructure.store.records, infrastructure.seal)
    event_sender = EventSender(
        sessions, AnswerPermission(infrastructure.store.records, clock=sessions.clock)
    )
    services = SessionServices(
        sessions=sessions,
        event_sender=event_sender,
        commands=SessionCommands(sessions, event_sender),
        pages=EventPages(infrastructure.log),
        threads=Threads(sessions),
        resources=SessionResources(sessions),
        outputs=SessionOutputs(infrastructure.store.records, resource_services.files),
        event_streams=EventStreams(infrastructure.log, infrastructure.deltas),
        work=WorkQueue(
            infrastructure.store.records,
            resource_services.environments,
            needs_worker=needs_worker(sessions),
            issue_token=tokens.secret,
        ),
        work_tokens=tokens,
        parking=Parking(infrastructure.log, infrastructure.dispatcher),
        approvals=Approvals(
            infrastructure.log,
            wake_session=wake,
            put=infrastructure.dispatcher.put,
            notification_writer=webhook_services.outbox,
            sessions=sessions,
        ),
    )
    return services


@dataclass(frozen=True, slots=True)
class _Actions:
    """What deployments start besides sessions."""

    dreams: Dreams
    evals: EvalServices
    workflow_runs: WorkflowRuns
    campaigns: Campaigns


def _build_schedules(
    infrastructure: Infrastructure,
    resource_services: ResourceServices,
    session_services: SessionServices,
    outbox: Outbox,
    actions: _Actions,
) -> ScheduleServices:
    evals, workflow_runs = actions.evals, actions.workflow_runs
    pin_agent = resource_services.agents.reference
    records = infrastructure.store.records
    store = DeploymentStore(
        records,
        outbox=outbox,
        seal=infrastructure.seal,
        put=infrastructure.dispatcher.put,
        clock=clock.now,
    )
    runs = run_repository(records)
    starter = ServiceSessionStarter(
        session_services.sessions,
        session_services.event_sender,
        actions.dreams.start_scheduled,
        evals.scheduled,
        workflow_runs,
        actions.campaigns,
    )

    async def check_action(tenant: str, action: Action) -> None:
        match action:
            case EvalAction():
                await evals.scheduled.check(tenant, action)
            case WorkflowAction():
                await workflow_runs.check(tenant, action.workflow, action.inputs)
            case DreamAction() | CampaignAction():
                pass
            case _:
                assert_never(action)

    triggers = Triggers(records, seal=infrastructure.seal, pin_agent=pin_agent)
    return ScheduleServices(
        deployments=Deployments(store, pin_agent=pin_agent, check_action=check_action),
        runs=runs,
        deployment_runner=DeploymentRunner(store, runs, session_starter=starter),
        triggers=triggers,
        trigger_intake=TriggerIntake(triggers, session_starter=starter),
    )


async def sync_schedule(service: Service) -> ScheduleStatus | None:
    """Update the deployment for the schedule in the folder's agent.yaml."""
    ports = service.infrastructure.agent_folder
    local = LocalSchedule(
        deployments=service.schedules.deployments,
        agents=service.resources.agents,
        environments=service.resources.environments,
        folder=await to_thread.run_sync(ports.folder.resolve),
        home=ports.home,
        read_project=ports.read_project,
        open_agent=ports.open_agent,
    )
    return await local.sync()
