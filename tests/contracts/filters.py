"""Contract: lists find records by their filters; the status follows the log and the inbox."""

from dataclasses import replace
from itertools import product

from tests.contracts.store_setup import StoreFactory, scene
from tests.senders import TESTER

from mainspring.core.content import TextBlock
from mainspring.core.events import (
    SessionCreated,
    StatusIdle,
    StatusRunning,
    StatusTerminated,
    StopReason,
    UserInterrupt,
    UserMessage,
)
from mainspring.core.ids import SESSION, new_id
from mainspring.log.records import (
    SESSION_KIND,
    STATUS_FILTER,
    FilterValues,
    Put,
    RecordFilter,
    RecordQuery,
    RecordRow,
    Records,
    Remove,
    Replace,
)
from mainspring.log.store import Store

_STATUSES = ("rescheduling", "running", "idle", "terminated")


def _row(tenant: str, id_: str, kind: str = SESSION_KIND, created: int = 1) -> RecordRow:
    return RecordRow(tenant=tenant, kind=kind, id=id_, created=created, updated=1, body=b"{}")


async def _found(
    records: Records, tenant: str, *filters: tuple[str, str], **fields: object
) -> list[str]:
    """The ids with these filters that are not archived."""
    asked = tuple(RecordFilter(name, ((value, False),)) for name, value in filters)
    query = RecordQuery(kind=SESSION_KIND, tenant=tenant, filters=asked)
    query = replace(query, **fields)
    rows = await records.list(query)
    assert [(row.created, row.id) for row in rows] == await records.ids(query)
    return [row.id for row in rows]


async def _status(records: Records, tenant: str) -> list[str]:
    """The statuses of a tenant's only session, as lists find it."""
    statuses = [(status, await _found(records, tenant, ("status", status))) for status in _STATUSES]
    return [status for status, ids in statuses if ids]


async def records_are_found_by_each_of_their_filters_and_by_several(
    open_store: StoreFactory,
) -> None:
    tenant, other = new_id("tenant"), new_id("tenant")
    async with open_store() as store:
        records = store.records
        ids = [new_id(SESSION) for _ in range(16)]
        for number, id_ in enumerate(ids):
            color, size = ("red", "blue")[number % 2], ("small", "large")[number // 2 % 2]
            filters: FilterValues = (("color", color), ("size", size), ("tag", "x"), ("tag", color))
            row = replace(_row(tenant, id_, created=number), is_archived=number >= 8)
            await records.write(Put(row=row, filters=filters))
        await records.write(Put(row=_row(other, new_id(SESSION)), filters=(("color", "red"),)))
        open_ids = ids[:8]
        for color, size in product(("red", "blue"), ("small", "large")):
            matching = [
                id_
                for number, id_ in enumerate(open_ids)
                if (("red", "blue")[number % 2], ("small", "large")[number // 2 % 2])
                == (color, size)
            ][::-1]
            both = (("color", color), ("size", size))
            assert await _found(records, tenant, *both) == matching
            assert await _found(records, tenant, *both, order="asc") == matching[::-1]
            assert await _found(records, tenant, *both, limit=1) == matching[:1]
            first = await records.get(SESSION_KIND, matching[0])
            assert await _found(records, tenant, *both, after=first) == matching[1:]
            assert await _found(records, tenant, *both, created_from=3, created_upto=4) == [
                id_ for id_ in matching if id_ in ids[3:5]
            ]
        assert await _found(records, tenant, ("tag", "x"), ("tag", "red")) == open_ids[-2::-2]
        archived = RecordFilter("color", (("red", False), ("red", True)))
        query = RecordQuery(kind=SESSION_KIND, tenant=tenant, filters=(archived,))
        assert [row.id for row in await records.list(query)] == ids[::2][::-1]


async def a_changed_record_is_found_by_its_new_filters_only(open_store: StoreFactory) -> None:
    tenant, id_ = new_id("tenant"), new_id(SESSION)
    async with open_store() as store:
        records = store.records
        [row] = await records.write(Put(row=_row(tenant, id_), filters=(("color", "red"),)))
        [row] = await records.write(Replace(row=row))
        assert await _found(records, tenant, ("color", "red")) == [id_]
        [row] = await records.write(Replace(row=row, filters=(("color", "blue"),)))
        assert await _found(records, tenant, ("color", "red")) == []
        assert await _found(records, tenant, ("color", "blue")) == [id_]
        [row] = await records.write(
            Replace(row=replace(row, is_archived=True), filters=(("color", "blue"),))
        )
        assert await _found(records, tenant, ("color", "blue")) == []
        assert await _status(records, tenant) == []
        await records.write(Remove(row=row))
        query = RecordQuery(
            kind=SESSION_KIND, tenant=tenant, filters=(RecordFilter("color", (("blue", True),)),)
        )
        assert await records.ids(query) == []


async def the_status_of_a_session_follows_its_log_and_its_inbox(open_store: StoreFactory) -> None:
    tenant = new_id("tenant")
    message = UserMessage(content=(TextBlock("go on"),))
    idle = StatusIdle(stop_reason=StopReason(type="end_turn"))
    async with scene(open_store) as at:
        records = at.store.records
        await records.write(Put(row=_row(tenant, at.id), filters=()))
        assert await _status(records, tenant) == ["idle"]
        await at.writer.append(StatusRunning())
        assert await _status(records, tenant) == ["running"]
        await at.writer.append(idle)
        assert await _status(records, tenant) == ["idle"]
        await at.log.submit(at.id, UserInterrupt(), sender=TESTER)
        assert await _status(records, tenant) == ["idle"], "an interrupt starts no run"
        await at.log.submit(at.id, message, sender=TESTER)
        assert await _status(records, tenant) == ["running"], "it is about to run"
        await at.writer.stage_inbox()
        await at.writer.append(StatusRunning(), idle)
        assert await _status(records, tenant) == ["idle"], "the inbox is empty"
        await at.writer.append(StatusTerminated())
        assert await _status(records, tenant) == ["terminated"]
        fork = await at.log.fork(at.id)
        await records.write(Put(row=_row(tenant, fork.id), filters=()))
        assert await _found(records, tenant, ("status", "terminated")) == sorted(
            [at.id, fork.id], reverse=True
        )


async def a_record_that_is_there_before_its_session_follows_it_too(
    open_store: StoreFactory,
) -> None:
    tenant, id_ = new_id("tenant"), new_id(SESSION)
    async with scene(open_store) as at:
        await at.writer.append(StatusRunning())
        await at.store.records.write(Put(row=_row(tenant, id_), filters=()))
        assert await _status(at.store.records, tenant) == ["idle"]
        await at.log.fork(at.id, fork_id=id_)
        assert await _status(at.store.records, tenant) == ["idle"], "a fork runs nothing"
        writer = await at.log.hold(id_, owner="the writer")
        await writer.append(StatusRunning())
        assert await _status(at.store.records, tenant) == ["running"]


async def filters_are_added_to_records_that_have_none(open_store: StoreFactory) -> None:
    tenant = new_id("tenant")
    async with scene(open_store) as at:
        records = at.store.records
        await at.writer.append(StatusRunning())
        ids = sorted([at.id, *(new_id(SESSION) for _ in range(3))])
        rows = [*await records.write(*(Put(row=_row(tenant, id_)) for id_ in ids))]
        assert await _without_filters(at.store, tenant) == ids
        changed = await records.write(Replace(row=rows[-1]))  # while its filters were computed
        await records.add_filters(*((row, (("color", "red"),)) for row in rows))
        assert await _found(records, tenant, ("color", "red")) == ids[-2::-1]
        assert await _without_filters(at.store, tenant) == [changed[0].id]
        await records.add_filters(*((row, (("color", "blue"),)) for row in rows[:-1]))
        assert await _found(records, tenant, ("color", "blue")) == [], "they have some"
        if at.id != ids[-1]:
            assert await _found(records, tenant, (STATUS_FILTER, "running")) == [at.id]


async def _without_filters(store: Store, tenant: str) -> list[str]:
    found: list[RecordRow] = []
    last = ""
    while rows := await store.records.without_filters(SESSION_KIND, after=last, limit=2):
        last = rows[-1].id
        found += rows
    return [row.id for row in found if row.tenant == tenant]


async def many_sessions_are_read_together(open_store: StoreFactory) -> None:
    async with scene(open_store) as at:
        second = await at.log.create(SessionCreated(title="the second"))
        for number in range(5):
            await at.writer.append(UserMessage(content=(TextBlock(f"message {number}"),)))
        fork = await at.log.fork(at.id, at=4)
        rows = [await at.log.session(id_) for id_ in (at.id, second.id, fork.id)]
        types = frozenset({"session.created", "user.message", "session.forked"})
        for limit in (None, 1, 2):
            together = await at.log.read_many([(row, 0) for row in rows], types=types, limit=limit)
            alone = [await at.log.read(row.id, types=types, limit=limit) for row in rows]
            assert [events for _, events in together] == alone
        [(_, late)] = await at.log.read_many([(rows[0], 4)], types=types)
        assert late == await at.log.read(at.id, after=4)
        await at.log.submit(second.id, UserInterrupt(), sender=TESTER)
        item = await at.log.submit(
            second.id, UserMessage(content=(TextBlock("hi"),)), sender=TESTER
        )
        pending = await at.store.first_pending(
            [row.id for row in rows], frozenset({"user.message"})
        )
        assert pending == {second.id: item}
