"""Dreams: create, list, cancel, archive; and the job that runs one."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractAsyncContextManager, suppress
from dataclasses import dataclass
from datetime import datetime
from decimal import Decimal
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Protocol

from anyio import to_thread
from msgspec.structs import replace

from mainspring.core import clock as clocks
from mainspring.core import ids
from mainspring.core.clock import Clock
from mainspring.core.errors import (
    AlreadyExists,
    InvalidInput,
    LeaseHeld,
    MainspringError,
    NotFound,
    StaleVersion,
)
from mainspring.core.events import DreamCreated, DreamScore, ModelRequestEnded, Usage
from mainspring.core.lazy_module import LazyModule
from mainspring.core.sender import Sender
from mainspring.harness.state.thread_tree import add_usage
from mainspring.improve.dreams.dream_log import Dream, create_dream, dream_session
from mainspring.improve.dreams.dreamer import Dreamer
from mainspring.improve.dreams.session_choice import is_due, sessions_read
from mainspring.log.records import Records
from mainspring.log.session_log import SessionLog
from mainspring.runtime.run_options import RunOptions
from mainspring.runtime.session_context import Models
from mainspring.service.access.principal import Principal
from mainspring.service.dreams.api_dream_store import ApiDreamStore
from mainspring.service.dreams.dream_types import (
    ENDED,
    MAX_SESSIONS,
    ROLLED_BACK,
    CreateDream,
    DreamError,
    DreamModel,
    DreamObject,
    DreamOutput,
    DreamState,
    SessionsInput,
    StoreInput,
    UpdateExisting,
)
from mainspring.service.jobs.dispatcher import Job, PutJob
from mainspring.service.memory_stores.memories import Memories
from mainspring.service.memory_stores.memory_stores import CreateMemoryStore, MemoryStores
from mainspring.service.sessions.session_listing import ListSessions
from mainspring.service.sessions.sessions import Sessions
from mainspring.service.storage.repository import (
    IndexColumns,
    ListQuery,
    Repository,
    all_pages,
)

if TYPE_CHECKING:
    from mainspring.improve.evals.runs.runner import SuiteRunner
    from mainspring.service.dreams import suite_score
else:
    suite_score = LazyModule("mainspring.service.dreams.suite_score")  # most have no suite

TASK = "dream"
_BATCH = 100  # dreams read at once


class ScheduledDream(Protocol):
    """The settings of a deployment for its dreams."""

    @property
    def memory_store_id(self) -> str: ...

    @property
    def model(self) -> str: ...

    @property
    def instructions(self) -> str | None: ...

    @property
    def suite(self) -> str | None: ...


class _Canceled(MainspringError):
    """The dream was canceled: it stops before it writes."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SuiteSource:
    """The folder whose suites test dreams."""

    folder: Path
    tenant: str
    """The only one whose dreams they test: they run with the operator's keys."""
    open_runner: Callable[[RunOptions, bool], AbstractAsyncContextManager[SuiteRunner]]


@dataclass(frozen=True, slots=True, kw_only=True)
class DreamDependencies:
    log: SessionLog
    models: Models
    stores: MemoryStores
    memories: Memories
    sessions: Sessions
    put: PutJob
    suites: SuiteSource
    clock: Clock = clocks.now


class Dreams:
    def __init__(self, records: Records, needs: DreamDependencies) -> None:
        self._repository = Repository(
            records, "dream", DreamObject, columns=_index_columns, clock=needs.clock
        )
        self.get = self._repository.get
        self.page = self._repository.page
        self._needs = needs

    async def create(
        self, principal: Principal, request: CreateDream, *, dream_id: str | None = None
    ) -> DreamObject:
        """`dream_id`: chosen by a caller that must not create it twice.

        Raises: NotFound; InvalidInput; StaleVersion: another dream writes the same store;
        AlreadyExists.
        """
        needs, tenant = self._needs, principal.tenant
        store, sessions = request.checked_inputs()
        await needs.stores.active(tenant, store.memory_store_id)
        for session_id in sessions.session_ids:
            await needs.sessions.get(principal, session_id)
        model = DreamModel(id=request.model) if isinstance(request.model, str) else request.model
        needs.models.facts(needs.models.resolve(model.id))
        if request.suite is not None:
            await self._check_suite(tenant, request.suite)
        if isinstance(request.output_behavior, UpdateExisting):
            await self._require_single_writer(tenant, store.memory_store_id)
        dream = DreamObject(
            id=dream_id or ids.new_id("drm"),
            created_at=needs.clock(),
            inputs=(store, sessions),
            model=replace(model, speed="standard"),
            output_behavior=request.output_behavior,
            instructions=request.instructions,
            suite=request.suite,
            suite_budget=request.suite_budget,
        )
        await self._repository.put(tenant, dream)
        await needs.put(Job(task=TASK, key=dream.id, tenant=tenant))
        return dream

    async def start_scheduled(
        self, principal: Principal, agent_id: str, action: ScheduledDream, key: str
    ) -> str:
        """Start a dream over an agent's newest sessions, one for each key; returns its session.

        Raises: InvalidInput: it is not due, or cannot be made; NotFound; StaleVersion.
        """
        dream_id = ids.stable_id("drm", principal.tenant, key)
        if await self._repository.find(principal.tenant, dream_id) is not None:
            return dream_session(dream_id)
        log, store = self._needs.log, f"{principal.tenant}:{action.memory_store_id}"
        processed, last = await sessions_read(log, store)
        listing = ListSessions(agent_id=agent_id, limit=MAX_SESSIONS)
        sessions = (await self._needs.sessions.page(principal, listing)).data
        new = [item.id for item in sessions if item.id not in processed]
        if not is_due(last, len(new), self._needs.clock()):
            raise InvalidInput(f"a dream is not due: {len(new)} new sessions since the last one")
        request = CreateDream(
            inputs=(
                StoreInput(memory_store_id=action.memory_store_id),
                SessionsInput(session_ids=tuple(new)),
            ),
            model=action.model,
            instructions=action.instructions,
            output_behavior=UpdateExisting(memory_store_id=action.memory_store_id),
            suite=action.suite,
        )
        await self.create(principal, request, dream_id=dream_id)
        return dream_session(dream_id)

    async def cancel(self, tenant: str, dream_id: str) -> DreamObject:
        """Raises: NotFound; InvalidInput: it has ended."""

        def change(dream: DreamObject) -> DreamObject:
            if dream.status in ("completed", "failed"):
                raise InvalidInput(f"dream {dream_id} is {dream.status}: it cannot be canceled")
            return self._ended(dream, "canceled")

        return await self._repository.update(tenant, dream_id, change)

    async def archive(self, tenant: str, dream_id: str) -> DreamObject:
        """Raises: NotFound; InvalidInput: it has not ended."""

        def change(dream: DreamObject) -> DreamObject:
            if dream.status not in ENDED:
                raise InvalidInput(f"dream {dream_id} is {dream.status}: cancel it first")
            return replace(dream, archived_at=dream.archived_at or self._needs.clock())

        return await self._repository.update(tenant, dream_id, change)

    async def run(self, job: Job, *, model: str | None = None) -> None:
        """Handle a job: run a dream, or continue one whose worker died. `model`: the operator's,
        for suites."""
        tenant = job.tenant
        try:
            dream = await self._repository.get(tenant, job.key)
        except NotFound:
            return
        if dream.status in ENDED:
            return
        try:
            dream = await self._start(tenant, dream)
            ended = await self._dream(tenant, dream, model)
            if ended.rolled_back is not None:
                await self._discard(tenant, dream, ended)
            else:
                await self._end(tenant, dream.id, "completed", score=_score(ended))
        except _Canceled:
            return
        except LeaseHeld:
            raise  # another worker runs it: the job is retried
        except MainspringError as error:
            failed = DreamError(type=type(error).__name__, message=str(error))
            await self._end(tenant, dream.id, "failed", failed)

    async def _start(self, tenant: str, dream: DreamObject) -> DreamObject:
        needs = self._needs
        target = dream.store_id
        if not isinstance(dream.output_behavior, UpdateExisting):
            target = ids.stable_id("memstore", dream.id)
            source = await needs.stores.get(tenant, dream.store_id)
            request = CreateMemoryStore(name=source.name, description=source.description)
            with suppress(AlreadyExists):
                await needs.stores.create(tenant, request, store_id=target)
        outputs = (DreamOutput(memory_store_id=target),)
        session_id = dream_session(dream.id)

        def change(current: DreamObject) -> DreamObject:
            if current.status in ENDED:
                return current
            return replace(current, status="running", outputs=outputs, session_id=session_id)

        started = await self._repository.update(tenant, dream.id, change)
        await self._require_not_canceled(tenant, dream.id)
        return started

    async def _dream(self, tenant: str, dream: DreamObject, model: str | None) -> Dream:
        needs = self._needs
        created = DreamCreated(
            dream_id=dream.id,
            store_id=dream.store_id,
            session_ids=dream.session_ids,
            policy="apply",
            model=dream.model.id,
            instructions=dream.instructions,
        )
        sender = Sender(kind="system", id="dreams")
        await create_dream(needs.log, created, store=f"{tenant}:{dream.store_id}", sender=sender)
        store = ApiDreamStore(
            memories=needs.memories,
            tenant=tenant,
            source=dream.store_id,
            target=dream.outputs[0].memory_store_id,
            session_id=dream_session(dream.id),
            clock=needs.clock,
            check=lambda: self._require_not_canceled(tenant, dream.id),
        )
        score = None
        if dream.suite is not None:
            await self._check_suite(tenant, dream.suite)
            cents = dream.suite_budget and dream.suite_budget.max_list_cost.amount
            score = suite_score.SuiteScore(
                store=store,
                folder=needs.suites.folder,
                suite=dream.suite,
                budget_usd=Decimal(cents) / 100 if cents else None,
                model=model,
                open_runner=needs.suites.open_runner,
            )
        dreamer = Dreamer(
            log=needs.log, store=store, clock=needs.clock, models=needs.models, score=score
        )
        return await dreamer.run(dream.id)

    async def _check_suite(self, tenant: str, suite: str) -> None:
        """Raises: InvalidInput."""
        suites = self._needs.suites
        if tenant != suites.tenant:
            raise InvalidInput(f"suite: suites belong to the tenant {suites.tenant}")
        await to_thread.run_sync(suite_score.find_suite, suites.folder, suite)

    async def _discard(self, tenant: str, dream: DreamObject, ended: Dream) -> None:
        """The suite did worse with its changes: nothing was written. A new store is deleted."""
        for output in dream.outputs:
            if output.memory_store_id != dream.store_id:
                with suppress(NotFound):
                    await self._needs.stores.delete(tenant, output.memory_store_id)
        reason = ended.rolled_back.reason if ended.rolled_back else ""
        error = DreamError(type=ROLLED_BACK, message=reason)
        await self._end(tenant, dream.id, "failed", error, score=_score(ended))

    async def _require_not_canceled(self, tenant: str, dream_id: str) -> None:
        if (await self._repository.get(tenant, dream_id)).status == "canceled":
            raise _Canceled(f"dream {dream_id} was canceled")

    async def _require_single_writer(self, tenant: str, store_id: str) -> None:
        unfinished = ListQuery(limit=_BATCH, label=("pending", "running"))
        for dream in await all_pages(partial(self._repository.page, tenant), unfinished):
            is_writer = isinstance(dream.output_behavior, UpdateExisting)
            if is_writer and dream.store_id == store_id:
                raise StaleVersion(f"dream {dream.id} is writing memory store {store_id}")

    async def _end(
        self,
        tenant: str,
        dream_id: str,
        status: DreamState,
        error: DreamError | None = None,
        *,
        score: DreamScore | None = None,
    ) -> None:
        usage = await self._usage(dream_id)

        def change(dream: DreamObject) -> DreamObject:
            ended = dream if dream.status in ENDED else self._ended(dream, status, error)
            outputs = () if error is not None and error.type == ROLLED_BACK else ended.outputs
            return replace(ended, usage=usage, score=score, outputs=outputs)

        await self._repository.update(tenant, dream_id, change)

    async def _usage(self, dream_id: str) -> Usage:
        total = Usage()
        with suppress(MainspringError):
            for event in await self._needs.log.read(dream_session(dream_id)):
                if isinstance(event.payload, ModelRequestEnded):
                    total = add_usage(total, event.payload.model_usage)
        return total

    def _ended(
        self, dream: DreamObject, status: DreamState, error: DreamError | None = None
    ) -> DreamObject:
        if dream.status in ENDED:
            return dream
        now: datetime = self._needs.clock()
        return replace(dream, status=status, ended_at=now, error=error)


def _score(dream: Dream) -> DreamScore | None:
    return None if dream.proposed is None else dream.proposed.score


def _index_columns(dream: DreamObject) -> IndexColumns:
    return IndexColumns(
        label=dream.status, is_archived=dream.archived_at is not None, created=dream.created_at
    )
