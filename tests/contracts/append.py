"""Contract: an append is whole, conditional and exact."""

from dataclasses import replace

import anyio
from tests.at_once import at_once
from tests.contracts.store_setup import (
    ENDLESS,
    MOMENT,
    Scene,
    StoreFactory,
    appending,
    draft,
    foreign,
    refused,
    says,
    scene,
    take_over,
    texts,
)

from mainspring.core.clock import to_micros
from mainspring.core.errors import Conflict, Fenced, SessionNotFound
from mainspring.core.ids import SESSION, new_id
from mainspring.log.session_log import SessionLog
from mainspring.log.store import Append, EventRange, Head, Store
from mainspring.log.verify import verify

AWKWARD = (
    "naïve café, Ærøskøbing, Привет, 你好, مرحبا, हिन्दी",
    "👩🏽‍🚀 🏴󠁧󠁢󠁥󠁮󠁧󠁿 \U0010ffff",
    "a NUL \0 inside, and \x01\x1f\x7f\x85\u2028\ufeff",
    "quotes ' \" ` \\ \\u0000 {} [] %s $1 ?1 :name /* */ --",
    "line\nline\r\nline\ttab",
    "",
)


async def a_batch_is_appended_whole_and_in_order(open_store: StoreFactory) -> None:
    async with scene(open_store) as at:
        written = await at.writer.append(says("one"), says("two"), says("three"))
        assert [event.seq for event in written] == [2, 3, 4]
        assert (await at.log.read(at.id))[1:] == written
        assert (await verify(at.log, at.id)).ok


async def an_append_moves_the_head_and_the_time_of_update(open_store: StoreFactory) -> None:
    async with scene(open_store) as at:
        append = appending(at.writer.lease, at.writer.head, draft(says("hello")))
        await at.store.append(append)
        session = await at.store.session(at.id)
        assert session.head == append.head
        assert session.updated == to_micros(MOMENT)


async def an_append_elsewhere_than_at_the_end_is_a_conflict(open_store: StoreFactory) -> None:
    async with scene(open_store) as at:
        start = at.writer.head
        await at.writer.append(says("first"))
        with refused(Conflict) as refusal:
            await at.store.append(appending(at.writer.lease, start, draft(says("second"))))
        assert (refusal.error.expected, refusal.error.actual) == (start.seq, start.seq + 1)
        await _has_only(at, "first")


async def an_append_beyond_the_end_is_a_conflict(open_store: StoreFactory) -> None:
    async with scene(open_store) as at:
        beyond = Head(at.writer.head.seq + 1, at.writer.head.hash)
        with refused(Conflict):
            await at.store.append(appending(at.writer.lease, beyond, draft(says("lost"))))
        await _has_only(at)


async def an_append_on_another_hash_is_a_conflict(open_store: StoreFactory) -> None:
    async with scene(open_store) as at:
        other = Head(at.writer.head.seq, b"\1" * 32)
        with refused(Conflict):
            await at.store.append(appending(at.writer.lease, other, draft(says("forged"))))
        await _has_only(at)


async def an_append_with_a_replaced_lease_is_fenced(open_store: StoreFactory) -> None:
    async with scene(open_store) as at:
        stale = at.writer.lease
        lease = await take_over(at.store, stale)
        with refused(Fenced) as refusal:
            await at.store.append(appending(stale, at.writer.head, draft(says("late"))))
        assert (refusal.error.epoch, refusal.error.current) == (stale.epoch, lease.epoch)
        await _has_only(at)


async def a_fenced_writer_hears_that_and_not_of_a_conflict(open_store: StoreFactory) -> None:
    async with scene(open_store) as at:
        stale, start = at.writer.lease, at.writer.head
        seen = (stale.owner, stale.epoch)
        successor = await at.log.hold(at.id, owner="next", seconds=60, instead_of=seen)
        await successor.append(says("new"))
        with refused(Fenced):
            await at.store.append(appending(stale, start, draft(says("late"))))
        await _has_only(at, "new")


async def a_lease_of_one_session_does_not_open_another(open_store: StoreFactory) -> None:
    async with scene(open_store) as at:
        other = await at.log.create()
        stolen = replace(at.writer.lease, session_id=other.id)
        with refused(Fenced):
            await at.store.append(appending(stolen, other.head, draft(says("stolen"))))


async def an_append_to_an_unknown_session_is_refused(open_store: StoreFactory) -> None:
    async with scene(open_store) as at:
        lost = replace(at.writer.lease, session_id=new_id(SESSION))
        with refused(SessionNotFound):
            await at.store.append(appending(lost, at.writer.head, draft(says("lost"))))


async def an_append_repeated_is_refused_and_not_written_twice(open_store: StoreFactory) -> None:
    async with scene(open_store) as at:
        append = appending(at.writer.lease, at.writer.head, draft(says("once")))
        await at.store.append(append)
        with refused(Conflict):
            await at.store.append(append)
        await _has_only(at, "once")


async def a_thousand_events_are_one_append(open_store: StoreFactory) -> None:
    async with scene(open_store) as at:
        said = [f"event {number}" for number in range(1000)]
        await at.writer.append(*map(says, said))
        assert texts(await at.log.read(at.id)) == said
        assert (await verify(at.log, at.id)).ok


async def bodies_come_back_byte_for_byte(open_store: StoreFactory) -> None:
    async with scene(open_store) as at:
        for text in (*AWKWARD, "x" * 3_000_000):
            [written] = await at.writer.append(says(text))
            [read] = await at.log.tail(at.id, 1)
            assert read == written
        assert (await verify(at.log, at.id)).ok


async def an_event_of_an_unknown_type_passes_through(open_store: StoreFactory) -> None:
    async with scene(open_store) as at:
        body = b'{ "type":"future.thing",  "n": 1e400, "s": "\\u0000\\ud83d\\ude00" }'
        await at.store.append(
            appending(at.writer.lease, at.writer.head, foreign(body, "future.thing"))
        )
        [event] = await at.log.read(at.id, types=["future.thing"])
        assert event.body == body
        assert (await verify(at.log, at.id)).ok


async def of_appends_at_once_exactly_one_gets_each_seq(open_store: StoreFactory) -> None:
    async with scene(open_store) as at, open_store() as other:
        won: list[int] = []

        async def race(store: Store, append: Append) -> None:
            try:
                await store.append(append)
            except Conflict:
                return
            won.append(append.head.seq)

        for _ in range(10):
            head = (await at.store.session(at.id)).head
            async with anyio.create_task_group() as group:
                for runner in range(8):
                    append = appending(at.writer.lease, head, draft(says(f"runner {runner}")))
                    group.start_soon(race, (at.store, other)[runner % 2], append)
        assert won == list(range(2, 12))
        assert (await verify(at.log, at.id)).ok


async def sixty_four_sessions_are_appended_to_at_once(open_store: StoreFactory) -> None:
    async with open_store() as store:
        log = SessionLog(store)
        made = [await log.create() for _ in range(64)]

        async def write(session_id: str) -> None:
            writer = await log.hold(session_id, owner=session_id, seconds=60)
            for number in range(10):
                await writer.append(says(f"{number}"))

        await at_once(lambda session: write(session.id), made)
        for session in made:
            assert texts(await log.read(session.id)) == [f"{number}" for number in range(10)]


async def _has_only(at: Scene, *said: str) -> None:
    """Nothing of what was refused may be there: neither the rows nor a moved head."""
    rows = await at.store.read(EventRange(session_id=at.id, after=0, upto=ENDLESS))
    assert len(rows) == 1 + len(said)
    assert texts(await at.log.read(at.id)) == list(said)
    assert (await verify(at.log, at.id)).ok
