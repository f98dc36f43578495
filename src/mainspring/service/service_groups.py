"""The services of one server, grouped by subject."""

from __future__ import annotations

from dataclasses import dataclass

from mainspring.service.access.api_keys import Keys
from mainspring.service.access.audit import Audit
from mainspring.service.access.browser_sessions import BrowserSessions
from mainspring.service.access.budget_ledger import DailyBudgetLedger
from mainspring.service.access.idempotency import IdempotentRequests
from mainspring.service.access.kill_switch import Halts
from mainspring.service.access.tenants import Tenants
from mainspring.service.approvals.approvals import Approvals
from mainspring.service.evals.alarms import Alarms
from mainspring.service.evals.eval_runs import EvalRuns
from mainspring.service.evals.production_watch import ProductionWatch
from mainspring.service.evals.scheduled_evals import ScheduledEvals
from mainspring.service.jobs.parking import Parking
from mainspring.service.memory_stores.memories import Memories
from mainspring.service.memory_stores.memory_search import MemorySearch
from mainspring.service.memory_stores.memory_stores import MemoryStores
from mainspring.service.memory_stores.memory_versions import MemoryVersions
from mainspring.service.resources.agents import Agents
from mainspring.service.resources.environments import Environments
from mainspring.service.resources.file_resources import Files
from mainspring.service.resources.skill_resources import Skills
from mainspring.service.schedules.deployment_runner import DeploymentRunner, RunRepository
from mainspring.service.schedules.deployments import Deployments
from mainspring.service.schedules.trigger_intake import TriggerIntake
from mainspring.service.schedules.triggers import Triggers
from mainspring.service.self_hosted.work_queue import WorkQueue
from mainspring.service.self_hosted.work_tokens import WorkTokens
from mainspring.service.sessions.event_sender import EventSender
from mainspring.service.sessions.events.event_pages import EventPages
from mainspring.service.sessions.events.event_streams import EventStreams
from mainspring.service.sessions.session_commands import SessionCommands
from mainspring.service.sessions.session_resources import SessionResources
from mainspring.service.sessions.session_threads import Threads
from mainspring.service.sessions.sessions import Sessions
from mainspring.service.sessions.workspaces.output_files import SessionOutputs
from mainspring.service.vaults.credential_validation import CredentialValidator
from mainspring.service.vaults.credentials import Credentials
from mainspring.service.vaults.mcp_logins import McpLogins
from mainspring.service.vaults.session_credentials import SessionCredentials
from mainspring.service.vaults.vaults import Vaults
from mainspring.service.views.change_feed import ChangeFeed
from mainspring.service.views.listed_sessions import ListedSessions
from mainspring.service.views.log_windows import LogWindows
from mainspring.service.views.session_files import FilesOfSessions
from mainspring.service.webhooks.webhook_deliveries import Deliveries
from mainspring.service.webhooks.webhook_endpoints import Webhooks
from mainspring.service.webhooks.webhook_outbox import Outbox, SessionEventForwarder
from mainspring.service.workflows.stored_workflows import Workflows
from mainspring.service.workflows.workflow_runs import WorkflowRuns


@dataclass(frozen=True, slots=True, kw_only=True)
class ResourceServices:
    """Resources that people define."""

    agents: Agents
    environments: Environments
    skills: Skills
    files: Files


@dataclass(frozen=True, slots=True, kw_only=True)
class SecretServices:
    vaults: Vaults
    credentials: Credentials
    credential_validator: CredentialValidator
    mcp_logins: McpLogins
    usable: SessionCredentials


@dataclass(frozen=True, slots=True, kw_only=True)
class MemoryServices:
    stores: MemoryStores
    memories: Memories
    versions: MemoryVersions
    search: MemorySearch


@dataclass(frozen=True, slots=True, kw_only=True)
class WebhookServices:
    webhooks: Webhooks
    outbox: Outbox
    deliveries: Deliveries
    news: SessionEventForwarder


@dataclass(frozen=True, slots=True, kw_only=True)
class SessionServices:
    """Sessions and their events."""

    sessions: Sessions
    event_sender: EventSender
    pages: EventPages
    threads: Threads
    resources: SessionResources
    outputs: SessionOutputs
    event_streams: EventStreams
    work: WorkQueue
    """Work for clients that run tools themselves."""
    work_tokens: WorkTokens
    parking: Parking
    approvals: Approvals
    commands: SessionCommands


@dataclass(frozen=True, slots=True, kw_only=True)
class ViewServices:
    """What people see of sessions."""

    listed: ListedSessions
    windows: LogWindows
    feed: ChangeFeed
    files: FilesOfSessions


@dataclass(frozen=True, slots=True, kw_only=True)
class ScheduleServices:
    """What starts sessions automatically."""

    deployments: Deployments
    runs: RunRepository
    deployment_runner: DeploymentRunner
    triggers: Triggers
    trigger_intake: TriggerIntake


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkflowServices:
    workflows: Workflows
    runs: WorkflowRuns


@dataclass(frozen=True, slots=True, kw_only=True)
class AccessServices:
    """Authentication, limits, and the audit."""

    keys: Keys
    browser_sessions: BrowserSessions
    tenants: Tenants
    halts: Halts
    ledger: DailyBudgetLedger
    audit: Audit
    repeated: IdempotentRequests


@dataclass(frozen=True, slots=True, kw_only=True)
class EvalServices:
    """Evaluation of agents: scheduled suites, graded production sessions, and alarms."""

    alarms: Alarms
    scheduled: ScheduledEvals
    watch: ProductionWatch
    runs: EvalRuns
