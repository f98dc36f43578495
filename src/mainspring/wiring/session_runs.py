"""Runs of the service's sessions: what a worker does when one is woken."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping, Sequence
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, replace
from decimal import Decimal
from functools import partial
from pathlib import Path

import anyio
import msgspec
from anyio import to_thread

from mainspring.capabilities.network.placeholders import Credential
from mainspring.config import Settings
from mainspring.core.envelope import Event
from mainspring.core.errors import InvalidInput, StoreUnavailable
from mainspring.core.lru_cache import LruCache
from mainspring.core.sender import Sender
from mainspring.harness.authorizer import AllowAll
from mainspring.log.event_chain import Scrub
from mainspring.log.session_log import SessionLog
from mainspring.log.store import Store
from mainspring.log.task_groups import run_in_background
from mainspring.runtime.session.session import Runtime, Session
from mainspring.runtime.session.session_summary import workspace_of
from mainspring.runtime.session.toolbox import SetupRequest, Toolbox
from mainspring.service.access.budget_ledger import DailyBudgetLedger
from mainspring.service.access.kill_switch import Halts
from mainspring.service.jobs.worker import Postponed
from mainspring.service.resources.environments import CloudConfig
from mainspring.service.sessions.preview_deltas import Deltas, PreviewPublisher
from mainspring.service.sessions.resource_types import token_context
from mainspring.service.sessions.session_record import SessionRecord
from mainspring.service.storage.repository import SESSION_KIND, Seal
from mainspring.service.telemetry.log_context import log_context
from mainspring.service.telemetry.run_observers import RunObservers, RunSubject
from mainspring.service.vaults.session_credentials import (
    SecretVariable,
    SessionCredential,
    SessionCredentials,
)
from mainspring.wiring.agent_mapper import MappedSession, SessionSpec, map_session
from mainspring.wiring.model_registry import ModelRegistry
from mainspring.wiring.redaction import multi_word_secrets, scrubber
from mainspring.wiring.run_options import RunOptions
from mainspring.wiring.sandbox_pool import SandboxPool
from mainspring.wiring.session_skills import SessionSkills
from mainspring.wiring.toolbox_builder import ToolboxBuilder
from mainspring.wiring.user_vault import known_secrets
from mainspring.wiring.workspace_setup import OUTPUTS_NOTE, Mounts, create_fork_workspace

_MAX_CACHED_SESSIONS = 256
"""Sessions whose logs stay folded in memory between two runs."""
_HALT_CHECK_SECONDS = 2.0
_POSTPONED_SECONDS = 5.0
_CENT = Decimal("0.01")

_EXPIRED = (
    "Your workspace was removed because nobody used it for long. It is new now: what you have"
    " written there before is gone, except for files that you had put into outputs."
)

_WORKER = Sender(kind="system", id="worker")


@dataclass(frozen=True, slots=True, kw_only=True)
class _ActiveRun:
    tenant: str
    asked: SessionRecord
    options: RunOptions


@dataclass(frozen=True, slots=True, kw_only=True)
class RunServices:
    """What the service keeps and a run needs."""

    halts: Halts
    ledger: DailyBudgetLedger
    credentials: SessionCredentials
    seal: Seal
    mounts: Mounts
    skills: SessionSkills
    deltas: Deltas
    run_observers: RunObservers
    was_removed: Callable[[str, str], Awaitable[bool]]
    """Tenant and session: whether its workspace was removed because nobody used it."""
    before_idle: Callable[[str, SessionRecord], Awaitable[None]]
    """Tenant and session: what clients expect to find as soon as they see that it is idle."""
    after_run: Callable[[str, SessionRecord], Awaitable[None]]
    """Tenant and session: what others make of its log. Called while it is still held, so that
    what a worker that dies has left undone is done by the next."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RunRedaction:
    scrub: Scrub
    passages: tuple[str, ...]

    @classmethod
    def of(cls, secrets: Mapping[str, str]) -> RunRedaction:
        return cls(scrub=scrubber(secrets), passages=multi_word_secrets(secrets))


class SessionRuns:
    """`run` is what a worker calls; the rest of it is kept between runs to be quick."""

    def __init__(
        self,
        settings: Settings,
        store: Store,
        models: ModelRegistry,
        sandboxes: SandboxPool,
        run_services: RunServices,
        *,
        model: str | None = None,
    ) -> None:
        """`model`: the operator's word, whatever agents say."""
        self._settings = settings
        self._store = store
        self._models = models
        self._back = run_services
        self._model = model
        self._toolbox_builder = ToolboxBuilder(
            settings, models, sandboxes, self._options, AllowAll()
        )
        self._ongoing: dict[str, _ActiveRun] = {}
        self._sessions: LruCache[str, Session] = LruCache(_MAX_CACHED_SESSIONS)
        self._known = known_secrets(settings)
        self._scrub = RunRedaction.of(self._known)

    async def run(self, session_id: str) -> None:
        """
        Raises:
            LeaseHeld: another worker has it. Postponed: somebody has stopped it, for now.
            InvalidInput: it cannot be run here, and why.
        """
        record = await self._store.records.get(SESSION_KIND, session_id)
        with log_context(session_id=session_id, tenant=record.tenant):
            asked = msgspec.json.decode(record.body, type=SessionRecord)
            await self._run(record.tenant, asked)

    async def _run(self, tenant: str, asked: SessionRecord) -> None:
        session_id = asked.id
        await self._require_running(tenant, asked)
        usable = await self._back.credentials.usable(tenant, asked.vault_ids)
        scrubbing = self._scrubbing(usable)
        cast = await self._cast(tenant, asked, usable)
        session = self._session(tenant, asked, cast, scrubbing)
        previews = PreviewPublisher(
            self._back.deltas,
            await self._store.session(session_id),
            scrub=scrubbing.scrub,
            passages=scrubbing.passages,
        )
        self._ongoing[session_id] = _ActiveRun(tenant=tenant, asked=asked, options=cast.options)
        try:
            async with (
                self._back.run_observers.run(_subject(tenant, asked)) as observer,
                run_in_background(lambda: self._stop_when_halted(tenant, asked)),
            ):
                await session.run(previews.emit, tell=call_both(previews.tell, observer.tell))
        finally:
            self._ongoing.pop(session_id, None)  # another try at it may have ended first
        self._sessions.put(session_id, session)

    async def _require_running(self, tenant: str, asked: SessionRecord) -> None:
        if why := await self._back.halts.why_stopped(tenant, asked.agent.id):
            raise Postponed(why, seconds=_POSTPONED_SECONDS)

    async def _stop_when_halted(self, tenant: str, asked: SessionRecord) -> None:
        while True:
            await anyio.sleep(_HALT_CHECK_SECONDS)
            with suppress(StoreUnavailable):  # a database that restarts is no reason to stop
                await self._require_running(tenant, asked)

    async def _cast(
        self, tenant: str, asked: SessionRecord, session_credential: Sequence[SessionCredential]
    ) -> MappedSession:
        workspace = Path(self._settings.workspaces) / asked.id
        log = SessionLog(self._store)
        await create_fork_workspace(self._settings, log, asked.id, workspace, asked.resources)
        is_expired = await self._require_here(tenant, asked.id, workspace)
        notes = await self._back.mounts.prepare(
            workspace, asked.resources, tenant=tenant, tokens=self._tokens(asked)
        )
        budget = asked.budget
        return map_session(
            SessionSpec(
                agent=asked.agent,
                environment=asked.environment,
                workspace=workspace,
                max_cost_usd=None if budget is None else int(budget.max_list_cost.amount) * _CENT,
                credentials=tuple(_credentials(session_credential)),
                notes=(*notes, *_output_notes(asked), *([_EXPIRED] if is_expired else [])),
                model=self._model,
                skills=await self._back.skills.of(tenant, asked),
            )
        )

    async def _require_here(self, tenant: str, session_id: str, workspace: Path) -> bool:
        """Going on in an empty folder would look as if the work had been lost; unless it was
        removed on purpose: whether it was."""
        if await to_thread.run_sync(workspace.is_dir):
            return False
        before = await workspace_of(SessionLog(self._store), session_id)
        if before is None:
            return False
        if not await self._back.was_removed(tenant, session_id):
            raise InvalidInput(
                f"session {session_id} has worked in {before}, which is not on this machine; give"
                " all workers the same MAINSPRING_WORKSPACES on a disk that they share"
            )
        return True

    def _tokens(self, asked: SessionRecord) -> dict[str, str]:
        unseal = self._back.seal.unseal
        return {
            id_: unseal(each, token_context(id_)).decode() for id_, each in asked.sealed.items()
        }

    def _session(
        self, tenant: str, asked: SessionRecord, mapped: MappedSession, run_redaction: RunRedaction
    ) -> Session:
        """With what is known of its log, if this process has run it before."""
        runtime = Runtime(
            SessionLog(self._store, scrub=run_redaction.scrub),
            self._models,
            toolbox_factory=self._toolbox_factory,
            budget=self._back.ledger.budget(tenant, asked.created_by.key_id),
            sender=_WORKER,
        )
        return runtime.attach(mapped.agent, asked.id, self._sessions.pop(asked.id))

    def _scrubbing(self, session_credential: Sequence[SessionCredential]) -> RunRedaction:
        if not session_credential:
            return self._scrub
        named = {
            item.name if isinstance(item, SecretVariable) else item.credential_id: _secret_value(
                item
            )
            for item in session_credential
        }
        return RunRedaction.of({**self._known, **named})

    def _options(self, setup: SetupRequest) -> RunOptions:
        return self._ongoing[setup.writer.session_id].options

    @asynccontextmanager
    async def _toolbox_factory(self, setup: SetupRequest) -> AsyncGenerator[Toolbox, None]:
        ongoing = self._ongoing[setup.writer.session_id]
        before = partial(self._back.before_idle, ongoing.tenant, ongoing.asked)
        async with self._toolbox_builder(setup) as toolbox:
            yield replace(toolbox, before_idle=before)
        await self._back.after_run(ongoing.tenant, ongoing.asked)


def _output_notes(asked: SessionRecord) -> tuple[str, ...]:
    return (OUTPUTS_NOTE,) if isinstance(asked.environment, CloudConfig) else ()


def _subject(tenant: str, asked: SessionRecord) -> RunSubject:
    return RunSubject(
        session_id=asked.id,
        tenant=tenant,
        agent_id=asked.agent.id,
        agent_name=asked.agent.name,
    )


def call_both(
    first: Callable[[Event], None], second: Callable[[Event], None]
) -> Callable[[Event], None]:
    def tell(event: Event) -> None:
        first(event)
        second(event)

    return tell


def _secret_value(session_credential: SessionCredential) -> str:
    return (
        session_credential.value
        if isinstance(session_credential, SecretVariable)
        else session_credential.token
    )


def _credentials(session_credential: Sequence[SessionCredential]) -> list[Credential]:
    """What programs may use by a placeholder; tokens of MCP servers are not for them."""
    return [
        Credential(name=item.name, value=item.value, hosts=item.hosts or ("*",))
        for item in session_credential
        if isinstance(item, SecretVariable) and item.in_headers
    ]
