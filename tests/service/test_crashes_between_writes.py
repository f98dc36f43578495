"""What a process leaves that dies between two writes, and what a bad record does to others."""

from collections.abc import AsyncGenerator, Callable, Generator, Sequence
from contextlib import asynccontextmanager, contextmanager
from dataclasses import replace
from datetime import datetime
from pathlib import Path
from typing import cast

import anyio
import pytest
from tests.service.dispatcher_setup import Doing, job
from tests.service.dispatcher_setup import at_work as dispatching
from tests.service.schedule_setup import TENANT, Crash, works
from tests.service.worker_setup import at_work, shop

from mainspring.config import read_settings
from mainspring.core import clock
from mainspring.core.content import TextBlock
from mainspring.core.errors import InvalidInput, NotFound, StoreCorrupt, StoreUnavailable
from mainspring.core.sender import Origin, Sender
from mainspring.log.records import SESSION_KIND, Put, RecordChange, RecordQuery, RecordRow, Records
from mainspring.log.session_log import SessionLog
from mainspring.log.sqlite import open_sqlite
from mainspring.log.store import SessionRow
from mainspring.service.access.principal import Principal
from mainspring.service.approvals.approval_record import Approval, MayAnswer
from mainspring.service.jobs.dispatcher import (
    Backlog,
    Dispatcher,
    FailureHandler,
    Job,
    JobHandler,
)
from mainspring.service.jobs.embedded_dispatcher import EmbeddedDispatcher
from mainspring.service.jobs.parking import KIND as PARKED
from mainspring.service.resources.agents import CreateAgent
from mainspring.service.resources.environments import CreateEnvironment
from mainspring.service.service import Service, build_service
from mainspring.service.sessions.events.event_content import SendMessage
from mainspring.service.sessions.events.preview_deltas import SharedDeltas
from mainspring.service.sessions.session_listing import ListSessions
from mainspring.service.sessions.session_params import CreateSession, ForkSession
from mainspring.service.sessions.sessions import Sessions
from mainspring.service.storage.repository import ListQuery
from mainspring.service.webhooks.webhook_endpoints import DELIVERY_KIND
from mainspring.testing import Scripted, says
from mainspring.wiring.service_assembly import open_service

WHO = Principal(tenant=TENANT, key_id="key_1", role="admin", name="olga")
LONG_AGO = 1


async def spoil(records: Records, kind: str, id_: str) -> None:
    """A record that nobody can read, and that has been due for longest."""
    record = RecordRow(
        tenant=TENANT, kind=kind, id=id_, created=1, updated=1, body=b'{"no', due=LONG_AGO
    )
    await records.write(Put(row=record))


async def test_an_unreadable_job_does_not_block_the_others(tmp_path: Path):
    doing = Doing()
    async with open_sqlite(tmp_path / "jobs.db") as store:
        await spoil(store.records, "job", "deliver:bad")
        await spoil(store.records, "job_held", "deliver:worse")
        await EmbeddedDispatcher(store.records).put(job("good"))  # of another process
        async with dispatching(EmbeddedDispatcher(store.records), doing):
            await doing.until(lambda: doing.done == ["good"])


class LockedRecords:
    """Records of a file that another process keeps locked for a while."""

    def __init__(self, records: Records) -> None:
        self._records = records
        self.is_locked = False

    async def write(self, *changes: RecordChange) -> tuple[RecordRow, ...]:
        if self.is_locked:
            self.is_locked = False
            raise StoreUnavailable("locked")
        return await self._records.write(*changes)

    def __getattr__(self, name: str) -> object:
        return getattr(self._records, name)


async def test_a_job_that_could_not_be_taken_is_taken_later(tmp_path: Path):
    async with open_sqlite(tmp_path / "jobs.db") as store:
        records = LockedRecords(store.records)
        dispatcher = EmbeddedDispatcher(cast("Records", records), tenant_limit=1)
        await dispatcher.put(job("a"))
        records.is_locked = True
        with pytest.raises(StoreUnavailable):
            await dispatcher.take()
        await dispatcher.poll()
        taken = await dispatcher.take()
        assert taken is not None
        assert taken.job == job("a")


async def test_an_unreadable_delivery_does_not_abort_the_sweep(tmp_path: Path):
    async with works(tmp_path) as made:
        await spoil(made.records, DELIVERY_KIND, "whd_bad")
        with pytest.raises(StoreCorrupt, match="webhook_delivery whd_bad cannot be read"):
            await made.deliveries.get(TENANT, "whd_bad")
        assert await made.deliveries.sweep() == 0


async def test_an_unreadable_parked_record_does_not_block_other_sessions(tmp_path: Path):
    async with shop(tmp_path, Scripted(otherwise=says("hello"))) as at:
        bad, good = await at.session("hi"), await at.session("hi")
        await spoil(at.log.store.records, PARKED, bad)
        async with at_work(at.worker):
            await at.until(good, "session.status_idle")
        assert await at.kinds(bad) == ["session.created"]
        await at.worker.parking.unpark(TENANT, bad)
        async with at_work(at.worker):
            await at.until(bad, "session.status_idle")


async def test_the_wake_of_a_session_deleted_meanwhile_is_dropped(tmp_path: Path):
    tried = anyio.Event()

    async def run(session_id: str) -> None:
        try:
            await at.log.store.records.get(SESSION_KIND, session_id)
        finally:
            tried.set()

    async with shop(tmp_path, Scripted(), run=run) as at:
        gone = (await at.log.create()).id  # and its record is not there any more
        async with at_work(at.worker) as closing:
            await at.dispatcher.put(Job(task="wake", key=gone, tenant=TENANT))
            with anyio.fail_after(60):
                await tried.wait()
            closing.set()
        [failures] = await at.log.store.records.tally([(f"failed_wakes/{gone}/", 0)])
        assert failures == 0


async def test_parking_is_notified_while_the_session_is_held(tmp_path: Path):
    told: list[tuple[str, str, bool, str]] = []

    async def fail(session_id: str) -> None:
        raise InvalidInput("two tools called 'add'")

    async def after(tenant: str, session_id: str) -> None:
        row = await at.log.session(session_id)
        told.append((tenant, session_id, row.owner is not None, (await at.kinds(session_id))[-1]))
        raise Crash

    async with shop(tmp_path, Scripted(), run=fail) as at:
        session_id = await at.session("hi")
        at.worker.on_parked(after)
        wake = Job(task="wake", key=session_id, tenant=TENANT)
        for _ in range(5):
            await at.worker.parking.failed(wake, InvalidInput("two tools called 'add'"))
        assert told == [(TENANT, session_id, True, "session.status_idle")]
        assert (await at.worker.parking.get(TENANT, session_id)).is_told


@asynccontextmanager
async def open_service_in(folder: Path) -> AsyncGenerator[Service]:
    environ = {"MAINSPRING_VAULT": str(folder / "vault")}
    async with open_service(
        read_settings(store=str(folder / "log.db"), environ=environ)
    ) as service:
        yield service


async def create_session(service: Service) -> str:
    agent = await service.resources.agents.create(
        TENANT, CreateAgent(name="helper", model="claude-opus-5-5")
    )
    environment = await service.resources.environments.create(TENANT, CreateEnvironment(name="ci"))
    asked = CreateSession(agent=agent.id, environment_id=environment.id)
    return (await service.sessions.sessions.create(WHO, asked, origin=Origin(type="api"))).id


class DyingLog(SessionLog):
    """Whose process dies as it forks."""

    is_forked = False

    async def fork(
        self,
        session_id: str,
        *,
        at: int | None = None,
        title: str | None = None,
        fork_id: str | None = None,
        sender: Sender | None = None,
    ) -> SessionRow:
        if self.is_forked:
            await super().fork(session_id, at=at, title=title, fork_id=fork_id, sender=sender)
        raise Crash


@pytest.mark.parametrize("is_forked", [False, True])
async def test_a_fork_that_dies_halfway_can_be_deleted(tmp_path: Path, is_forked: bool):
    async with open_service_in(tmp_path) as service:
        session_id = await create_session(service)
        log = DyingLog(service.infrastructure.store)
        log.is_forked = is_forked
        sessions = Sessions(log, service.sessions.sessions.dependencies)
        with pytest.raises(Crash):
            await sessions.fork(WHO, session_id, ForkSession())
        for item in (await service.sessions.sessions.page(WHO, ListSessions())).data:
            await service.sessions.sessions.delete(WHO, item.id)
        assert await service.infrastructure.log.sessions() == []


async def test_an_invalid_fork_leaves_no_record(tmp_path: Path):
    async with open_service_in(tmp_path) as service:
        session_id = await create_session(service)
        with pytest.raises(InvalidInput):
            await service.sessions.sessions.fork(WHO, session_id, ForkSession(at=99))
        assert await service.infrastructure.store.records.count(RecordQuery(kind=SESSION_KIND)) == 1


class UnavailableDispatcher(Dispatcher):
    """A queue whose database is gone."""

    async def put(self, job: Job, *, at: datetime | None = None) -> None:
        raise StoreUnavailable("away")

    async def remind(self, jobs: Sequence[Job]) -> None:
        raise StoreUnavailable("away")

    async def cancel(self, task: str, key: str) -> None:
        raise StoreUnavailable("away")

    async def backlog(self) -> Backlog:
        raise StoreUnavailable("away")

    async def work(
        self,
        handle: JobHandler,
        *,
        concurrency: int,
        closing: anyio.Event,
        on_failure: FailureHandler | None = None,
    ) -> None:
        raise StoreUnavailable("away")


async def test_an_accepted_message_is_kept_if_the_dispatcher_is_down(tmp_path: Path):
    async with open_service_in(tmp_path) as service:
        session_id = await create_session(service)
        lonely = build_service(replace(service.infrastructure, dispatcher=UnavailableDispatcher()))
        await lonely.sessions.event_sender.send(
            WHO, session_id, [SendMessage(content=(TextBlock("once"),))]
        )
        assert len(await service.infrastructure.store.pending(session_id)) == 1
        assert await service.infrastructure.store.runnable() == [session_id]


async def test_a_deleted_session_is_no_longer_listed_as_parked(tmp_path: Path):
    async with open_service_in(tmp_path) as service:
        session_id = await create_session(service)
        parking = service.sessions.parking
        wake = Job(task="wake", key=session_id, tenant=TENANT)
        for _ in range(5):
            await parking.failed(wake, InvalidInput("broken"))
        assert [item.id for item in (await parking.page(TENANT, ListQuery())).data] == [session_id]
        await service.sessions.sessions.delete(WHO, session_id)
        assert (await parking.page(TENANT, ListQuery())).data == []
        with pytest.raises(NotFound):
            await parking.unpark(TENANT, session_id)


async def test_approvals_of_an_archived_session_are_void(tmp_path: Path):
    async with open_service_in(tmp_path) as service:
        session_id = await create_session(service)
        asked = Approval(
            id="appr_1",
            session_id=session_id,
            session_thread_id="sthr_1",
            agent_id="agent_1",
            agent_name="helper",
            tool_use_id="sevt_1",
            name="bash",
            input={"command": "ls"},
            preview=None,
            is_cut=False,
            reason=None,
            asked=1,
            asked_at=clock.now(),
            may_answer=MayAnswer(role="user", four_eyes=False),
        )
        await service.sessions.approvals.keeper.repository.put(TENANT, asked)
        await service.sessions.sessions.archive(WHO, session_id)
        assert (await service.sessions.approvals.get(WHO, asked.id)).status == "void"
        await service.sessions.sessions.delete(WHO, session_id)
        with pytest.raises(NotFound):
            await service.sessions.approvals.get(WHO, asked.id)


class SingleTopicPubSub:
    """Delivers what a test sends."""

    def __init__(self) -> None:
        self.on_message: Callable[[str], None] | None = None

    def publish(self, topic: str, text: str) -> None:
        pass

    @contextmanager
    def listen(self, topic: str, on_message: Callable[[str], None]) -> Generator[None]:
        del topic
        self.on_message = on_message
        yield


def test_a_delta_of_an_unknown_type_is_ignored():
    pubsub = SingleTopicPubSub()
    with SharedDeltas(pubsub).listen("sesn_1", lambda: None) as subscription:
        assert pubsub.on_message is not None
        pubsub.on_message('{"type":"shrank"}')
        pubsub.on_message("not even JSON")
        assert subscription.take() == []
