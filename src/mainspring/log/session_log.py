"""The session log: create, fork, read, follow, submit, delete. A `Writer` appends."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Callable, Iterable, Sequence
from contextlib import suppress
from dataclasses import replace
from datetime import datetime
from functools import partial

import anyio.lowlevel

from mainspring.core import ids
from mainspring.core.clock import Clock, now, to_micros
from mainspring.core.content import BlobSource
from mainspring.core.envelope import CLIENT_TYPES, FORMAT, GENESIS, Event, event_types, payload_type
from mainspring.core.errors import (
    EventIdTaken,
    InvalidInput,
    LogError,
    SessionGone,
    SessionHasForks,
    StoreFailed,
)
from mainspring.core.events import (
    ClientPayload,
    SessionCreated,
    SessionForked,
    SessionReceived,
    ThreadCreated,
)
from mainspring.core.sender import Sender, encode_sender
from mainspring.log import blobs
from mainspring.log.event_chain import (
    EventDraft,
    Scrub,
    chain_events,
    encode_scrubbed,
    encode_scrubbed_aside,
    no_scrub,
    to_event,
    to_row,
)
from mainspring.log.lineages import (
    ENDLESS,
    HistorySegment,
    Lineages,
    SessionRead,
    read_together,
)
from mainspring.log.provenance import OwnLog
from mainspring.log.session_activity import (
    ACTIVITY_TYPES,
    SessionActivity,
    activity_note,
    current_activity,
    encode_activity,
    fold_activity,
)
from mainspring.log.session_status import STATUS_EVENTS, ThreadStatus, status_change
from mainspring.log.store import Head, InboxItem, Row, SessionRow, Store
from mainspring.log.task_groups import retry_unavailable
from mainspring.log.writer import RECEIVED, Writer, require_not_moved

_PAGE = 1000  # events read at once
_LONG_PAGE = 4000
"""Page size for reading a whole log; each page costs a switch to a thread."""


class SessionLog:
    """All sessions of one store. Cheap to create; all its state is in the store."""

    def __init__(
        self,
        store: Store,
        *,
        clock: Clock = now,
        new_id: Callable[[str], str] = ids.new_id,
        scrub: Scrub = no_scrub,
    ) -> None:
        """`scrub` removes secrets from everything that is written."""
        self.store = store
        self.scrub = scrub
        self._clock = clock
        self._new_id = new_id
        self._lineages = Lineages(store)

    async def create(
        self,
        created: SessionCreated | None = None,
        *,
        session_id: str | None = None,
        sender: Sender | None = None,
    ) -> SessionRow:
        """Create a session. With `session_id` a retry does not create a second one.

        Raises: SessionExists.
        """
        return await self._create_session(
            created or SessionCreated(),
            session_id=session_id,
            sender=sender,
            thread_id=self._new_id(ids.THREAD),
            base=Head(0, GENESIS),
            parent_id=None,
        )

    async def fork(
        self,
        session_id: str,
        *,
        at: int | None = None,
        title: str | None = None,
        fork_id: str | None = None,
        sender: Sender | None = None,
    ) -> SessionRow:
        """Create a session that starts with this one's events up to `at`, without copying them.
        With `fork_id` a retry does not create a second one.

        Raises:
            InvalidInput: there is no event `at`.
            ForeignSession: this installation did not write the session.
        """
        parent = await self.store.session(session_id)
        await self.store.provenance.require_own(self.store, parent)
        at = parent.head.seq if at is None else at
        if not 1 <= at <= parent.head.seq:
            raise InvalidInput(
                f"session {session_id} has events 1 to {parent.head.seq}; it cannot fork at {at}"
            )
        [last] = await self.read(session_id, after=at - 1, limit=1)
        later = await self.read(session_id, after=at, types=[RECEIVED])
        received = [item.payload for item in later if isinstance(item.payload, SessionReceived)]
        return await self._create_session(  # rules from before a move belong to another machine
            SessionForked(parent_session_id=session_id, parent_seq=at, title=title),
            *received[-1:],
            thread_id=parent.thread_id,
            base=Head(at, last.digest()),
            parent_id=last.session_id,  # the owner of the event: chains of forks stay short
            session_id=fork_id,
            sender=sender,
        )

    async def _create_session(
        self,
        *first_payloads: SessionCreated | SessionForked | SessionReceived,
        thread_id: str,
        base: Head,
        parent_id: str | None,
        session_id: str | None,
        sender: Sender | None,
    ) -> SessionRow:
        session_id = session_id or self._new_id(ids.SESSION)
        moment = self._clock()
        drafts = [
            EventDraft(
                id=self._new_id(ids.EVENT),
                thread_id=thread_id,
                time=moment,
                payload=payload,
                body=body,
                sender=sender,
            )
            for payload, body in (encode_scrubbed(item, self.scrub) for item in first_payloads)
        ]
        events, head = chain_events(session_id, base, drafts)
        activity = fold_activity(thread_id, events) if parent_id is None else None
        session = SessionRow(
            id=session_id,
            thread_id=thread_id,
            created=to_micros(moment),
            updated=to_micros(moment),
            head=head,
            parent_id=parent_id,
            parent_seq=base.seq,
            activity=None if activity is None else encode_activity(activity),
            mac=self.store.provenance.log_mac(session_id, head),
            status=await self._inherited_status(base, parent_id, thread_id)
            if activity is None
            else activity.status,
        )
        await self.store.create(session, [to_row(event) for event in events])
        if parent_id is None:
            self.store.provenance.note_created(session_id, head)
        return session

    async def _inherited_status(
        self, base: Head, parent_id: str | None, thread_id: str
    ) -> ThreadStatus:
        """A fork runs nothing: it is idle, unless its events end a session."""
        if parent_id is None:
            return "idle"
        changes = await self.read(
            parent_id, upto=base.seq, types=event_types(*STATUS_EVENTS), threads=[thread_id]
        )
        statuses = [
            change.status
            for event in changes
            if isinstance(event.payload, STATUS_EVENTS)
            and (change := status_change(event, event.payload)).thread_id == thread_id
        ]
        return "terminated" if statuses[-1:] == ["terminated"] else "idle"

    async def session(self, session_id: str) -> SessionRow:
        row = await self.store.session(session_id)
        self.note_row(row)
        return row

    def note_row(self, row: SessionRow) -> None:
        """Take the history of a session from its row: it need not be read again."""
        self._lineages.note_row(row)

    async def sessions(
        self, *, before: SessionRow | None = None, limit: int = 100
    ) -> list[SessionRow]:
        """Newest first; `before` is the last session of the previous page."""
        return await self.store.sessions(before=before, limit=limit)

    async def hold(
        self,
        session_id: str,
        *,
        owner: str,
        seconds: float = 30,
        instead_of: tuple[str, int] | None = None,
        is_receiving: bool = False,
    ) -> Writer:
        """Acquire the session's lease, and with it the right to append.

        `instead_of`: the owner and epoch of a `LeaseHeld` whose holder has certainly ended.
        `is_receiving`: only `session.received` is appended to a session of another installation.

        Raises:
            LeaseHeld: another writer holds it, perhaps under the same name.
            SessionGone: the session was moved to another store.
            ForeignSession: this installation did not write it, and not `is_receiving`.
        """
        lease = await self.store.acquire(
            session_id, owner=owner, seconds=seconds, instead_of=instead_of
        )
        try:
            session, own_log = await self._checked(session_id, is_receiving=is_receiving)
        except LogError:
            await self.store.release(lease)
            raise
        activity = encode_activity(await self.activity(session))
        session = replace(session, activity=activity)
        return Writer(
            self.store,
            lease,
            session,
            clock=self._clock,
            new_id=self._new_id,
            scrub=self.scrub,
            own_log=own_log,
        )

    async def _checked(
        self, session_id: str, *, is_receiving: bool
    ) -> tuple[SessionRow, OwnLog | None]:
        """The session, with the proof that it is our own. Raises: SessionGone, ForeignSession."""
        session = await self.session(session_id)
        if is_receiving and not self.is_own(session):
            return session, None
        if not is_receiving:
            await require_not_moved(self.store, session_id)
        return session, await self.store.provenance.require_own(self.store, session)

    async def own(self, session_id: str) -> OwnLog:
        """The proof that this installation wrote the session. Raises: ForeignSession."""
        session = await self.store.session(session_id)
        return await self.store.provenance.require_own(self.store, session)

    def is_own(self, session: SessionRow) -> bool:
        """Whether this installation wrote it, as far as the end of its log shows."""
        return self.store.provenance.is_own(session)

    async def delete(self, session_id: str, *, cascade: bool = False) -> None:
        """Delete a session and the blobs that no other session uses.

        Raises:
            SessionHasForks: forks need its events, and `cascade` is false.
        """
        try:
            await self.store.delete(session_id)
        except SessionHasForks as error:
            if not cascade:
                raise
            for fork in error.forks:
                await self.delete(fork, cascade=True)
            await self.store.delete(session_id)
        self._lineages.forget(session_id)

    async def expire(self, *, updated_before: datetime) -> list[str]:
        """Delete sessions without a lease that have not changed since then; returns their ids.

        Sessions with a pending inbox, and parents of remaining forks, stay.
        """
        expired: list[str] = []
        skipped: set[str] = set()
        before = to_micros(updated_before)
        while True:
            stale = await self.store.stale(updated_before=before, limit=100 + len(skipped))
            stale = [session_id for session_id in stale if session_id not in skipped]
            if not stale:
                return expired
            deleted = await self.store.expire(stale, updated_before=before)
            for session_id in deleted:
                self._lineages.forget(session_id)
            expired += deleted
            # parents of the deleted sessions may expire now
            skipped = set() if deleted else skipped.union(stale)

    async def read(
        self,
        session_id: str,
        *,
        after: int = 0,
        upto: int = ENDLESS,
        types: Iterable[str] | None = None,
        threads: Iterable[str] | None = None,
        limit: int | None = None,
    ) -> list[Event]:
        """Events with `after < seq <= upto`, in order, including inherited ones; all by default.

        Raises:
            SessionNotFound
        """
        events: list[Event] = []
        type_set = None if types is None else frozenset(types)
        thread_set = None if threads is None else frozenset(threads)
        for segment in await self.lineage(session_id):
            segment = segment._replace(upto=min(upto, segment.upto))
            while after < segment.upto and (limit is None or len(events) < limit):
                page_size = _LONG_PAGE if limit is None else min(_LONG_PAGE, limit - len(events))
                page = segment.page(after, page_size)
                rows = await self.store.read(replace(page, types=type_set, threads=thread_set))
                events += [to_event(segment.session_id, row) for row in rows]
                if len(rows) < page_size:
                    break
                after = rows[-1].seq
        if not events:
            await self.store.session(session_id)  # raises if there is no such session
        return events

    async def read_many(
        self,
        sessions: Sequence[tuple[SessionRow, int]],
        *,
        types: frozenset[str],
        limit: int | None = None,
    ) -> list[tuple[SessionRow, list[Event]]]:
        """Like `read`, for several sessions, each after a position: the number of statements
        depends on the longest of them, not on their number. Deleted ones have no events."""
        lineages = await self._lineages.of_many([session for session, _ in sessions])
        reads = [SessionRead(lineages[row.id], after) for row, after in sessions]
        await read_together(self.store, reads, types=types, limit=limit)
        return [(row, read.events) for (row, _), read in zip(sessions, reads, strict=True)]

    async def tail(self, session_id: str, count: int) -> list[Event]:
        """The last `count` events, in order; the cost does not depend on the log's length."""
        events: list[Event] = []
        for segment in reversed(await self.lineage(session_id)):
            if len(events) >= count:
                break
            page = segment.page(segment.after, count - len(events))
            rows = await self.store.read(replace(page, backwards=True))
            events += [to_event(segment.session_id, row) for row in rows]
        events.reverse()
        if not events:
            await self.store.session(session_id)
        return events

    async def follow(
        self,
        session_id: str,
        *,
        after: int = 0,
        types: Iterable[str] | None = None,
        threads: Iterable[str] | None = None,
    ) -> AsyncGenerator[Event, None]:
        """Events with `seq > after`, then new ones as they are appended, each exactly once.

        Raises:
            SessionNotFound: there is no such session, or it was deleted in the meantime.
        """
        type_set = None if types is None else frozenset(types)
        thread_set = None if threads is None else frozenset(threads)
        watch = self.store.watch(session_id)
        for segment in await self.lineage(session_id):
            while after < segment.upto:
                rows = await retry_unavailable(partial(self.store.read, segment.page(after, _PAGE)))
                for row in rows:  # filtered here, so that the cursor moves past skipped events
                    if _matches(row, type_set, thread_set):
                        yield to_event(segment.session_id, row)
                if rows:
                    after = rows[-1].seq
                else:
                    await retry_unavailable(partial(self.store.session, session_id))
                    await watch.wait()

    async def lineage(self, session_id: str) -> tuple[HistorySegment, ...]:
        """The session's history from the start: its ancestors' segments, then its own."""
        return await self._lineages.of(session_id)

    async def submit(
        self,
        session_id: str,
        payload: ClientPayload,
        *,
        sender: Sender,
        client_id: str | None = None,
        thread_id: str | None = None,
        row: SessionRow | None = None,
    ) -> InboxItem:
        """Put a client's event into the inbox; needs no lease. A retry with `client_id` is safe.
        `row`: that of the session, if the caller has just read it.

        Raises:
            InvalidInput: clients may not send this event, or there is no such thread.
            EventIdTaken: the client used `client_id` for another event.
        """
        kind = payload_type(payload)
        if kind not in CLIENT_TYPES:
            raise InvalidInput(f"clients cannot send {kind}; they can send {sorted(CLIENT_TYPES)}")
        row = row or await self.session(session_id)
        main = row.thread_id
        await self._require_here(row)
        if thread_id not in (None, main):
            await self._check_thread(session_id, thread_id)
        event_id = self._new_id(ids.EVENT)
        _, body = await encode_scrubbed_aside(payload, self.scrub)
        item = InboxItem(
            event_id=event_id,
            client_id=client_id or event_id,
            thread_id=thread_id or main,
            time=to_micros(self._clock()),
            version=FORMAT,
            type=kind,
            body=body.decode(),
            sender=encode_sender(sender),
        )
        item = item._replace(mac=self.store.provenance.item_mac(session_id, item))
        await anyio.lowlevel.checkpoint_if_cancelled()  # from here on, cancellation comes too late
        inbox_item = await self.store.submit(session_id, item)
        if (inbox_item.type, inbox_item.body) != (item.type, item.body):
            raise EventIdTaken(item.client_id)
        return inbox_item

    async def _require_here(self, session: SessionRow) -> None:
        """As `require_not_moved`, without reading the log; `hold` does not rely on this."""
        activity = current_activity(session.activity, session.head.seq)
        if activity is None:
            await require_not_moved(self.store, session.id)
        elif activity.is_moved:
            raise SessionGone(session.id)

    async def activity(self, session: SessionRow) -> SessionActivity:
        """What a session does, or why it waits, at the end of its log. Stored beside the log; for
        a session that an older Mainspring or an import wrote, it is folded once and stored.

        Raises: SessionNotFound.
        """
        activity = current_activity(session.activity, session.head.seq)
        if activity is None:
            log = await self.read(session.id, types=ACTIVITY_TYPES)
            activity = fold_activity(session.thread_id, log)
            activity.seq = max(session.head.seq, activity.seq)
            with suppress(StoreFailed):  # a store that is only read
                await self.store.note_activity(activity_note(session.id, activity))
        return activity

    async def _check_thread(self, session_id: str, thread_id: str) -> None:
        created = await self.read(session_id, types=event_types(ThreadCreated))
        payloads = (event.payload for event in created)
        thread_ids = {
            payload.session_thread_id for payload in payloads if isinstance(payload, ThreadCreated)
        }
        if thread_id not in thread_ids:
            raise InvalidInput(f"session {session_id} has no thread {thread_id}")

    async def put_blob(self, session_id: str, content: bytes, *, media_type: str) -> BlobSource:
        """Store large content beside the log, once, for as long as a session refers to it."""
        return await blobs.store_blob(
            self.store, self.scrub, session_id, content, media_type=media_type
        )

    async def blob(self, digest: str) -> bytes:
        """Raises: BlobNotFound; StoreCorrupt: its content is not what the log names."""
        return await blobs.read_blob(self.store, digest)


def _matches(row: Row, types: frozenset[str] | None, threads: frozenset[str] | None) -> bool:
    return (types is None or row.type in types) and (threads is None or row.thread_id in threads)
