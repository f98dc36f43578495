"""Records share commits with everything else that is written: a refusal there is nobody else's."""

import sqlite3
from contextlib import closing
from pathlib import Path

import anyio
from hypothesis import given
from hypothesis import strategies as st
from tests.log.sample_sessions import says

from mainspring.core.errors import InvalidInput, StaleVersion
from mainspring.log.records import Put, RecordQuery, RecordRow, Replace
from mainspring.log.session_log import SessionLog
from mainspring.log.sql_rows import prefix_end
from mainspring.log.sqlite import open_sqlite
from mainspring.log.sqlite import queries as sqlite_queries
from mainspring.log.sqlite.connect import prepare


def record(id_: str, rev: int = 0) -> RecordRow:
    return RecordRow(tenant="t", kind="k", id=id_, created=1, updated=1, body=b"{}", rev=rev)


async def test_a_rejected_write_in_a_shared_commit_does_not_affect_the_others(tmp_path: Path):
    async with open_sqlite(tmp_path / "log.db") as store:
        log = SessionLog(store)
        writer = await log.hold((await log.create()).id, owner="worker")
        await store.records.write(Put(row=record("taken")))
        refused: list[str] = []

        async def write(number: int) -> None:
            outdated = Replace(row=record("taken", rev=9))
            last = outdated if number % 2 else Put(row=record(f"last {number:02}"))
            try:
                await store.records.write(Put(row=record(f"first {number:02}")), last)
            except StaleVersion:
                refused.append(f"first {number:02}")

        async def overflow() -> None:
            try:
                await store.records.tally([("spent", 1), ("spent", 2**63 - 1)])
            except InvalidInput:
                refused.append("spent")

        async with anyio.create_task_group() as group:
            for number in range(20):
                group.start_soon(write, number)
            group.start_soon(overflow)
            group.start_soon(writer.append, says("undisturbed"))
        odd = [f"first {number:02}" for number in range(1, 20, 2)]
        assert sorted(refused) == [*odd, "spent"]
        kept = [item.id for item in await store.records.list(RecordQuery(kind="k", order="asc"))]
        even = range(0, 20, 2)
        expected = [f"{which} {number:02}" for which in ("first", "last") for number in even]
        assert kept == [*expected, "taken"]
        assert await store.records.tallies() == []
        assert len(await log.read(writer.session_id)) == 2


@given(prefix=st.text(max_size=3), rest=st.text(max_size=3), other=st.text(max_size=4))
def test_prefix_end_bounds_exactly_the_texts_with_the_prefix(prefix: str, rest: str, other: str):
    end = prefix_end(prefix)

    def is_within(text: str) -> bool:
        return prefix <= text and (end is None or text < end)

    assert is_within(prefix + rest)
    assert is_within(other) == other.startswith(prefix)
    assert end is None or end.encode()


def test_the_runnable_query_scans_only_partial_indexes(tmp_path: Path):
    with closing(prepare(tmp_path / "log.db")) as db:
        asked: list[str] = []
        db.set_trace_callback(asked.append)
        sqlite_queries.runnable(db, 10)
        db.set_trace_callback(None)
        steps = [step for *_, step in db.execute(f"explain query plan {asked[0]}")]
    scans = sorted(step for step in steps if step.startswith("SCAN"))
    assert [scan.split()[-1] for scan in scans] == ["inbox_pending", "session_held"]


def test_an_append_updates_no_index_of_sessions(tmp_path: Path):
    path = tmp_path / "log.db"
    prepare(path).close()
    with closing(sqlite3.connect(path)) as db:
        changed = (
            "update session set seq = 1, hash = x'', updated = 1, lease_until = 1 where id = ''"
        )
        steps = [step for _, step, *_ in db.execute(f"explain {changed}")]
    assert "Insert" in steps
    assert "IdxInsert" not in steps
