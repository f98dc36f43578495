"""Contract: a deleted session leaves nothing behind, and takes nothing that is not its own."""

from tests.contracts.store_setup import ENDLESS, StoreFactory, asks, refused, says, scene, texts
from tests.senders import TESTER

from mainspring.core.errors import BlobNotFound, SessionHasForks, SessionNotFound
from mainspring.core.ids import EVENT, new_id
from mainspring.log.search import search
from mainspring.log.store import EventRange


async def deleting_removes_events_inbox_blobs_and_words(open_store: StoreFactory) -> None:
    async with scene(open_store) as at:
        secret = new_id(EVENT).replace("_", "")
        blob = await at.log.put_blob(at.id, secret.encode(), media_type="text/plain")
        await at.writer.append(says(secret))
        await at.log.submit(at.id, asks(secret), client_id="c1", sender=TESTER)
        assert len(await search(at.log, secret)) == 1
        await at.log.delete(at.id)
        with refused(SessionNotFound):
            await at.store.session(at.id)
        with refused(BlobNotFound):
            await at.log.blob(blob.hash)
        assert await at.store.read(EventRange(session_id=at.id, after=0, upto=ENDLESS)) == []
        assert await search(at.log, secret) == []


async def an_id_used_again_has_nothing_of_the_session_before(open_store: StoreFactory) -> None:
    async with scene(open_store) as at:
        first = await at.store.session(at.id)
        rows = await at.store.read(EventRange(session_id=at.id, after=0, upto=1))
        await at.log.put_blob(at.id, b"old", media_type="text/plain")
        await at.log.submit(at.id, asks("old"), client_id="c1", sender=TESTER)
        await at.writer.append(says("old"))
        await search(at.log, "old", session_id=at.id)
        await at.log.delete(at.id)
        await at.store.create(first, rows)
        assert (await at.store.session(at.id)).owner is None
        assert texts(await at.log.read(at.id)) == []
        assert await at.store.pending(at.id) == []
        assert await at.store.blobs(at.id) == []
        assert await search(at.log, "old", session_id=at.id) == []
        assert (await at.log.submit(at.id, asks("new"), client_id="c1", sender=TESTER)).seq is None


async def deleting_leaves_other_sessions_alone(open_store: StoreFactory) -> None:
    async with scene(open_store) as at:
        other = await at.log.create()
        await at.writer.append(says("needle"))
        await at.log.submit(at.id, asks("waiting"), sender=TESTER)
        assert len(await search(at.log, "needle", session_id=at.id)) == 1
        await at.log.delete(other.id)
        assert texts(await at.log.read(at.id)) == ["needle"]
        assert len(await at.store.pending(at.id)) == 1
        assert len(await search(at.log, "needle", session_id=at.id)) == 1


async def a_session_with_forks_is_not_deleted_from_under_them(open_store: StoreFactory) -> None:
    async with scene(open_store) as at:
        await at.writer.append(says("history"))
        forks = {(await at.log.fork(at.id)).id for _ in range(2)}
        with refused(SessionHasForks) as refusal:
            await at.store.delete(at.id)
        assert set(refusal.error.forks) == forks
        for session_id in (at.id, *forks):
            assert texts(await at.log.read(session_id)) == ["history"]


async def deleting_with_forks_takes_the_whole_tree(open_store: StoreFactory) -> None:
    async with scene(open_store) as at:
        child = await at.log.fork(at.id)
        grandchild = await at.log.fork(child.id)
        await at.log.delete(at.id, cascade=True)
        for session_id in (at.id, child.id, grandchild.id):
            with refused(SessionNotFound):
                await at.store.session(session_id)


async def the_writer_of_a_deleted_session_is_told(open_store: StoreFactory) -> None:
    async with scene(open_store) as at, open_store() as other:
        await other.delete(at.id)
        with refused(SessionNotFound):
            await at.writer.append(says("anybody there?"))
        with refused(SessionNotFound):
            await at.log.submit(at.id, asks("anybody there?"), sender=TESTER)
        with refused(SessionNotFound):
            await at.writer.renew()
