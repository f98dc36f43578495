"""Contract: what clients send arrives once, in order, and is folded into the log exactly once."""

from dataclasses import replace

import anyio
from msgspec import structs
from tests.at_once import at_once
from tests.contracts.store_setup import (
    Scene,
    StoreFactory,
    appending,
    asks,
    draft,
    refused,
    says,
    scene,
    take_over,
    texts,
)
from tests.senders import TESTER

from mainspring.core.errors import Conflict, Fenced, InvalidInput, SessionNotFound
from mainspring.core.events import ThreadCreated, UserInterrupt
from mainspring.core.ids import SESSION, new_id
from mainspring.core.sender import Sender
from mainspring.log.session_log import SessionLog
from mainspring.log.store import FoldedItem, Head, InboxItem, Store
from mainspring.log.verify import verify


async def _waiting(at: Scene) -> list[str]:
    return [item.client_id for item in await at.store.pending(at.id)]


async def submitted_events_wait_in_order_of_arrival(open_store: StoreFactory) -> None:
    async with scene(open_store) as at:
        for n in range(20):
            await at.log.submit(at.id, asks(f"{n}"), client_id=f"client {n}", sender=TESTER)
        assert await _waiting(at) == [f"client {n}" for n in range(20)]
        first = await at.store.pending(at.id, limit=2)
        assert [item.client_id for item in first] == ["client 0", "client 1"]


async def the_sender_stays_with_the_event_from_the_inbox_into_the_log(
    open_store: StoreFactory,
) -> None:
    async with scene(open_store) as at:
        sender = Sender(kind="agent", id="agent_1", on_behalf_of=("key_1", "key_2"))
        await at.log.submit(at.id, asks("hello"), sender=sender)
        [folded] = await at.writer.fold_inbox()
        [said] = await at.writer.append(says("hi"))
        again = await SessionLog(at.store).read(at.id, after=folded.seq - 1)
        assert [event.sender for event in again] == [sender, None]
        assert again == [folded, said]
        assert again[1].prev == again[0].digest()
        assert again[0].digest() != structs.replace(again[0], sender=None).digest()


async def submitting_needs_no_lease_and_moves_no_head(open_store: StoreFactory) -> None:
    async with scene(open_store) as at, open_store() as other:
        before = await at.store.session(at.id)
        item = await SessionLog(other).submit(at.id, asks("hello"), sender=TESTER)
        assert await at.store.session(at.id) == replace(before, updated=item.time)
        await at.writer.append(says("undisturbed"))


async def a_client_id_seen_before_gives_back_the_first_item(open_store: StoreFactory) -> None:
    async with scene(open_store) as at:
        first = await at.log.submit(at.id, asks("hello"), client_id="c1", sender=TESTER)
        assert await at.log.submit(at.id, asks("hello"), client_id="c1", sender=TESTER) == first
        assert await _waiting(at) == ["c1"]
        with refused(InvalidInput):
            await at.log.submit(at.id, asks("something else"), client_id="c1", sender=TESTER)


async def client_ids_are_each_sessions_own(open_store: StoreFactory) -> None:
    async with scene(open_store) as at:
        other = await at.log.create()
        here = await at.log.submit(at.id, asks("here"), client_id="c1", sender=TESTER)
        there = await at.log.submit(other.id, asks("there"), client_id="c1", sender=TESTER)
        assert here.event_id != there.event_id


async def one_client_id_submitted_many_times_at_once_is_one_item(open_store: StoreFactory) -> None:
    async with scene(open_store) as at, open_store() as other:
        for round_ in range(5):
            got: list[InboxItem] = []

            async def submit(store: Store, client_id: str, got: list[InboxItem] = got) -> None:
                got.append(
                    await SessionLog(store).submit(
                        at.id, asks("x"), client_id=client_id, sender=TESTER
                    )
                )

            async with anyio.create_task_group() as group:
                for number in range(8):
                    store = (at.store, other)[number % 2]
                    group.start_soon(submit, store, f"round {round_}")
            assert len({item.event_id for item in got}) == 1
        assert await _waiting(at) == [f"round {round_}" for round_ in range(5)]


async def submits_at_once_are_all_kept_each_in_a_place_of_its_own(open_store: StoreFactory) -> None:
    async with scene(open_store) as at, open_store() as other:

        async def submit(store: Store, name: str) -> None:
            for number in range(10):
                await SessionLog(store).submit(
                    at.id, asks("x"), client_id=f"{name} {number}", sender=TESTER
                )

        await at_once(lambda client: submit((at.store, other)[client % 2], f"{client}"), range(8))
        items = await at.store.pending(at.id)
        places = [item.position for item in items]
        assert len(items) == 80
        assert places == sorted(set(places))
        for client in range(8):
            own = [item.client_id for item in items if item.client_id.startswith(f"{client} ")]
            assert own == [f"{client} {number}" for number in range(10)]


async def folding_moves_the_inbox_into_the_log(open_store: StoreFactory) -> None:
    async with scene(open_store) as at:
        first = await at.log.submit(at.id, asks("one"), client_id="c1", sender=TESTER)
        await at.log.submit(at.id, asks("two"), sender=TESTER)
        folded = await at.writer.fold_inbox()
        assert texts(folded) == texts(await at.log.read(at.id)) == ["one", "two"]
        assert folded[0].id == first.event_id
        assert await _waiting(at) == []
        assert await at.writer.fold_inbox() == []
        again = await at.log.submit(at.id, asks("one"), client_id="c1", sender=TESTER)
        assert (again.event_id, again.seq) == (first.event_id, folded[0].seq)
        assert await _waiting(at) == []


async def what_is_submitted_while_folding_is_folded_exactly_once(open_store: StoreFactory) -> None:
    async with scene(open_store) as at, open_store() as other:

        async def submit(client: int) -> None:
            for number in range(20):
                await SessionLog(other).submit(at.id, asks(f"{client} {number}"), sender=TESTER)

        async def fold() -> None:
            while len(texts(await at.log.read(at.id, types=["user.message"]))) < 80:
                if not await at.writer.fold_inbox():
                    await anyio.sleep(0.001)

        async with anyio.create_task_group() as group:
            group.start_soon(fold)
            for client in range(4):
                group.start_soon(submit, client)
        said = texts(await at.log.read(at.id))
        assert len(said) == 80
        for client in range(4):
            own = [text for text in said if text.startswith(f"{client} ")]
            assert own == [f"{client} {number}" for number in range(20)]
        assert (await verify(at.log, at.id)).ok


async def a_refused_append_leaves_the_inbox_as_it_was(open_store: StoreFactory) -> None:
    async with scene(open_store) as at:
        item = await at.log.submit(at.id, asks("still here"), client_id="c1", sender=TESTER)
        stale, head = at.writer.lease, at.writer.head
        lease = await take_over(at.store, stale)
        folded = (FoldedItem(item.position, head.seq + 1),)
        with refused(Fenced):
            await at.store.append(appending(stale, head, draft(says("x")), folded_items=folded))
        elsewhere = Head(head.seq, b"\1" * 32)
        with refused(Conflict):
            append = appending(lease, elsewhere, draft(says("x")), folded_items=folded)
            await at.store.append(append)
        assert await _waiting(at) == ["c1"]


async def submitting_to_an_unknown_session_is_refused(open_store: StoreFactory) -> None:
    async with scene(open_store) as at:
        item = await at.log.submit(at.id, asks("hello"), sender=TESTER)
        with refused(SessionNotFound):
            await at.store.submit(new_id(SESSION), item)


async def what_waits_is_found_behind_much_else(open_store: StoreFactory) -> None:
    async with scene(open_store) as at:
        for _ in range(3):
            await at.log.submit(at.id, asks("do this"), sender=TESTER)
        stop = await at.log.submit(at.id, UserInterrupt(), sender=TESTER)
        wanted = frozenset({"user.interrupt"})
        assert await at.store.pending(at.id, types=wanted, limit=1) == [stop]
        assert await at.store.pending(at.id, types=frozenset()) == []
        assert await at.store.pending(at.id, after=stop.position - 1) == [stop]
        assert await at.store.pending(at.id, after=stop.position) == []
        await at.writer.fold_inbox()
        assert await at.store.pending(at.id, types=wanted) == []
        assert [item.seq for item in await at.store.inbox(at.id, after=1)] == [3, 4, 5]
        assert len(await at.store.inbox(at.id, limit=2)) == 2


async def an_event_for_a_thread_that_is_not_there_is_refused(open_store: StoreFactory) -> None:
    async with scene(open_store) as at:
        await at.writer.append(ThreadCreated(session_thread_id="sthr_2", agent_name="helper"))
        fork = await at.log.fork(at.id)
        for id_ in (at.id, fork.id):
            for thread_id in (at.thread_id, "sthr_2"):
                kept = await at.log.submit(id_, asks("hello"), thread_id=thread_id, sender=TESTER)
                assert kept.thread_id == thread_id
            with refused(InvalidInput):
                await at.log.submit(id_, asks("hello"), thread_id="sthr_3", sender=TESTER)
