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
from mainspring.core.errors import Conflict, SessionGone, StoreUnavailable
from mainspring.core.events import (
    EventsRedacted,
    KnownPayload,
    SessionMoved,
    SessionReceived,
    UserInterrupt,
)
from mainspring.core.sender import decode_sender
from mainspring.log import blobs
from mainspring.log.event_chain import EventDraft, Scrub, chain_events, encode_scrubbed, to_row
from mainspring.log.store import Append, EventRange, FoldedItem, InboxItem, Lease, SessionRow, Store
from mainspring.log.task_groups import RETRY_SECONDS, retry_unavailable
from mainspring.log.upcast import read_payload
from mainspring.log.wakeup_signals import Watch

_INTERRUPT = str(UserInterrupt.__struct_config__.tag)


def _same_thread(_: AnyPayload, thread_id: str) -> str:
    return thread_id


class Writer:
    """Appends in the order of the calls, which several threads of a session may make."""

    def __init__(
        self,
        store: Store,
        lease: Lease,
        session: SessionRow,
        *,
        clock: Clock,
        new_id: Callable[[str], str],
        scrub: Scrub,
    ) -> None:
        self.lease = lease
        self.session_id = lease.session_id
        self.head = session.head
        self.thread_id = session.thread_id
        self._store = store
        self._clock = clock
        self._new_id = new_id
        self._scrub = scrub
        self._turn = anyio.Lock(fast_acquire=True)
        self._staged: list[Event] = []
        self._folded: list[FoldedItem] = []
        self._tip = session.head  # the end of the log once all staged events are committed
        self._heard: set[int] = set()  # positions of inbox items that are staged or in the log
        self._looking = anyio.Lock(fast_acquire=True)
        self._subscription: Watch | None = None
        self._seen: Sequence[InboxItem] = ()  # the inbox as last read
        self._seen_at = -1  # the value of `inbox_changes` then
        self._redacted: tuple[Sequence[tuple[int, str]], Sequence[str]] = (), ()
        self._losses = 0  # failed commits; each discards all staged events
        self.loss: BaseException | None = None
        """The error of the last failed commit."""

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
            Fenced: the lease was taken over. Conflict: the log is not where this writer left it.
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
        """Replace the JSON of earlier events and record that at the end of the log, atomically.
        Nothing else may be staged. Raises: as `append`."""
        self.stage(redacted)
        self._redacted = tuple(bodies.items()), redacted.blobs
        try:
            await self.commit()
        finally:
            self._redacted = (), ()

    def stage(
        self,
        *payloads: KnownPayload,
        thread_id: str | None = None,
        event_ids: Sequence[str] = (),
    ) -> list[Event]:
        """Give payloads their positions in the log; the next `commit` writes them.

        Callers commit before they act on the outside world, so that all events between two such
        actions cost one write.
        """
        moment = self._clock()
        drafts: list[EventDraft] = []
        for index, payload in enumerate(payloads):
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
        takes: Callable[[str], bool] = lambda _: True,
    ) -> list[Event]:
        """Stage client events in order of arrival. `addressee` maps an event to its thread, which
        the client need not know; events for threads that `takes` refuses stay in the inbox."""
        events: list[Event] = []
        for item in self._unheard(await self._store.pending(self.session_id)):
            payload = read_payload(item.type, item.body, item.version)
            thread_id = addressee(payload, item.thread_id)
            if not takes(thread_id):
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
            self._heard.add(item.position)
            events.append(event)
        return events

    def _unheard(self, pending: Sequence[InboxItem]) -> list[InboxItem]:
        """Inbox items that are neither in the log nor staged."""
        return [item for item in pending if item.position not in self._heard]

    async def wait_for_inbox(
        self,
        *types: str,
        is_for: Callable[[str], bool],
        addressee: Callable[[AnyPayload, str], str] = _same_thread,
    ) -> None:
        """Return when the inbox has an event for a thread that `is_for` accepts and, if types are
        given, of one of these types."""
        watch = self.watch_inbox()

        def is_meant(item: InboxItem) -> bool:
            if types and item.type not in types:
                return False
            payload = read_payload(item.type, item.body, item.version)
            return is_for(addressee(payload, item.thread_id))

        while not any(map(is_meant, self._unheard(await self._look()))):
            await watch.wait()

    async def watch_interrupts(self, thread_id: str, on_interrupt: Callable[[], None]) -> None:
        """Call `on_interrupt` for each interrupt of a thread, until cancelled."""
        watch = self.watch_inbox()
        while True:
            await self._look()
            if self.is_interrupted(thread_id):
                on_interrupt()
            await watch.wait()

    def is_interrupted(self, thread_id: str) -> bool:
        """Whether an interrupt is in the inbox that was not folded yet."""
        return any(
            item.type == _INTERRUPT and item.thread_id == thread_id
            for item in self._unheard(self._seen)
        )

    def watch_inbox(self) -> Watch:
        return self._store.watch(self.session_id, is_inbox_only=True)

    @property
    def inbox_changes(self) -> int:
        """Counts possible changes of the inbox since the first call."""
        if self._subscription is None:
            self._subscription = self.watch_inbox()
        return self._subscription.pokes

    async def _look(self) -> Sequence[InboxItem]:
        """The current inbox. A change wakes all waiting threads: the first one reads for all."""
        async with self._looking:
            if self._seen_at != (now := self.inbox_changes):
                self._seen = await self._store.pending(self.session_id)
                self._seen_at = now
            return self._seen

    async def commit(self) -> None:
        """Write all staged events atomically; if that fails, they are discarded."""
        tip, losses = self._tip, self._losses
        try:
            self._turn.acquire_nowait()
        except anyio.WouldBlock:
            await self._turn.acquire()
        try:
            if (
                losses != self._losses
            ):  # an earlier commit failed, and our events were chained to its
                conflict = Conflict(self.session_id, expected=tip.seq, actual=self.head.seq)
                raise conflict from self.loss
            if not self._staged:
                return
            events, self._staged = self._staged, []
            folded, self._folded = self._folded, []
            head = self._tip
            append = Append(
                lease=self.lease,
                expected=self.head,
                head=head,
                rows=[to_row(event) for event in events],
                folded_item=folded,
                redacted_bodies=self._redacted[0],
                removed_blobs=self._redacted[1],
            )
            try:
                await self._write(append)
            except BaseException as error:
                self._staged, self._folded = [], []
                self._heard.clear()
                self._tip = self.head
                self._losses += 1
                self.loss = error
                raise
            self.head = head
        finally:
            self._turn.release()

    def _stage(self, event_drafts: list[EventDraft]) -> list[Event]:
        events, self._tip = chain_events(self.session_id, self._tip, event_drafts)
        self._staged += events
        return events

    async def _write(self, append: Append) -> None:
        try:
            await self._store.append(append)
        except StoreUnavailable:
            with CancelScope(shield=True):  # other threads rely on what they staged
                first, *rest = RETRY_SECONDS
                await anyio.sleep(first)
                await retry_unavailable(partial(self._write_again, append), waits=rest)

    async def _write_again(self, append: Append) -> None:
        """Repeating an append is safe: it is conditional on a head that only it can move."""
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
        """The text without secrets, for output that is shown but not logged."""
        return self._scrub(text.encode("utf-8", "replace")).decode("utf-8", "replace")

    async def renew(self) -> None:
        await self._store.renew(self.lease)

    async def release(self) -> None:
        await self._store.release(self.lease)


MOVED = str(SessionMoved.__struct_config__.tag)
RECEIVED = str(SessionReceived.__struct_config__.tag)


async def require_not_moved(store: Store, session_id: str, lease: Lease | None = None) -> None:
    """Reads only the last event: nothing follows a move until the session is received.

    Raises: SessionGone; the lease was given back.
    """
    newest = EventRange(session_id=session_id, after=0, upto=2**62, limit=1, backwards=True)
    last = await store.read(newest)
    if last and last[0].type == MOVED:
        if lease is not None:
            await store.release(lease)
        raise SessionGone(session_id)
