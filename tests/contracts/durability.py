"""Contract: what was acknowledged stays, and a write is not cut in half."""

import anyio
from tests.contracts.store_setup import (
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

from mainspring.core.errors import Fenced
from mainspring.log.session_log import SessionLog
from mainspring.log.verify import verify


async def a_session_outlives_the_process_that_wrote_it(open_store: StoreFactory) -> None:
    async with scene(open_store) as at:
        await at.writer.append(says("remember"))
        await at.log.submit(at.id, asks("and this"), client_id="c1", sender=TESTER)
        blob = await at.log.put_blob(at.id, b"large", media_type="text/plain")
        session_id, before = at.id, await at.store.session(at.id)
    async with open_store() as store:
        log = SessionLog(store)
        assert await store.session(session_id) == before
        assert texts(await log.read(session_id)) == ["remember"]
        assert [item.client_id for item in await store.pending(session_id)] == ["c1"]
        assert await log.blob(blob.hash) == b"large"


async def a_lease_outlives_the_process_that_held_it(open_store: StoreFactory) -> None:
    async with scene(open_store) as at:
        stale = at.writer.lease
    async with open_store() as store:
        assert (await store.session(stale.session_id)).owner == stale.owner
        await take_over(store, stale)
        head = (await store.session(stale.session_id)).head
        with refused(Fenced):
            await store.append(appending(stale, head, draft(says("from the dead"))))


async def what_one_process_writes_another_reads_at_once(open_store: StoreFactory) -> None:
    async with scene(open_store) as at, open_store() as other:
        reader = SessionLog(other)
        for number in range(20):
            [written] = await at.writer.append(says(f"{number}"))
            assert await reader.tail(at.id, 1) == [written]


async def a_cancelled_append_was_not_begun_or_is_finished(open_store: StoreFactory) -> None:
    async with scene(open_store) as at:
        for n in range(60):
            head = (await at.store.session(at.id)).head
            append = appending(at.writer.lease, head, draft(says(f"{n}a")), draft(says(f"{n}b")))
            is_finished = False
            with anyio.move_on_after(n * 0.0001):
                await at.store.append(append)
                is_finished = True
            assert (await at.store.session(at.id)).head == (append.head if is_finished else head)
        assert (await verify(at.log, at.id)).ok


async def a_cancelled_reader_leaves_the_store_usable(open_store: StoreFactory) -> None:
    async with scene(open_store) as at:
        await at.writer.append(*(says("x" * 1000) for _ in range(500)))
        for number in range(40):
            with anyio.move_on_after(number * 0.0002):
                await at.log.read(at.id)
        assert len(await at.log.read(at.id)) == 501
