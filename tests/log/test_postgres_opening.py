"""Opening a PostgreSQL database: whose tables it has, of which version, and what errors tell."""

import traceback

import anyio
import psycopg
import pytest
from tests.at_once import at_once
from tests.fixtures_postgres import DATABASE, Postgres

from mainspring.core.errors import (
    InvalidInput,
    MainspringError,
    StoreFailed,
    StoreMismatch,
    StoreReadOnly,
    StoreUnavailable,
)
from mainspring.log.migrate import Migration, SchemaStatus
from mainspring.log.postgres import migrate as migrated
from mainspring.log.postgres import open_postgres, schema_status
from mainspring.log.postgres.connect import Address
from mainspring.log.postgres.migrations import MIGRATIONS, prepare
from mainspring.log.records import Put, RecordRow
from mainspring.log.session_log import SessionLog

AGENT = RecordRow(tenant="t", kind="agent", id="agent_1", created=1, updated=1, body=b"{}")
PASSWORD = "correct-horse-battery"

NEWEST = MIGRATIONS[-1].version
FIRST = MIGRATIONS[:1]
LATER = Migration(
    version=NEWEST + 1,
    up=("create table mainspring.later(n integer)",),
    down=("drop table mainspring.later",),
)


async def tables(url: str) -> set[str]:
    async with await psycopg.AsyncConnection.connect(url) as connection:
        found = await connection.execute(
            "select tablename from pg_tables where schemaname = 'mainspring'"
        )
        return {name for (name,) in await found.fetchall()}


async def migrate(url: str, *migrations: Migration) -> None:
    await (await prepare(Address.of(url), migrations)).close()


async def test_a_database_of_a_newer_version_is_refused_and_unchanged(postgres_url: str):
    await migrate(postgres_url, *MIGRATIONS, LATER)
    before = await tables(postgres_url)
    with pytest.raises(StoreMismatch, match="newer Mainspring"):
        async with open_postgres(postgres_url):
            pass
    assert await tables(postgres_url) == before


async def test_a_schema_of_another_program_is_refused(postgres: Postgres, postgres_url: str):
    postgres.execute("create schema mainspring")
    postgres.execute("create table mainspring.theirs(n integer)")
    with pytest.raises(StoreMismatch, match="not Mainspring's"):
        async with open_postgres(postgres_url):
            pass
    assert await tables(postgres_url) == {"theirs"}


async def test_sessions_survive_an_upgrade_and_a_downgrade(postgres_url: str):
    async with open_postgres(postgres_url) as store:
        session = await SessionLog(store).create()
    await migrate(postgres_url, *MIGRATIONS, LATER)
    assert "later" in await tables(postgres_url)
    await migrated(postgres_url, NEWEST, (*MIGRATIONS, LATER))
    assert "later" not in await tables(postgres_url)
    async with open_postgres(postgres_url) as store:
        assert await store.session(session.id) == session


async def test_a_downgrade_that_would_lose_data_is_refused(postgres_url: str):
    final = Migration(
        version=NEWEST + 1, up=("create table mainspring.later(n integer)",), down=None
    )
    await migrate(postgres_url, *MIGRATIONS, final)
    with pytest.raises(StoreMismatch, match="lose data"):
        await migrated(postgres_url, 0, (*MIGRATIONS, final))
    assert {"later", "event"} <= await tables(postgres_url)


async def test_a_database_of_version_1_gets_records(postgres: Postgres, postgres_url: str):
    await migrate(postgres_url, *FIRST)
    for statement in (
        "session(id, thread_id, created, updated, seq, hash, parent_seq, owner)"
        " values ('sesn_1', 'sthr_1', 1, 1, 0, '', 0, 'worker that died')",
        "inbox values (1, 1, 'c', 'e', 'sthr_1', 1, 1, 'user.message', '{}', null)",
        "blob values ('sha256:0', '\\x0102')",
        "blob_use values (1, 'sha256:0')",
    ):
        postgres.execute(f"insert into mainspring.{statement}")
    assert await schema_status(postgres_url) == SchemaStatus(1, NEWEST)
    async with open_postgres(postgres_url) as store:
        assert (await store.session("sesn_1")).thread_id == "sthr_1"
        assert await store.runnable() == ["sesn_1"]
        [item] = await store.inbox("sesn_1")
        assert item.client_id == "c"
        assert await store.pending("sesn_1") == []  # nobody knows who wrote it
        assert await store.blob("sha256:0") == b"\1\2"
        await store.records.write(Put(row=AGENT))
    assert await schema_status(postgres_url) == SchemaStatus(NEWEST, NEWEST)
    with pytest.raises(StoreMismatch, match="cannot downgrade from version 3: that"):
        await migrated(postgres_url, 1)


async def test_checking_the_schema_creates_nothing(postgres_url: str):
    assert await schema_status(postgres_url) == SchemaStatus(0, NEWEST)
    assert await tables(postgres_url) == set()


async def test_a_database_downgraded_to_nothing_can_be_migrated_again(postgres_url: str):
    await migrate(postgres_url, *FIRST)
    await migrated(postgres_url, 0, FIRST)
    assert await tables(postgres_url) == {"schema_version"}
    async with open_postgres(postgres_url) as store:
        assert await store.sessions() == []


async def test_a_failed_migration_leaves_everything_unchanged(postgres_url: str):
    await migrate(postgres_url, *MIGRATIONS)
    before = await tables(postgres_url)
    broken = Migration(version=NEWEST + 1, up=(*LATER.up, "create nonsense"), down=())
    with pytest.raises(StoreFailed):
        await migrate(postgres_url, *MIGRATIONS, broken)
    assert await tables(postgres_url) == before
    async with open_postgres(postgres_url):
        pass


async def test_processes_that_open_a_new_database_concurrently_migrate_it_once(postgres_url: str):
    async def use() -> None:
        async with open_postgres(postgres_url) as store:
            await SessionLog(store).create()

    await at_once(lambda _: use(), range(8))
    async with open_postgres(postgres_url) as store:
        assert len(await store.sessions()) == 8


async def test_a_read_only_database_can_be_read_but_not_written(
    postgres: Postgres, postgres_url: str
):
    async with open_postgres(postgres_url) as store:
        session = await SessionLog(store).create()
    postgres.execute(f"alter database {DATABASE} set default_transaction_read_only = on")
    try:
        async with open_postgres(postgres_url) as store:
            assert await store.session(session.id) == session
            with pytest.raises(StoreReadOnly, match="cannot be written"):
                await SessionLog(store).create()
    finally:
        postgres.execute(f"alter database {DATABASE} reset default_transaction_read_only")


async def test_durability_ignores_database_settings(postgres: Postgres, postgres_url: str):
    postgres.execute(f"alter database {DATABASE} set synchronous_commit = off")
    try:
        connection = await prepare(Address.of(postgres_url))
        [setting] = await (await connection.execute("show synchronous_commit")).fetchone() or []
        await connection.close()
        assert setting == "on"
    finally:
        postgres.execute(f"alter database {DATABASE} reset synchronous_commit")


@pytest.mark.parametrize(
    ("url", "kind"),
    [
        (f"postgresql://me:{PASSWORD}@127.0.0.1:1/db", StoreUnavailable),
        (f"postgresql://me:{PASSWORD}@no-such-host.invalid/db", StoreUnavailable),
        (f"postgresql://me:{PASSWORD}@host/db?nonsense=1", InvalidInput),
        (f"postgresql://me:{PASSWORD}@[::1/db", InvalidInput),
        (f"host=127.0.0.1 port=1 password={PASSWORD}", StoreUnavailable),
        (f"host=127.0.0.1 port=1 pass word={PASSWORD}", InvalidInput),
    ],
)
async def test_no_error_while_connecting_shows_the_password(url: str, kind: type[MainspringError]):
    with anyio.fail_after(60), pytest.raises(kind) as raised:
        async with open_postgres(url):
            pass
    assert PASSWORD not in "".join(traceback.format_exception(raised.value))


async def test_no_error_of_an_open_store_shows_the_password(postgres: Postgres, postgres_url: str):
    async with open_postgres(postgres.url(password=PASSWORD)) as store:
        assert PASSWORD not in repr(store.address)
        postgres.execute("drop schema mainspring cascade")
        with pytest.raises(StoreMismatch) as gone:
            await store.sessions()
        await anyio.to_thread.run_sync(postgres.stop)
        try:
            with pytest.raises(StoreUnavailable) as away:
                await store.sessions()
        finally:
            await anyio.to_thread.run_sync(postgres.start)
        for raised in (gone, away):
            assert PASSWORD not in "".join(traceback.format_exception(raised.value))


async def test_an_unknown_database_is_reported_as_not_retryable(postgres: Postgres):
    with pytest.raises(StoreFailed, match="nowhere") as raised:
        async with open_postgres(postgres.url().replace(f"/{DATABASE}?", "/nowhere?")):
            pass
    assert not raised.value.retryable
