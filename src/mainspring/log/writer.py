"""The single writer of a session: it holds the lease, appends, and folds the inbox into the log."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial

import anyio
import anyio.lowlevel
from anyio import CancelScope

from mainspring.core import ids
from mainspring.core.clock import Clock
from mainspring.core.content import BlobSource
from mainspring.core.envelope import AnyPayload, Event
from mainspring.core.errors import Conflict, ForeignSession, SessionGone, StoreUnavailable
from mainspring.core.events import (
    EventsRedacted,
    KnownPayload,
    SessionMoved,
    SessionReceived,
    UserInterrupt,
)
from mainspring.core.sender import decode_sender
from mainspring.log import blobs
from mainspring.log.event_chain import (
    EventDraft,
    Scrub,
    chain_events,
    encode_scrubbed,
    scrub_aside,
    to_row,
)
from mainspring.log.provenance import OwnLog
from mainspring.log.session_activity import (
    SessionActivity,
    current_activity,
    encode_activity,
)
from mainspring.log.store import Append, EventRange, FoldedItem, InboxItem, Lease, SessionRow, Store
from mainspring.log.task_groups import RETRY_SECONDS, retry_unavailable
from mainspring.log.upcast import read_payload
from mainspring.log.wakeup_signals import Watch

_INTERRUPT = str(UserInterrupt.__struct_config__.tag)


def _same_thread(_: AnyPayload, thread_id: str) -> str:
    return thread_id


class Writer:
    """Appends in the order of the calls. Several threads of a session may call it."""

    def __init__(
        self,
        store: Store,
        lease: Lease,
        session: SessionRow,
        *,
        clock: Clock,
        new_id: Callable[[str], str],
        scrub: Scrub,
        own_log: OwnLog | None,
    ) -> None:
        self.lease = lease
        self.session_id = lease.session_id
        self.head = session.head
        self.thread_id = session.thread_id
        self._store = store
        self._clock = clock
        self._new_id = new_id
        self._scrub = scrub
        self._own_log = own_log  # `None`: the session is being received
        self._commit_lock = anyio.Lock(fast_acquire=True)
        self._staged: list[Event] = []
        self._folded: list[FoldedItem] = []
        self._staged_head = session.head  # the end of the log once all staged events are committed
        self._staged_positions: set[int] = set()  # inbox items that are staged or in the log
        self._inbox_lock = anyio.Lock(fast_acquire=True)
        self._inbox_watch: Watch | None = None
        self._inbox: Sequence[InboxItem] = ()  # the inbox as last read
        self._inbox_read_at = -1  # the value of `inbox_changes` at that time
        self._redaction: tuple[Sequence[tuple[int, str]], Sequence[str]] = (), ()
        self._stored_activity = session.activity
        self._activity: SessionActivity | None = None  # ahead of the stored one during a commit
        self._failed_commits = 0  # each discards all staged events
        self.commit_error: BaseException | None = None
        """The error of the last failed commit."""

    @property
    def own_log(self) -> OwnLog:
        """Raises: ForeignSession: the session was not received yet."""
        if self._own_log is None:
            raise ForeignSession(self.session_id)
        return self._own_log

    @property
    def staged(self) -> list[Event]:
        """Events that the next `commit` appends."""
        return [*self._staged]

    def new_event_id(self) -> str:
        """An id for an event that is announced to clients before it is appended."""
        return self._new_id(ids.EVENT)

    async def append(
        self,
        *payloads: KnownPayload,
        thread_id: str | None = None,
        event_ids: Sequence[str] = (),
    ) -> list[Event]:
        """Write payloads at the end of the log, all or none; durable when this returns.

        Raises:
            Fenced: another writer took the lease. Conflict: the log has changed since this writer's
                last commit.
            StoreFailed: the database failed, and retries did not help.
        """
        await anyio.lowlevel.checkpoint_if_cancelled()  # a cancelled task writes nothing
        events = self.stage(*payloads, thread_id=thread_id, event_ids=event_ids)
        await self.commit()
        return events

    async def fold_inbox(self) -> list[Event]:
        """Move client events from the inbox into the log, in order of arrival, exactly once."""
        events = await self.stage_inbox()
        await self.commit()
        return events

    async def redact(self, redacted: EventsRedacted, bodies: Mapping[int, str]) -> None:
        """Replace the JSON of earlier events and record the redaction at the end of the log,
        atomically. Nothing else may be staged. Raises the same errors as `append`."""
        self.stage(redacted)
        self._redaction = tuple(bodies.items()), redacted.blobs
        try:
            await self.commit()
        finally:
            self._redaction = (), ()

    def stage(
        self,
        *payloads: KnownPayload,
        thread_id: str | None = None,
        event_ids: Sequence[str] = (),
    ) -> list[Event]:
        """Give payloads their positions in the log; the next `commit` writes them.

        Callers commit before each action on the outside world, so all events between two actions
        cost one write.
        """
        moment = self._clock()
        drafts: list[EventDraft] = []
        for index, payload in enumerate(payloads):
            # Scrubbed before it is chained: the hash covers what is stored, and no secret reaches
            # the disk. We fold the scrubbed payload, too, so a replay sees the same.
            clean, body = encode_scrubbed(payload, self._scrub)
            drafts.append(
                EventDraft(
                    id=event_ids[index] if index < len(event_ids) else self.new_event_id(),
                    thread_id=thread_id or self.thread_id,
                    time=moment,
                    payload=clean,
                    body=body,
                )
            )
        return self._stage(drafts)

    async def stage_inbox(
        self,
        addressee: Callable[[AnyPayload, str], str] = _same_thread,
        accepts: Callable[[str], bool] = lambda _: True,
    ) -> list[Event]:
        """Stage client events in order of arrival. `addressee` returns an event's thread, which the
        client need not know; events for threads that `accepts` rejects stay in the inbox."""
        events: list[Event] = []
        for item in self._not_staged(await self._store.pending(self.session_id)):
            payload = read_payload(item.type, item.body, item.version)
            thread_id = addressee(payload, item.thread_id)
            if not accepts(thread_id):
                continue
            draft = EventDraft(
                id=item.event_id,
                thread_id=thread_id,
                time=self._clock(),
                payload=payload,
                body=item.body.encode(),
                version=item.version,
                sender=decode_sender(item.sender),
            )
            [event] = self._stage([draft])
            self._folded.append(FoldedItem(item.position, event.seq))
            self._staged_positions.add(item.position)
            events.append(event)
        return events

    def _not_staged(self, pending: Sequence[InboxItem]) -> list[InboxItem]:
        """Inbox items that are neither in the log nor staged."""
        return [item for item in pending if item.position not in self._staged_positions]

    async def wait_for_inbox(
        self,
        *types: str,
        accepts: Callable[[str], bool],
        addressee: Callable[[AnyPayload, str], str] = _same_thread,
    ) -> None:
        """Return when the inbox has an event that is for a thread for which `accepts` is true and,
        if you pass types, is of one of them."""
        watch = self.watch_inbox()

        def is_addressed(item: InboxItem) -> bool:
            if types and item.type not in types:
                return False
            payload = read_payload(item.type, item.body, item.version)
            return accepts(addressee(payload, item.thread_id))

        while not any(map(is_addressed, self._not_staged(await self._read_inbox()))):
            await watch.wait()

    async def watch_interrupts(self, thread_id: str, on_interrupt: Callable[[], None]) -> None:
        """Call `on_interrupt` for each interrupt of a thread, until cancelled."""
        watch = self.watch_inbox()
        while True:
            await self._read_inbox()
            if self.is_interrupted(thread_id):
                on_interrupt()
            await watch.wait()

    def is_interrupted(self, thread_id: str) -> bool:
        """Whether the inbox has an interrupt that is not folded yet."""
        return any(
            item.type == _INTERRUPT and item.thread_id == thread_id
            for item in self._not_staged(self._inbox)
        )

    def watch_inbox(self) -> Watch:
        return self._store.watch(self.session_id, is_inbox_only=True)

    @property
    def inbox_changes(self) -> int:
        """The number of possible changes of the inbox since the first call."""
        if self._inbox_watch is None:
            self._inbox_watch = self.watch_inbox()
        return self._inbox_watch.changes

    async def _read_inbox(self) -> Sequence[InboxItem]:
        """The current inbox. A change wakes all waiting threads: the first one reads for all."""
        async with self._inbox_lock:
            if self._inbox_read_at != (now := self.inbox_changes):
                self._inbox = await self._store.pending(self.session_id)
                self._inbox_read_at = now
            return self._inbox

    async def commit(self) -> None:
        """Write all staged events atomically, or discard them if that fails."""
        staged_head, failed_commits = self._staged_head, self._failed_commits
        try:
            self._commit_lock.acquire_nowait()
        except anyio.WouldBlock:
            await self._commit_lock.acquire()
        try:
            # an earlier commit failed, and our events follow its events in the hash chain
            if failed_commits != self._failed_commits:
                conflict = Conflict(self.session_id, expected=staged_head.seq, actual=self.head.seq)
                raise conflict from self.commit_error
            if not self._staged:
                return
            if not isinstance(self._staged[0].payload, SessionReceived):
                _ = self.own_log
            events, self._staged = self._staged, []
            folded, self._folded = self._folded, []
            head = self._staged_head
            append = Append(
                lease=self.lease,
                # The fence: the store appends only after this head, under this lease's epoch. So a
                # writer that was paused and lost its lease writes nothing over its successor.
                expected=self.head,
                head=head,
                rows=[to_row(event) for event in events],
                folded_items=folded,
                redacted_bodies=self._redaction[0],
                removed_blobs=self._redaction[1],
                activity=self._activity_after(events),
                mac=self._store.provenance.log_mac(self.session_id, head),
                status=None if self._activity is None else self._activity.status,
            )
            try:
                await self._write(append)
            except BaseException as error:
                # Nothing staged survives: its hashes follow events that were never written.
                self._staged, self._folded = [], []
                self._staged_positions.clear()
                self._staged_head = self.head
                self._activity = None
                self._failed_commits += 1
                self.commit_error = error
                raise
            self.head = head
            self._stored_activity = append.activity
            if self._own_log is None:
                self._own_log = self._store.provenance.received(self.session_id)
            else:
                self._store.provenance.note_written(self._own_log, head)
        finally:
            self._commit_lock.release()

    def _activity_after(self, events: Sequence[Event]) -> str | None:
        """`None` if the session's activity was not folded yet: readers then fold it."""
        if self._activity is None:
            self._activity = current_activity(self._stored_activity, self.head.seq)
        if self._activity is None:
            return None
        for event in events:
            self._activity.apply(event)
        return encode_activity(self._activity)

    def _stage(self, event_drafts: list[EventDraft]) -> list[Event]:
        events, self._staged_head = chain_events(self.session_id, self._staged_head, event_drafts)
        self._staged += events
        return events

    async def _write(self, append: Append) -> None:
        try:
            await self._store.append(append)
        except StoreUnavailable:
            with CancelScope(shield=True):  # other threads rely on their staged events
                first_wait, *waits = RETRY_SECONDS
                await anyio.sleep(first_wait)
                await retry_unavailable(partial(self._write_again, append), waits=waits)

    async def _write_again(self, append: Append) -> None:
        """Repeating an append is safe: it requires a head that only this append can move."""
        try:
            await self._store.append(append)
        except Conflict:
            if (await self._store.session(self.session_id)).head != append.head:
                raise
            # an earlier attempt was committed before the connection broke

    async def put_blob(self, content: bytes, *, media_type: str) -> BlobSource:
        """Store large content beside the log, once, for as long as a session refers to it."""
        return await blobs.store_blob(
            self._store, self._scrub, self.session_id, content, media_type=media_type
        )

    def scrubbed(self, text: str) -> str:
        """The text without secrets, for output that is displayed but not logged."""
        return self._scrub(text.encode("utf-8", "replace")).decode("utf-8", "replace")

    async def scrubbed_aside(self, text: str) -> str:
        """As `scrubbed`, for a text of any size."""
        clean = await scrub_aside(self._scrub, text.encode("utf-8", "replace"))
        return clean.decode("utf-8", "replace")

    async def renew(self) -> None:
        await self._store.renew(self.lease)

    async def release(self) -> None:
        await self._store.release(self.lease)


MOVED = str(SessionMoved.__struct_config__.tag)
RECEIVED = str(SessionReceived.__struct_config__.tag)


async def require_not_moved(store: Store, session_id: str) -> None:
    """Read the last event: nothing follows a move until the session is received.

    Raises: SessionGone.
    """
    newest = EventRange(session_id=session_id, after=0, upto=2**62, limit=1, backwards=True)
    last = await store.read(newest)
    if last and last[0].type == MOVED:
        raise SessionGone(session_id)
