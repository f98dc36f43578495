"""Contract: sessions are made, listed, forked and found to be stale."""

from datetime import timedelta

from tests.contracts.store_setup import (
    ENDLESS,
    MOMENT,
    StoreFactory,
    asks,
    refused,
    says,
    scene,
    texts,
)
from tests.senders import TESTER

from mainspring.core.clock import to_micros
from mainspring.core.envelope import GENESIS
from mainspring.core.errors import BlobNotFound, InvalidInput, SessionExists, SessionNotFound
from mainspring.core.ids import EVENT, SESSION, new_id
from mainspring.log.blobs import digest_of
from mainspring.log.session_log import SessionLog
from mainspring.log.store import EventRange, Head, SessionRow, Store
from mainspring.log.verify import verify


def _bare(session_id: str, *, created: int = 0, parent_id: str | None = None) -> SessionRow:
    return SessionRow(
        id=session_id,
        thread_id="sthr_main",
        created=created,
        updated=created,
        head=Head(0, GENESIS),
        parent_id=parent_id,
    )


async def a_created_session_is_found_as_it_was_made(open_store: StoreFactory) -> None:
    async with open_store() as store:
        log = SessionLog(store, clock=lambda: MOMENT)
        made = await log.create()
        assert await store.session(made.id) == made
        assert made.created == made.updated == to_micros(MOMENT)
        assert [event.type for event in await log.read(made.id)] == ["session.created"]


async def the_latest_sessions_come_first_and_those_of_the_future_not_at_all(
    open_store: StoreFactory,
) -> None:
    async with open_store() as store:
        ids = [new_id(SESSION) for _ in range(4)]
        for number, session_id in enumerate(ids):
            await store.create(_bare(session_id, created=number), [])
        assert [row.id for row in await store.latest(upto=2, limit=9)] == [ids[2], ids[1], ids[0]]
        assert [row.id for row in await store.latest(upto=2, limit=1)] == [ids[2]]


async def a_session_is_not_created_twice(open_store: StoreFactory) -> None:
    async with scene(open_store) as at:
        before = await at.store.session(at.id)
        with refused(SessionExists):
            await at.store.create(_bare(at.id), [])
        assert await at.store.session(at.id) == before


async def a_session_with_an_unknown_parent_is_not_created(open_store: StoreFactory) -> None:
    async with open_store() as store:
        orphan = new_id(SESSION)
        with refused(SessionNotFound):
            await store.create(_bare(orphan, parent_id=new_id(SESSION)), [])
        with refused(SessionNotFound):
            await store.session(orphan)


async def an_unknown_session_is_said_to_be_unknown(open_store: StoreFactory) -> None:
    async with open_store() as store:
        log, nobody = SessionLog(store), new_id(SESSION)
        for asked in (
            store.session(nobody),
            store.pending(nobody),
            store.blobs(nobody),
            store.delete(nobody),
            store.acquire(nobody, owner="me", seconds=1),
            store.put_blob(nobody, "sha256:0", b""),
            log.read(nobody),
            log.tail(nobody, 1),
            log.fork(nobody),
        ):
            with refused(SessionNotFound):
                await asked


async def sessions_are_listed_newest_first_a_page_at_a_time(open_store: StoreFactory) -> None:
    async with open_store() as store:
        # later than whatever else the database holds, so that these are its newest
        base = ENDLESS - 1000 if await _is_taken(store) else to_micros(MOMENT)
        made = sorted(new_id(SESSION) for _ in range(5))
        for age, session_id in enumerate(made):  # two of them in one microsecond
            await store.create(_bare(session_id, created=base + min(age, 3)), [])
        first = await store.sessions(limit=1)
        rest = await store.sessions(before=first[-1], limit=4)
        assert [session.id for session in first + rest] == made[::-1]


async def _is_taken(store: Store) -> bool:
    return bool(await store.sessions(limit=1))


async def a_fork_begins_with_its_parents_events_by_reference(open_store: StoreFactory) -> None:
    async with scene(open_store) as at:
        await at.writer.append(says("one"), says("two"), says("three"))
        fork = await at.log.fork(at.id, at=3)
        await at.writer.append(says("four"))
        own = await at.store.read(EventRange(session_id=fork.id, after=0, upto=ENDLESS))
        assert [row.type for row in own] == ["session.forked"]
        assert texts(await at.log.read(fork.id)) == ["one", "two"]
        assert [event.seq for event in await at.log.read(fork.id)] == [1, 2, 3, 4]
        assert (fork.parent_id, fork.parent_seq) == (at.id, 3)


async def a_fork_goes_its_own_way(open_store: StoreFactory) -> None:
    async with scene(open_store) as at:
        await at.writer.append(says("shared"))
        fork = await at.log.fork(at.id)
        forked = await at.log.hold(fork.id, owner="other", seconds=60)
        await forked.append(says("theirs"))
        await at.writer.append(says("ours"))
        assert texts(await at.log.read(at.id)) == ["shared", "ours"]
        assert texts(await at.log.read(fork.id)) == ["shared", "theirs"]
        assert texts(await at.log.tail(fork.id, 4)) == ["shared", "theirs"]


async def a_fork_of_a_fork_has_the_whole_history(open_store: StoreFactory) -> None:
    async with scene(open_store) as at:
        await at.writer.append(says("one"))
        child = await at.log.fork(at.id)
        await (await at.log.hold(child.id, owner="me", seconds=60)).append(says("two"))
        grandchild = await at.log.fork(child.id)
        early = await at.log.fork(grandchild.id, at=2)
        assert texts(await at.log.read(grandchild.id)) == ["one", "two"]
        assert texts(await at.log.read(early.id)) == ["one"]
        assert early.parent_id == at.id
        assert (await verify(at.log, grandchild.id)).ok


async def a_fork_at_an_event_that_is_not_there_is_refused(open_store: StoreFactory) -> None:
    async with scene(open_store) as at:
        for seq in (0, 2):
            with refused(InvalidInput):
                await at.log.fork(at.id, at=seq)


async def sessions_untouched_since_a_moment_are_stale_unless_held(open_store: StoreFactory) -> None:
    async with open_store() as store:
        old = SessionLog(store, clock=lambda: MOMENT)
        idle, held, fresh = await old.create(), await old.create(), await SessionLog(store).create()
        await store.acquire(held.id, owner="me", seconds=60)
        found = await store.stale(updated_before=to_micros(MOMENT) + 1, limit=1000)
        assert idle.id in found
        assert held.id not in found
        assert fresh.id not in found


async def a_session_that_a_client_writes_to_is_not_stale(open_store: StoreFactory) -> None:
    async with open_store() as store:
        old, today = SessionLog(store, clock=lambda: MOMENT), SessionLog(store)
        cutoff = to_micros(MOMENT) + 1
        touched, waiting = await old.create(), await old.create()
        item = await today.submit(touched.id, asks("hello"), sender=TESTER)
        assert (await store.session(touched.id)).updated == item.time
        await old.submit(waiting.id, asks("from long ago"), sender=TESTER)
        assert (await store.session(waiting.id)).updated == waiting.updated
        found = await store.stale(updated_before=cutoff, limit=1000)
        assert not {touched.id, waiting.id} & set(found)
        assert await store.expire([waiting.id], updated_before=cutoff) == []


async def a_session_taken_up_since_it_was_found_stale_is_not_deleted(
    open_store: StoreFactory,
) -> None:
    async with open_store() as store:
        old = SessionLog(store, clock=lambda: MOMENT)
        cutoff = to_micros(MOMENT) + 1
        idle, held, asked, grown, parent = [await old.create() for _ in range(5)]
        made = [session.id for session in (idle, held, asked, grown, parent)]
        assert set(made) <= set(await store.stale(updated_before=cutoff, limit=1000))
        await store.acquire(held.id, owner="me", seconds=60)
        await old.submit(asked.id, asks("still there?"), sender=TESTER)
        writer = await SessionLog(store).hold(grown.id, owner="me", seconds=60)
        await writer.append(says("yes"))
        await writer.release()
        await SessionLog(store).fork(parent.id)
        assert await store.expire([*made, new_id(SESSION)], updated_before=cutoff) == [idle.id]
        for session_id in made[1:]:
            await store.session(session_id)
        with refused(SessionNotFound):
            await store.session(idle.id)


async def a_session_is_created_with_all_that_belongs_to_it_or_not_at_all(
    open_store: StoreFactory,
) -> None:
    async with scene(open_store) as at:
        content = new_id(SESSION).encode()
        waiting = await at.log.submit(at.id, asks("waiting"), client_id="c1", sender=TESTER)
        folded = waiting._replace(client_id="c2", event_id=new_id(EVENT), seq=7)
        session = _bare(new_id(SESSION))
        digest = digest_of(content)
        waiting = waiting._replace(mac=at.store.provenance.item_mac(session.id, waiting))
        await at.store.create(session, [], blobs={digest: content}, inbox=[folded, waiting])
        assert await at.store.blob(digest) == content
        assert await at.store.blobs(session.id) == [digest]
        items = await at.store.inbox(session.id)
        assert [(i.client_id, i.position, i.seq) for i in items] == [("c2", 1, 7), ("c1", 2, None)]
        assert [item.client_id for item in await at.store.pending(session.id)] == ["c1"]
        other = new_id(SESSION).encode()
        with refused(SessionExists):
            await at.store.create(session, [], blobs={digest_of(other): other})
        with refused(BlobNotFound):
            await at.store.blob(digest_of(other))


async def retention_deletes_stale_sessions_forks_first(open_store: StoreFactory) -> None:
    async with open_store() as store:
        log = SessionLog(store, clock=lambda: MOMENT)
        parent = await log.create()
        fork = await log.fork(parent.id)
        kept = await SessionLog(store).create()
        expired = await log.expire(updated_before=MOMENT + timedelta(seconds=1))
        assert expired.index(fork.id) < expired.index(parent.id)
        with refused(SessionNotFound):
            await store.session(parent.id)
        assert await store.session(kept.id) == kept
