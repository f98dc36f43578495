"""A PostgreSQL server that restarts, cuts connections or refuses: nothing is lost or doubled."""

import shutil
import tempfile
from collections.abc import AsyncGenerator, Iterator
from contextlib import asynccontextmanager
from pathlib import Path

import anyio
import psycopg
import pytest
from anyio.abc import SocketStream, TaskStatus
from tests.at_once import at_once
from tests.fixtures_postgres import DATABASE, Postgres

from mainspring.core.content import TextBlock
from mainspring.core.envelope import message_text
from mainspring.core.errors import (
    MainspringError,
    StoreCorrupt,
    StoreFull,
    StoreReadOnly,
    StoreUnavailable,
)
from mainspring.core.events import AgentMessage
from mainspring.log.postgres import PostgresStore, open_postgres, wakeups
from mainspring.log.postgres.connect import Address, Pool
from mainspring.log.provenance import PROCESS_KEY, Provenance
from mainspring.log.session_log import SessionLog
from mainspring.log.verify import verify
from mainspring.log.writer import Writer

SOCKET = ".s.PGSQL.5432"


def message(text: str) -> AgentMessage:
    return AgentMessage(content=(TextBlock(text),))


async def read_texts(log: SessionLog, session_id: str) -> list[str]:
    assert (await verify(log, session_id)).ok
    return [text for event in await log.read(session_id) if (text := message_text(event.payload))]


@asynccontextmanager
async def open_writer(url: str) -> AsyncGenerator[tuple[SessionLog, Writer]]:
    with anyio.fail_after(60):
        async with open_postgres(url) as store:
            log = SessionLog(store)
            yield log, await log.hold((await log.create()).id, owner="me", seconds=60)


async def restart_server(postgres: Postgres, *, seconds: float) -> None:
    """Stop the server for a while."""
    await anyio.to_thread.run_sync(postgres.stop)
    await anyio.sleep(seconds)
    await anyio.to_thread.run_sync(postgres.start)


async def test_appends_continue_while_connections_are_cut(postgres: Postgres, postgres_url: str):
    async with open_writer(postgres_url) as (log, writer):

        async def cut() -> None:
            for _ in range(10):
                await anyio.to_thread.run_sync(postgres.disconnect)
                await anyio.sleep(0.05)

        async with anyio.create_task_group() as group:
            group.start_soon(cut)
            for number in range(200):
                await writer.append(message(f"{number}"))
        assert await read_texts(log, writer.session_id) == [f"{number}" for number in range(200)]


async def test_an_append_cut_off_inside_the_server_is_repeated(postgres_url: str):
    async with open_writer(postgres_url) as (log, writer):
        blocker = await psycopg.AsyncConnection.connect(postgres_url)
        await blocker.execute("select from mainspring.session for update")
        async with anyio.create_task_group() as group:
            group.start_soon(writer.append, message("once"))
            await terminate_waiting_backend(
                postgres_url
            )  # cut off, and made again, and waits again
            await terminate_waiting_backend(postgres_url)
            await blocker.close()
        assert await read_texts(log, writer.session_id) == ["once"]


async def terminate_waiting_backend(url: str) -> None:
    waiting = "from pg_stat_activity where wait_event_type = 'Lock'"
    end = f"select pg_terminate_backend(pid, 5000) {waiting}".encode()
    async with await psycopg.AsyncConnection.connect(url, autocommit=True) as connection:
        while not (await connection.execute(end)).rowcount:  # noqa: ASYNC110 (the server's time)
            await anyio.sleep(0.01)


class Proxy:
    """Stands between a store and its server, and can lose an answer on its way."""

    def __init__(self, folder: Path, server: Path) -> None:
        self.url = f"postgresql://postgres@/{DATABASE}?host={folder}"
        self.loses_next_answer = False
        self.lost = 0
        self._folder = folder
        self._server = server

    async def run(self, *, task_status: TaskStatus[None]) -> None:
        async with await anyio.create_unix_listener(self._folder / SOCKET) as listener:
            task_status.started()
            await listener.serve(self._serve)

    async def _serve(self, client: SocketStream) -> None:
        server = await anyio.connect_unix(self._server / SOCKET)
        async with client, server, anyio.create_task_group() as group:
            group.start_soon(self._forward, client, server, group.cancel_scope)
            await self._answer(server, client)
            group.cancel_scope.cancel()

    async def _forward(
        self, client: SocketStream, server: SocketStream, scope: anyio.CancelScope
    ) -> None:
        try:
            async for asked in client:
                await server.send(asked)
        except (anyio.BrokenResourceError, anyio.ClosedResourceError):
            pass
        scope.cancel()

    async def _answer(self, server: SocketStream, client: SocketStream) -> None:
        async for answer in server:
            if self.loses_next_answer:
                self.loses_next_answer = False
                self.lost += 1
                return
            await client.send(answer)


@pytest.fixture
def proxy(postgres: Postgres, postgres_url: str) -> Iterator[Proxy]:
    folder = Path(tempfile.mkdtemp(prefix="mainspring-"))
    yield Proxy(folder, postgres.folder)
    shutil.rmtree(folder)


async def test_an_append_whose_reply_was_lost_is_not_repeated(proxy: Proxy):
    async with anyio.create_task_group() as group:
        await group.start(proxy.run)
        async with open_writer(proxy.url) as (log, writer):
            for number in range(5):
                await writer.append(message(f"{number}"))
                await anyio.sleep(0.05)  # so that it is the append's answer that gets lost
                proxy.loses_next_answer = True
            await writer.append(message("5"))
            assert proxy.lost == 5
            assert await read_texts(log, writer.session_id) == [f"{number}" for number in range(6)]
        group.cancel_scope.cancel()


async def test_appends_continue_after_a_restart(postgres: Postgres, postgres_url: str):
    async with open_writer(postgres_url) as (log, writer):
        async with anyio.create_task_group() as group:
            group.start_soon(lambda: restart_server(postgres, seconds=0.3))
            for number in range(200):
                await writer.append(message(f"{number}"))
                await anyio.sleep(0.005)
        assert await read_texts(log, writer.session_id) == [f"{number}" for number in range(200)]


async def test_acknowledged_events_survive_a_crash(postgres: Postgres, postgres_url: str):
    async with open_writer(postgres_url) as (log, writer):
        for number in range(50):
            await writer.append(message(f"{number}"))
        await anyio.to_thread.run_sync(postgres.crash)
        await anyio.to_thread.run_sync(postgres.start)
        await writer.append(message("50"))
        assert await read_texts(log, writer.session_id) == [f"{number}" for number in range(51)]


async def test_a_restart_while_idle_goes_unnoticed(postgres: Postgres, postgres_url: str):
    async with open_writer(postgres_url) as (log, writer):
        async with anyio.create_task_group() as group:
            for _ in range(20):  # so that there are several idle connections
                group.start_soon(log.session, writer.session_id)
        await restart_server(postgres, seconds=0)
        for _ in range(20):
            await log.session(writer.session_id)
        await log.create()


async def test_an_absent_server_is_reported_as_unavailable_until_it_is_back(
    postgres: Postgres, postgres_url: str, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr("mainspring.log.task_groups.RETRY_SECONDS", (0.01, 0.01))
    async with open_writer(postgres_url) as (log, writer):
        await anyio.to_thread.run_sync(postgres.stop)
        try:
            for attempt in (
                writer.append(message("no")),
                log.read(writer.session_id),
                log.create(),
                writer.renew(),
            ):
                with pytest.raises(StoreUnavailable, match="cannot be reached"):
                    await attempt
        finally:
            await anyio.to_thread.run_sync(postgres.start)
        await writer.append(message("yes"))
        assert await read_texts(log, writer.session_id) == ["yes"]


async def test_a_waiting_follower_survives_a_restart(postgres: Postgres, postgres_url: str):
    async with open_writer(postgres_url) as (_, writer), open_postgres(postgres_url) as other:
        followed = SessionLog(other).follow(writer.session_id, after=1)
        async with anyio.create_task_group() as group:
            group.start_soon(restart_and_append, postgres, writer)
            assert (await anext(followed)).seq == 2
        await followed.aclose()


async def restart_and_append(postgres: Postgres, writer: Writer) -> None:
    await anyio.sleep(0.2)  # the follower waits by now
    await restart_server(postgres, seconds=0.3)
    await writer.append(message("back"))


async def test_the_listener_reconnects_after_its_connection_was_cut(
    postgres: Postgres, postgres_url: str, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(wakeups, "POLL_SECONDS", 3600)
    async with open_writer(postgres_url) as (_, writer), open_postgres(postgres_url) as other:
        followed = SessionLog(other).follow(writer.session_id, after=1)
        for seq in range(2, 6):
            async with anyio.create_task_group() as group:
                group.start_soon(cut_and_append, postgres, writer)
                assert (await anext(followed)).seq == seq
        await followed.aclose()


async def cut_and_append(postgres: Postgres, writer: Writer) -> None:
    await anyio.sleep(0.2)  # the follower waits by now, or reads once more: right either way
    await anyio.to_thread.run_sync(postgres.disconnect)
    await writer.append(message("more"))


async def test_polling_finds_events_without_a_notification(postgres_url: str):
    async with open_writer(postgres_url) as (log, writer):
        pool = Pool(Address.of(postgres_url), size=1)
        silent = PostgresStore(pool, Provenance(PROCESS_KEY))  # not opened: it announces nothing
        followed = log.follow(writer.session_id, after=1)
        for seq in (2, 3):
            seen = await silent.session(writer.session_id)
            successor = await SessionLog(silent).hold(
                writer.session_id, owner="me", seconds=60, instead_of=("me", seen.epoch)
            )
            await successor.append(message("psst"))
            assert (await anext(followed)).seq == seq
        await followed.aclose()
        await pool.close()


async def test_many_sessions_are_announced_in_few_notifications(postgres_url: str):
    heard: list[str] = []
    async with await psycopg.AsyncConnection.connect(postgres_url, autocommit=True) as listener:
        await listener.execute("listen mainspring")
        async with open_postgres(postgres_url) as store:
            log = SessionLog(store)
            made = [await log.create() for _ in range(400)]
            writing_all = [await log.hold(item.id, owner="me", seconds=60) for item in made]
            await at_once(lambda writer: writer.append(message("hello")), writing_all)
        async for notification in listener.notifies(timeout=0.5):
            heard.append(notification.payload)
    told = {session_id for payload in heard for session_id in payload.split()[1:]}
    assert told == {session.id for session in made}
    assert len(heard) < 200


@pytest.mark.parametrize(
    ("code", "kind", "words"),
    [
        ("53100", StoreFull, "disk is full"),
        ("XX001", StoreCorrupt, "damaged"),
        ("25006", StoreReadOnly, "cannot be written"),
        ("42501", StoreReadOnly, "cannot be written"),
    ],
)
async def test_a_server_error_is_reported_and_the_log_continues_afterwards(
    postgres: Postgres, postgres_url: str, code: str, kind: type[MainspringError], words: str
):
    async with open_writer(postgres_url) as (log, writer):
        postgres.execute(
            "create function mainspring.fail() returns trigger language plpgsql as"
            f" $$ begin raise exception using errcode = '{code}'; end $$"
        )
        postgres.execute(
            "create trigger fail before insert on mainspring.event"
            " for each row execute function mainspring.fail()"
        )
        with pytest.raises(kind, match=words):
            await writer.append(message("no"))
        postgres.execute("drop trigger fail on mainspring.event")
        await writer.append(message("yes"))
        assert await read_texts(log, writer.session_id) == ["yes"]


async def test_few_connections_serve_many_tasks(postgres: Postgres, postgres_url: str):
    async with open_postgres(postgres_url, max_connections=2) as store:
        log = SessionLog(store)
        session = await log.create()
        await at_once(lambda _: log.read(session.id), range(100))
        async with await psycopg.AsyncConnection.connect(postgres_url) as connection:
            counted = await connection.execute(
                "select count(*) from pg_stat_activity where application_name = 'mainspring'"
            )
            assert await counted.fetchone() == (2,)


async def test_text_that_postgres_cannot_store_is_an_input_error(postgres_url: str):
    async with open_writer(postgres_url) as (log, writer):
        with pytest.raises(MainspringError, match="NUL"):
            await log.store.acquire(writer.session_id, owner="a\0b", seconds=1)
        await writer.append(message("fine"))
