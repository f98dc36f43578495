"""Contract: a transaction sees one moment, and what it writes becomes so together."""

from tests.contracts.store_setup import StoreFactory, asks, refused, says, scene, texts
from tests.senders import TESTER

from mainspring.core.errors import NotFound, SessionNotFound, StoreFailed
from mainspring.core.ids import new_id
from mainspring.log.records import Put, RecordRow
from mainspring.log.session_log import SessionLog


def _record() -> RecordRow:
    return RecordRow(
        kind=new_id("kind"), tenant="t", id="a", created=1, updated=1, body=b"{}", name="n"
    )


async def a_transaction_does_not_see_what_is_written_meanwhile(open_store: StoreFactory) -> None:
    record = _record()
    async with scene(open_store) as at, at.store.transaction(writes=False) as then:
        await at.writer.append(says("later"))
        await at.log.submit(at.id, asks("later, too"), sender=TESTER)
        await at.store.put_blob(at.id, new_id("sha256"), b"later")
        await at.store.records.write(Put(row=record))
        later = await at.log.create()
        assert texts(await SessionLog(then).read(at.id)) == []
        assert (await then.session(at.id)).head.seq == 1
        assert await then.inbox(at.id) == []
        assert await then.blobs(at.id) == []
        with refused(SessionNotFound):
            await then.session(later.id)
        with refused(NotFound):
            await then.records.get(record.kind, record.id)
        assert texts(await at.log.read(at.id)) == ["later"]


async def a_transaction_for_reading_is_not_written_to(open_store: StoreFactory) -> None:
    async with open_store() as store:
        with refused(StoreFailed):
            async with store.transaction(writes=False) as then:
                await SessionLog(then).create()


async def what_a_transaction_writes_is_there_when_it_ends(open_store: StoreFactory) -> None:
    record = _record()
    async with open_store() as store, open_store() as other:
        async with store.transaction(writes=True) as together:
            log = SessionLog(together)
            session = await log.create()
            await log.submit(session.id, asks("hello"), sender=TESTER)
            [kept] = await together.records.write(Put(row=record, content=b"content"))
            assert await together.records.get(record.kind, "a") == kept
            with refused(SessionNotFound):
                await other.session(session.id)
        assert (await other.session(session.id)).head == session.head
        assert len(await other.pending(session.id)) == 1
        assert await other.records.content(record.kind, "a") == b"content"


async def what_a_broken_transaction_wrote_is_gone(open_store: StoreFactory) -> None:
    record = _record()
    async with open_store() as store:
        written: list[str] = []
        with refused(NotFound):
            async with store.transaction(writes=True) as together:
                written.append((await SessionLog(together).create()).id)
                await together.records.write(Put(row=record))
                await together.records.tally([(record.kind, 1)])
                raise NotFound("reason", "to go on")
        with refused(SessionNotFound):
            await store.session(written[0])
        with refused(NotFound):
            await store.records.get(record.kind, "a")
        assert await store.records.tally([(record.kind, 0)]) == [0]
        await store.records.write(Put(row=record))
