"""What only a look into the tables can tell."""

import anyio
import psycopg
from tests.senders import TESTER

from mainspring.core.content import TextBlock
from mainspring.core.events import AgentMessage, UserMessage
from mainspring.log.postgres import open_postgres
from mainspring.log.search import search
from mainspring.log.session_log import SessionLog

TABLES = ("session", "event", "inbox", "blob", "blob_use", "words")


async def count_rows(url: str) -> dict[str, int]:
    counts: dict[str, int] = {}
    async with await psycopg.AsyncConnection.connect(url) as connection:
        for table in TABLES:
            found = await connection.execute(f"select count(*) from mainspring.{table}".encode())
            [counts[table]] = await found.fetchone() or [-1]
    return counts


async def test_a_deleted_session_leaves_no_row_in_any_table(postgres_url: str):
    async with open_postgres(postgres_url) as store:
        log = SessionLog(store)
        session = await log.create()
        writer = await log.hold(session.id, owner="me")
        await writer.append(AgentMessage(content=(TextBlock("needle"),)))
        await log.submit(session.id, UserMessage(content=(TextBlock("hello"),)), sender=TESTER)
        await log.put_blob(session.id, b"large", media_type="text/plain")
        assert len(await search(log, "needle")) == 1
        assert all((await count_rows(postgres_url)).values())
        await log.delete(session.id)
        assert not any((await count_rows(postgres_url)).values())


async def test_an_append_updates_no_index_of_the_session_table(postgres_url: str):
    async with open_postgres(postgres_url) as store:
        log = SessionLog(store)
        session = await log.create()
        writer = await log.hold(session.id, owner="me")
        for _ in range(50):
            await writer.append(AgentMessage(content=(TextBlock("hello"),)))
    updates, on_the_same_page = await read_update_counts(postgres_url, at_least=50)
    assert on_the_same_page > updates * 0.9


async def read_update_counts(url: str, *, at_least: int) -> tuple[int, int]:
    """The server counts the updates of a connection when that has ended, a moment later."""
    query = "select n_tup_upd, n_tup_hot_upd from pg_stat_user_tables where relname = 'session'"
    async with await psycopg.AsyncConnection.connect(url, autocommit=True) as connection:
        with anyio.fail_after(60):
            while True:
                rows = await connection.execute(query)
                updates, on_the_same_page = await rows.fetchone() or (0, 0)
                if updates >= at_least:
                    return updates, on_the_same_page
                await anyio.sleep(0.01)
