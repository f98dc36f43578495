"""Contract: a session that has something to do and nobody to do it is found."""

from tests.contracts.store_setup import StoreFactory, asks, refused, says, scene, until
from tests.senders import TESTER

from mainspring.core.errors import LeaseHeld
from mainspring.log.session_log import SessionLog
from mainspring.log.store import Store


async def _is_runnable(store: Store, session_id: str) -> bool:
    return session_id in await store.runnable(limit=10_000)


async def a_session_nobody_wrote_to_is_not_runnable(open_store: StoreFactory) -> None:
    async with scene(open_store) as at:
        await at.writer.append(says("done"))
        assert not await _is_runnable(at.store, at.id)
        await at.writer.release()
        assert not await _is_runnable(at.store, at.id)


async def what_waits_in_an_inbox_makes_a_free_session_runnable(open_store: StoreFactory) -> None:
    async with open_store() as store, open_store() as other:
        log = SessionLog(store)
        session_id = (await log.create()).id
        await log.submit(session_id, asks("hello"), sender=TESTER)
        await log.submit(session_id, asks("are you there?"), sender=TESTER)
        assert (await other.runnable(limit=10_000)).count(session_id) == 1
        writer = await log.hold(session_id, owner="worker", seconds=60)
        assert not await _is_runnable(other, session_id)
        await writer.release()  # without having looked
        assert await _is_runnable(other, session_id)
        writer = await log.hold(session_id, owner="worker", seconds=60)
        await writer.fold_inbox()
        await writer.release()
        assert not await _is_runnable(other, session_id)


async def a_session_whose_holder_died_becomes_runnable(open_store: StoreFactory) -> None:
    async with open_store() as store:
        log = SessionLog(store)
        session_id = (await log.create()).id
        await store.acquire(session_id, owner="will die", seconds=0.2)

        async def is_found() -> bool:
            return await _is_runnable(store, session_id)

        await until(is_found)
        taken = await store.acquire(session_id, owner="next", seconds=60)
        assert not await is_found()
        with refused(LeaseHeld):
            await store.acquire(session_id, owner="too late", seconds=60)
        await store.release(taken)
        assert not await is_found()


async def a_deleted_session_is_not_runnable(open_store: StoreFactory) -> None:
    async with open_store() as store:
        log = SessionLog(store)
        session_id = (await log.create()).id
        await log.submit(session_id, asks("hello"), sender=TESTER)
        await store.delete(session_id)
        assert not await _is_runnable(store, session_id)


async def the_longest_waiting_session_is_found_first(open_store: StoreFactory) -> None:
    async with open_store() as store:
        log = SessionLog(store)
        ids = [(await log.create()).id for _ in range(3)]
        for session_id in (ids[1], ids[2], ids[0]):
            await log.submit(session_id, asks("hello"), sender=TESTER)
        found = await store.runnable(limit=10_000)
        assert [item for item in found if item in ids] == [ids[1], ids[2], ids[0]]
        assert await store.runnable(limit=1) == found[:1]
