"""Run the service's sessions: what a worker does when a session is woken."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping, Sequence
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, replace
from decimal import Decimal
from functools import partial
from pathlib import Path
from typing import Protocol

import anyio
from anyio import to_thread

from mainspring.core.envelope import Event
from mainspring.core.errors import InvalidInput, NotFound, StoreUnavailable
from mainspring.core.model import Delta
from mainspring.core.ports import Credential, Seal
from mainspring.core.sender import Sender
from mainspring.core.tool import Tool
from mainspring.harness.budget import Budget
from mainspring.harness.toolbox import Toolbox
from mainspring.log.event_chain import Scrub
from mainspring.log.lru_cache import LruCache
from mainspring.log.records import SESSION_KIND
from mainspring.log.session_log import SessionLog
from mainspring.log.store import SessionRow, Store
from mainspring.log.task_groups import run_in_background
from mainspring.runtime.agent import Agent
from mainspring.runtime.session.session import Runtime, Session
from mainspring.runtime.session.session_summary import workspace_of
from mainspring.runtime.session_context import Models, SetupRequest, ToolboxFactory
from mainspring.runtime.settings.pinned_policy import has_end_hooks
from mainspring.runtime.workflows.run_budget import LimitLedger, requests_usd
from mainspring.service.access.budget_ledger import DailyBudgetLedger
from mainspring.service.access.kill_switch import Halts
from mainspring.service.jobs.dispatcher import Job
from mainspring.service.jobs.worker import Postponed
from mainspring.service.memory_stores.mounted_stores import MountedStores
from mainspring.service.resources.environments import CloudConfig
from mainspring.service.sessions.agent_mapper import MappedSession, SessionSpec, map_session
from mainspring.service.sessions.events.preview_deltas import Deltas, PreviewPublisher
from mainspring.service.sessions.resource_types import SessionResource, StoreResource, token_context
from mainspring.service.sessions.session_agent import workflow_delegation
from mainspring.service.sessions.session_record import SessionRecord
from mainspring.service.sessions.workspaces.session_mounts import (
    ForkSource,
    ForkWorkspaces,
    Mounts,
    mounted_stores,
)
from mainspring.service.sessions.workspaces.session_skills import SessionSkills
from mainspring.service.sessions.workspaces.workspace_expiry import WorkspaceExpiry
from mainspring.service.storage.repository import Repository
from mainspring.service.telemetry.logging_setup import log_context
from mainspring.service.telemetry.run_observers import RunObservers, RunSubject
from mainspring.service.vaults.session_credentials import (
    SecretVariable,
    SessionCredential,
    SessionCredentials,
)

_MAX_CACHED_SESSIONS = 256
"""Sessions whose folded logs stay in memory between runs."""
_HALT_CHECK_SECONDS = 2.0  # until a halt stops a run that makes no turn
_POSTPONED_SECONDS = 5.0  # before a session that another worker runs is tried again
_CENT = Decimal("0.01")  # the precision of amounts in messages

_EXPIRED = (
    "Your workspace was removed because it was unused for a long time, and a new one was created:"
    " your earlier files are gone, except those in outputs."
)

OUTPUTS_NOTE = (
    "Put files for the user into the folder outputs of your workspace, which is also called"
    " /mnt/session/outputs: the user can download them when you are done."
)
_WORKER = Sender(kind="system", id="worker")


class RunsWorkflows(Protocol):
    async def run(
        self,
        tenant: str,
        record: SessionRecord,
        runtime: Runtime,
        agent: Agent,
        *,
        on_event: Callable[[Event], None],
    ) -> None:
        """Run the workflow of a session, until it ends or waits. `runtime` and `agent`: those of
        the session, from which its nodes get theirs."""
        ...

    async def fork_source(self, tenant: str, run_id: str) -> ForkSource | None:
        """The files that a forked run begins with."""
        ...


class StartsWorkflows(Protocol):
    async def reserved_usd(self, tenant: str, session_id: str) -> Decimal:
        """What the runs of a session have cost, and may still cost."""
        ...

    def tools(
        self, tenant: str, record: SessionRecord, log: SessionLog, spending: LimitLedger | None
    ) -> Sequence[Tool]:
        """The tools with which the agent of a session starts and stops runs of workflows."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class RunServices:
    """The parts of the service that a run needs."""

    sessions: Repository[SessionRecord]
    workspaces: Path
    """The folder with the workspaces of all sessions."""
    halts: Halts
    ledger: DailyBudgetLedger
    credentials: SessionCredentials
    seal: Seal
    skills: SessionSkills
    deltas: Deltas
    run_observers: RunObservers
    known_secrets: Mapping[str, str]
    """Secrets of this process, by name."""
    redact: Callable[[Mapping[str, str]], RunRedaction]
    forks: ForkWorkspaces
    mounts: Mounts
    memory_stores: MountedStores
    expiry: WorkspaceExpiry
    workflow_runner: RunsWorkflows
    agent_workflows: StartsWorkflows
    before_idle: Callable[[str, SessionRecord], Awaitable[None]]
    """Called with tenant and session; stores what clients expect when they see the session idle."""
    reschedule: Callable[[str, str, int], Awaitable[None]]
    """Called with tenant, session id and the number of earlier times, if no model answers: wakes
    the session again later."""
    after_run: Callable[[str, SessionRecord], Awaitable[None]]
    """Called with tenant and session; informs other parts of the service. The session is still
    held, so that if this worker dies, the next one repeats it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RunRedaction:
    scrub: Scrub
    passages: tuple[str, ...]
    """Secrets of several words; streamed text is checked for each of them as a whole."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _PreparedRun:
    agent: Agent
    runtime: Runtime
    redaction: RunRedaction


class SessionRuns:
    """Runs sessions for a worker, which calls `run`. Sessions are cached between runs for speed."""

    def __init__(
        self,
        store: Store,
        models: Models,
        toolbox_factory: ToolboxFactory,
        run_services: RunServices,
        *,
        model: str | None = None,
    ) -> None:
        """`model`: set by the operator; overrides the models of agents."""
        self._store = store
        self._models = models
        self._services = run_services
        self._model = model
        self._toolbox_factory = toolbox_factory
        self._sessions: LruCache[str, Session] = LruCache(_MAX_CACHED_SESSIONS)
        self._redaction = run_services.redact(run_services.known_secrets)

    async def run(self, session_id: str) -> None:
        """
        Raises:
            LeaseHeld: another worker runs it. Postponed: the kill switch has stopped it for now.
            InvalidInput: it cannot run here; the message has the reason.
        """
        row = await self._store.records.get(SESSION_KIND, session_id)
        with log_context(session_id=session_id, tenant=row.tenant):
            record = self._services.sessions.read(row)
            if record.workflow_run_id is not None:
                return await self._run_workflow(row.tenant, record.workflow_run_id)
            log_row = await self._store.session(session_id)
            session, redaction = await self._open(row.tenant, record, log_row)
            previews = PreviewPublisher(
                self._services.deltas,
                log_row,
                scrub=redaction.scrub,
                passages=redaction.passages,
            )
            subject = RunSubject(
                session_id=session_id,
                tenant=row.tenant,
                agent_id=record.agent.id,
                agent_name=record.agent.name,
            )
            async with (
                self._services.run_observers.run(subject) as observer,
                run_in_background(lambda: self._stop_when_halted(row.tenant, record)),
            ):

                def emit(delta: Delta) -> None:
                    previews.emit(delta)
                    observer.emit(delta)

                def on_event(event: Event) -> None:
                    previews.on_event(event)
                    observer.on_event(event)

                await session.run(emit, tell=on_event)
            self._sessions.put(session_id, session)

    async def _run_workflow(self, tenant: str, run_id: str) -> None:
        """Run a workflow. Its nodes are sessions that work in its workspace; if one of them is
        woken, because it was answered, the run continues."""
        record = await self._services.sessions.get(tenant, run_id)
        log_row = await self._store.session(run_id)
        prepared = await self._prepare(tenant, record, log_row)
        redaction = prepared.redaction
        previews = PreviewPublisher(
            self._services.deltas, log_row, scrub=redaction.scrub, passages=redaction.passages
        )
        stores = mounted_stores(_mounted_resources(record))
        place = (tenant, run_id, self._services.workspaces / record.workspace_name, stores)
        runtime = prepared.runtime
        runtime.toolbox_factory = partial(self._open_node_toolbox, tenant)
        async with run_in_background(lambda: self._stop_when_halted(tenant, record)):
            if stores:
                await self._services.memory_stores.put(*place)
            await self._services.workflow_runner.run(
                tenant, record, runtime, prepared.agent, on_event=previews.on_event
            )
            if stores:
                await self._services.memory_stores.save(*place)
        await self._services.before_idle(tenant, record)
        await self._services.after_run(tenant, record)

    async def end(self, job: Job) -> None:
        """Run the `SessionEnd` hooks of the archived session whose id is the job's key, once.

        Raises:
            LeaseHeld, Postponed, InvalidInput: see `run`; the job is tried again.
        """
        try:
            row = await self._store.records.get(SESSION_KIND, job.key)
        except NotFound:
            return
        with log_context(session_id=job.key, tenant=row.tenant):
            log = SessionLog(self._store)
            if await has_end_hooks(await log.own(job.key), log):
                record = self._services.sessions.read(row)
                if record.workflow_run_id is not None:
                    return
                log_row = await self._store.session(job.key)
                session, _ = await self._open(row.tenant, record, log_row)
                await session.end(is_begun=True)

    async def _open(
        self, tenant: str, record: SessionRecord, log_row: SessionRow
    ) -> tuple[Session, RunRedaction]:
        """The session; if this process has run it before, with its folded log."""
        prepared = await self._prepare(tenant, record, log_row)
        earlier = self._sessions.pop(record.id)
        session = prepared.runtime.attach(prepared.agent, record.id, earlier)
        return session, prepared.redaction

    async def _prepare(
        self, tenant: str, record: SessionRecord, log_row: SessionRow
    ) -> _PreparedRun:
        await self._require_running(tenant, record)
        usable = await self._services.credentials.usable(tenant, record.vault_ids)
        redaction = self._redaction_for(usable) if usable else self._redaction
        workspace = self._services.workspaces / record.workspace_name
        if log_row.parent_id is not None:
            source = None
            if record.workflow_run_id is not None:
                source = await self._services.workflow_runner.fork_source(tenant, record.id)
            await self._services.forks.create(log_row, record.resources, workspace, source)
        mapped = await self._map(tenant, record, log_row, usable)
        log = SessionLog(self._store, scrub=redaction.scrub)
        budget = self._services.ledger.budget(tenant, record.created_by.key_id)
        spending = await self._spending(tenant, record, log, budget)
        runtime = Runtime(
            log,
            self._models,
            toolbox_factory=partial(self._open_toolbox, tenant, record, spending),
            options=mapped.options,
            budget=budget if spending is None else replace(budget, ledger=spending),
            sender=_WORKER,
        )
        return _PreparedRun(agent=mapped.agent, runtime=runtime, redaction=redaction)

    async def _spending(
        self, tenant: str, record: SessionRecord, log: SessionLog, budget: Budget
    ) -> LimitLedger | None:
        """The budget of a session that shares it with the runs that its agent starts."""
        if record.budget is None or workflow_delegation(record.agent) is None:
            return None
        total = int(record.budget.max_list_cost.amount) * _CENT
        reserved = await self._services.agent_workflows.reserved_usd(tenant, record.id)
        return LimitLedger(
            limit_usd=total - reserved,
            spent_usd=await requests_usd(log, record.id),
            payers=budget.ledger,
            owner="session",
        )

    async def _require_running(self, tenant: str, record: SessionRecord) -> None:
        if why := await self._services.halts.why_stopped(tenant, record.agent.id):
            raise Postponed(why, seconds=_POSTPONED_SECONDS)

    async def _stop_when_halted(self, tenant: str, record: SessionRecord) -> None:
        while True:
            await anyio.sleep(_HALT_CHECK_SECONDS)
            with suppress(StoreUnavailable):  # a restarting database is no reason to stop
                await self._require_running(tenant, record)

    async def _map(
        self,
        tenant: str,
        record: SessionRecord,
        log_row: SessionRow,
        credentials: Sequence[SessionCredential],
    ) -> MappedSession:
        workspace = self._services.workspaces / record.workspace_name
        is_expired = await self._require_here(tenant, log_row, workspace)
        unseal = self._services.seal.unseal
        tokens = {
            id_: unseal(token, token_context(id_)).decode() for id_, token in record.sealed.items()
        }
        notes = await self._services.mounts.mount(
            workspace, _mounted_resources(record), tenant=tenant, tokens=tokens
        )
        if isinstance(record.environment, CloudConfig):
            notes = (*notes, OUTPUTS_NOTE)
        if is_expired:
            notes = (*notes, _EXPIRED)
        budget = record.budget
        return map_session(
            SessionSpec(
                agent=record.agent,
                environment=record.environment,
                workspace=workspace,
                client_tools=self._services.skills.client_tools,
                max_cost_usd=None if budget is None else int(budget.max_list_cost.amount) * _CENT,
                credentials=tuple(  # for programs, by placeholder; not tokens of MCP servers
                    Credential(name=item.name, value=item.value, hosts=item.hosts or ("*",))
                    for item in credentials
                    if isinstance(item, SecretVariable) and item.in_headers
                ),
                server_token=partial(self._services.credentials.token, tenant, record.vault_ids),
                notes=notes,
                model=self._model,
                skills=await self._services.skills.of(tenant, record),
            )
        )

    async def _require_here(self, tenant: str, log_row: SessionRow, workspace: Path) -> bool:
        """Refuse to run if the workspace is not on this machine, rather than start in an empty one;
        True if it was removed on purpose."""
        if await to_thread.run_sync(workspace.is_dir):
            return False
        session_id, log = log_row.id, SessionLog(self._store)
        log.note_row(log_row)
        before = await workspace_of(log, session_id)
        if before is None:
            return False
        if not await self._services.expiry.was_removed(tenant, session_id):
            raise InvalidInput(
                f"session {session_id} worked in {before}, which is not on this machine; give"
                " all workers the same MAINSPRING_WORKSPACES on a disk that they share"
            )
        return True

    def _redaction_for(self, credentials: Sequence[SessionCredential]) -> RunRedaction:
        secrets = dict(self._services.known_secrets)
        for item in credentials:
            if isinstance(item, SecretVariable):
                secrets[item.name] = item.value
            else:
                secrets[item.credential_id] = item.token
        return self._services.redact(secrets)

    @asynccontextmanager
    async def _open_toolbox(
        self,
        tenant: str,
        record: SessionRecord,
        spending: LimitLedger | None,
        setup: SetupRequest,
    ) -> AsyncGenerator[Toolbox, None]:
        stores = mounted_stores(_mounted_resources(record))
        place = (tenant, record.id, self._services.workspaces / record.workspace_name, stores)
        if stores:
            await self._services.memory_stores.put(*place)

        async def before_idle() -> None:
            if stores:
                await self._services.memory_stores.save(*place)
            await self._services.before_idle(tenant, record)

        async with self._toolbox_factory(setup) as toolbox:
            reschedule = partial(self._services.reschedule, tenant, record.id)
            tools = toolbox.tools
            if setup.subagent is None and isinstance(record.environment, CloudConfig):
                starts = self._services.agent_workflows
                tools = [*tools, *starts.tools(tenant, record, setup.log, spending)]
            yield replace(toolbox, tools=tools, before_idle=before_idle, reschedule=reschedule)
        await self._services.after_run(tenant, record)

    @asynccontextmanager
    async def _open_node_toolbox(
        self, tenant: str, setup: SetupRequest
    ) -> AsyncGenerator[Toolbox, None]:
        """The toolbox of a session of a workflow's node."""
        record = await self._services.sessions.get(tenant, setup.writer.session_id)

        async def before_idle() -> None:
            await self._services.before_idle(tenant, record)

        async with self._toolbox_factory(setup) as toolbox:
            yield replace(toolbox, before_idle=before_idle)
        await self._services.after_run(tenant, record)


def _mounted_resources(record: SessionRecord) -> list[SessionResource]:
    """The resources to mount; a client's own worker gets memory stores over the API instead."""
    is_here = isinstance(record.environment, CloudConfig)
    return [item for item in record.resources if is_here or not isinstance(item, StoreResource)]
