"""Contract: what this installation did not write is kept and shown, and takes no effect."""

from dataclasses import replace

from tests.contracts.store_setup import StoreFactory, asks, refused, says, scene, texts
from tests.senders import TESTER

from mainspring.core.errors import Conflict, ForeignRecord, ForeignSession
from mainspring.core.ids import EVENT, SESSION, new_id
from mainspring.log.event_chain import EventDraft, chain_events, to_row
from mainspring.log.records import Put, RecordQuery, RecordRow, Replace
from mainspring.log.session_log import SessionLog
from mainspring.log.store import EventRange, Head, SessionRow, Store


async def _foreign(store: Store, log: SessionLog) -> SessionRow:
    """A session as an import stores it: whole, without a MAC of ours."""
    template = await log.create()
    [event] = await log.read(template.id)
    session_id = new_id(SESSION)
    draft = EventDraft(
        id=new_id(EVENT),
        thread_id=template.thread_id,
        time=event.time,
        payload=event.payload,
        body=event.body,
    )
    [copied], head = chain_events(session_id, Head(0, event.prev), [draft])
    session = replace(template, id=session_id, head=head, mac=None)
    await store.create(session, [to_row(copied)])
    return await store.session(session_id)


async def a_foreign_session_is_read_but_neither_continued_nor_forked(
    open_store: StoreFactory,
) -> None:
    async with scene(open_store) as at:
        session = await _foreign(at.store, at.log)
        assert not at.log.is_own(session)
        assert len(await at.log.read(session.id)) == 1
        with refused(ForeignSession):
            await at.log.hold(session.id, owner="me")
        with refused(ForeignSession):
            await at.log.fork(session.id)
        assert (await at.log.session(session.id)).owner is None


async def an_adopted_session_keeps_only_the_messages_that_were_adopted(
    open_store: StoreFactory,
) -> None:
    async with scene(open_store) as at:
        session = await _foreign(at.store, at.log)
        own = await at.log.submit(session.id, asks("ours"), sender=TESTER)
        for text in ("first", "second"):
            item = own._replace(client_id=text, event_id=new_id(EVENT), mac=None)
            await at.store.submit(session.id, item)
        assert [item.client_id for item in await at.store.pending(session.id)] == [own.client_id]
        _, first, second = await at.store.inbox(session.id)
        first = first._replace(mac=at.store.provenance.item_mac(session.id, first))
        with refused(Conflict):
            await at.store.adopt(session.id, Head(9, b""), [first, second])
        await at.store.adopt(session.id, session.head, [first, second])
        pending = [item.client_id for item in await at.store.pending(session.id)]
        assert pending == [own.client_id, "first"]
        assert len(await at.store.inbox(session.id)) == 2
        writer = await at.log.hold(session.id, owner="me")
        await writer.append(says("continued"))
        assert texts(await at.log.read(session.id)) == ["continued"]


async def an_append_without_a_mac_makes_the_session_foreign(open_store: StoreFactory) -> None:
    async with scene(open_store) as at:
        before = await at.log.session(at.id)
        await at.writer.append(says("ours"))
        [row] = await at.store.read(EventRange(session_id=at.id, after=before.head.seq, upto=99))
        assert row.seq == before.head.seq + 1
        assert at.log.is_own(await at.log.session(at.id))
        assert not at.log.is_own(replace(await at.log.session(at.id), head=before.head))


async def a_foreign_record_is_kept_for_backups_and_has_no_effect(open_store: StoreFactory) -> None:
    kind = new_id("kind")
    row = RecordRow(tenant="t", kind=kind, id="a", created=1, updated=1, body=b"{}", name="n")
    async with open_store() as store:
        await store.records.write(Put(row=row, content=b"theirs", keeps_mac=True))
        for attempt in (
            lambda: store.records.get(kind, "a"),
            lambda: store.records.named(kind, "n", tenant="t"),
            lambda: store.records.list(RecordQuery(kind=kind)),
            lambda: store.records.content(kind, "a"),
        ):
            with refused(ForeignRecord):
                await attempt()
        whole = await store.records.whole(kind, "a")
        assert whole.content == b"theirs"
        await store.records.write(Replace(row=whole.row))
        assert await store.records.content(kind, "a") == b"theirs"
        assert (await store.records.get(kind, "a")).rev == 2
