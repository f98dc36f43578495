"""Sessions as JSON lines, with everything that another store needs to recreate them.

For each session of the lineage, oldest first: a header, its own events, its blobs, its inbox, and
a footer with the last hash. Exporting an imported session gives the same bytes.
"""

from __future__ import annotations

import base64
import binascii
from collections.abc import AsyncGenerator, Sequence
from dataclasses import replace

from mainspring.core.clock import to_micros
from mainspring.core.envelope import CLIENT_TYPES, GENESIS, Event, EventLine, encode_line
from mainspring.core.errors import ForeignSession, InvalidInput, SessionNotFound
from mainspring.core.sender import encode_sender
from mainspring.log.blobs import digest_of
from mainspring.log.event_chain import to_event, to_row
from mainspring.log.lines import (
    BlobLine,
    EndLine,
    InboxLine,
    SessionLine,
    encode,
    header_line,
    inbox_line,
)
from mainspring.log.provenance import OwnLog
from mainspring.log.session_activity import encode_activity, fold_activity
from mainspring.log.session_log import HistorySegment, SessionLog
from mainspring.log.store import Append, EventRange, FoldedItem, Head, InboxItem, SessionRow
from mainspring.log.upcast import read_line

_PAGE = 1000  # events read at once
_IMPORTER = "import"


async def export_lines(log: SessionLog, session_id: str) -> AsyncGenerator[bytes, None]:
    """The lines of the session and of its ancestors, without newlines."""
    exported = await log.session(session_id)
    own_log = await _proof(log, exported) if exported.parent_id is not None else None
    for segment in await log.lineage(session_id):
        session = await log.session(segment.session_id)
        if own_log is not None and session.id != session_id:
            # Its beginning is part of our own log, so what the export has of it is our own, too.
            beginning = await _head_at(log, segment)
            mac = log.store.provenance.ancestor_mac(own_log, session.id, beginning)
            session = replace(session, head=beginning, mac=mac)
        async for line in _export_segment(log, session, segment, is_whole=session.id == session_id):
            yield line


async def _proof(log: SessionLog, session: SessionRow) -> OwnLog | None:
    """`None`: it is foreign."""
    try:
        return await log.store.provenance.require_own(log.store, session)
    except ForeignSession:
        return None


async def _head_at(log: SessionLog, segment: HistorySegment) -> Head:
    """The head of a session when the exported part of it ended."""
    last = EventRange(session_id=segment.session_id, after=segment.upto - 1, upto=segment.upto)
    [row] = await log.store.read(last)
    return Head(row.seq, to_event(segment.session_id, row).digest())


async def export_own_lines(log: SessionLog, session: SessionRow) -> AsyncGenerator[bytes, None]:
    """The lines of the session alone, for a file in which its parent comes first."""
    own = HistorySegment(session.id, session.parent_seq, session.head.seq)
    async for line in _export_segment(log, session, own, is_whole=True):
        yield line


async def _export_segment(
    log: SessionLog, session: SessionRow, segment: HistorySegment, *, is_whole: bool
) -> AsyncGenerator[bytes, None]:
    yield encode(header_line(session))
    head = Head(segment.after, b"")
    while rows := await log.store.read(
        EventRange(session_id=session.id, after=head.seq, upto=segment.upto, limit=_PAGE)
    ):
        for row in rows:
            event = to_event(session.id, row)
            yield encode_line(event)
            head = Head(event.seq, event.digest())
    digests = await log.store.blobs(session.id)
    for digest in digests:
        content = base64.b64encode(await log.blob(digest)).decode()
        yield encode(BlobLine(hash=digest, content=content))
    items = [item async for item in _inbox(log, session.id, upto=head.seq, is_whole=is_whole)]
    for item in items:
        yield encode(inbox_line(item))
    yield encode(
        EndLine(
            session_id=session.id,
            seq=head.seq,
            hash=head.hash.hex(),
            blobs=len(digests),
            inbox=len(items),
            mac=session.mac if head == session.head else None,
        )
    )


async def _inbox(
    log: SessionLog, session_id: str, *, upto: int, is_whole: bool
) -> AsyncGenerator[InboxItem, None]:
    """The inbox items that an import needs, so that it loses none and folds none twice.

    For an ancestor, only the items of its exported events: the fork does not own the others.
    """
    after = 0
    while items := await log.store.inbox(session_id, after=after, limit=_PAGE):
        after = items[-1].position
        for item in items:
            if item.seq is None or item.seq > upto:
                if is_whole:  # folded after our last event: in this export it is still pending
                    yield item._replace(seq=None)
            elif item.client_id != item.event_id:  # the client chose it and may send it again
                yield item


class ImportedSession:
    """One session of the file, checked before any of it is stored."""

    def __init__(self, header: SessionLine) -> None:
        if (header.parent_id is None) != (header.parent_seq == 0) or header.parent_seq < 0:
            raise InvalidInput(f"session {header.session_id} has no valid beginning")
        self.header = header
        self.events: list[Event] = []
        self.blobs: dict[str, bytes] = {}
        self.inbox: dict[str, InboxItem] = {}
        self.mac: bytes | None = None

    def take(self, line: EventLine | BlobLine | InboxLine) -> None:
        match line:
            case BlobLine():
                self._take_blob(line)
            case InboxLine():
                self._take_inbox_item(line)
            case EventLine():
                self._take_event(line)

    def _take_blob(self, line: BlobLine) -> None:
        try:
            content = base64.b64decode(line.content, validate=True)
        except binascii.Error as error:
            raise InvalidInput(f"blob {line.hash} is not base64: {error}") from error
        if digest_of(content) != line.hash:
            raise InvalidInput(f"the content of blob {line.hash} does not match its hash")
        self.blobs[line.hash] = content

    def _take_event(self, line: EventLine) -> None:
        event = read_line(line)
        if event.session_id != self.header.session_id:
            raise InvalidInput(f"event {event.seq} belongs to another session, {event.session_id}")
        if self.events:
            expected = Head(self.events[-1].seq, self.events[-1].digest())
        else:  # the hash of a fork's first event depends on its parent: checked when it is stored
            expected = Head(self.header.parent_seq, event.prev)
            if self.header.parent_id is None and event.prev != GENESIS:
                raise InvalidInput("the first event is not the beginning of a log")
        if (event.seq - 1, event.prev) != expected:
            raise InvalidInput(f"event {event.seq} does not match the hash of the event before it")
        if not self.events and (event.thread_id, event.time) != (
            self.header.thread_id,
            self.header.created,
        ):
            raise InvalidInput("the first event does not match the header of its session")
        self.events.append(event)

    def _take_inbox_item(self, line: InboxLine) -> None:
        if line.client_id in self.inbox:
            raise InvalidInput(f"client event id {line.client_id} occurs twice")
        event = self._pending_event(line) if line.seq is None else self._folded_event(line)
        self.inbox[line.client_id] = InboxItem(
            event_id=event.id,
            client_id=line.client_id,
            thread_id=event.thread_id,
            time=to_micros(line.time),
            version=event.version,
            type=event.type,
            body=event.body.decode(),
            sender=encode_sender(event.sender),
            seq=line.seq,
            mac=line.mac,
        )

    def _folded_event(self, line: InboxLine) -> Event:
        at = (line.seq or 0) - self.header.parent_seq - 1
        if 0 <= at < len(self.events) and self.events[at].id == line.event_id:
            return self.events[at]
        raise InvalidInput(f"client event {line.event_id} is not event {line.seq}")

    def _pending_event(self, line: InboxLine) -> Event:
        event = read_line(
            EventLine(
                session_id=self.header.session_id,
                seq=0,
                id=line.event_id,
                thread_id=line.thread_id,
                time=line.time,
                version=line.version,
                prev="",
                payload=line.payload,
                sender=line.sender,
            )
        )
        if event.type not in CLIENT_TYPES:
            raise InvalidInput(f"clients cannot send {event.type}")
        return event

    def end(self, end: EndLine) -> None:
        if not self.events or end.session_id != self.header.session_id:
            raise InvalidInput(f"session {self.header.session_id} is not complete")
        if (end.seq, end.hash) != (self._head.seq, self._head.hash.hex()):
            raise InvalidInput(f"the end of session {end.session_id} does not match its last event")
        if end.blobs != len(self.blobs):
            raise InvalidInput(f"expected {end.blobs} blobs, got {len(self.blobs)}")
        if end.inbox != len(self.inbox):
            raise InvalidInput(f"expected {end.inbox} client events, got {len(self.inbox)}")
        self.mac = end.mac

    @property
    def _head(self) -> Head:
        return Head(self.events[-1].seq, self.events[-1].digest())

    async def store(self, log: SessionLog) -> bool:
        """Store the session; returns whether it was new.

        Raises:
            InvalidInput: it or its parent exists and differs, or its parent is missing.
        """
        try:
            existing = await log.session(self.header.session_id)
        except SessionNotFound:
            await self._create(log)
            return True
        await self._extend(log, existing)
        return False

    async def _create(self, log: SessionLog) -> None:
        header = self.header
        if header.parent_id is not None:
            await self._check_parent(log, header.parent_id)
        activity = None  # a fork also has the events of its parent
        if header.parent_id is None:
            activity = fold_activity(header.thread_id, self.events)
        session = SessionRow(
            id=header.session_id,
            thread_id=header.thread_id,
            created=to_micros(header.created),
            updated=to_micros(self.events[-1].time),
            head=self._head,
            parent_id=header.parent_id,
            parent_seq=header.parent_seq,
            activity=None if activity is None else encode_activity(activity),
            mac=self.mac,
            status=None if activity is None else activity.status,
        )
        rows = [to_row(event) for event in self.events]
        await log.store.create(session, rows, blobs=self.blobs, inbox=list(self.inbox.values()))

    async def _check_parent(self, log: SessionLog, parent_id: str) -> None:
        own = f"session {self.header.session_id}"
        try:
            events = await log.read(parent_id, after=self.header.parent_seq - 1, limit=1)
        except SessionNotFound as error:
            raise InvalidInput(f"{own}: its parent, {parent_id}, does not exist here") from error
        if not events or events[0].digest() != self.events[0].prev:
            raise InvalidInput(f"{own}: it does not follow from its parent, {parent_id}")

    async def _extend(self, log: SessionLog, existing: SessionRow) -> None:
        """Add events that an existing session lacks: a fork may have brought only its beginning."""
        common = min(existing.head.seq, self._head.seq)
        [last] = await log.read(existing.id, after=common - 1, limit=1)
        if header_line(existing) != self.header or not self._contains(last):
            raise InvalidInput(f"session {existing.id} already exists and differs")
        events = [event for event in self.events if event.seq > common]
        if not events:
            return await self._store_blobs_and_inbox(log, existing.id, common)
        lease = await log.store.acquire(existing.id, owner=_IMPORTER, seconds=60)
        try:
            await self._store_blobs_and_inbox(log, existing.id, common)
            append = Append(
                lease=lease,
                expected=existing.head,
                head=self._head,
                rows=[to_row(event) for event in events],
                folded_items=await self._folded_items(log, existing.id, events),
                mac=self.mac,
            )
            await log.store.append(append)
        finally:
            await log.store.release(lease)

    async def _store_blobs_and_inbox(self, log: SessionLog, session_id: str, common: int) -> None:
        """Store blobs and client events before the events that refer to them."""
        for digest, content in self.blobs.items():
            await log.store.put_blob(session_id, digest, content)
        later = await log.read(session_id, after=common, types=CLIENT_TYPES)
        folded_here = {event.id for event in later}
        for item in self.inbox.values():
            is_there = item.seq is not None and item.seq <= common
            if item.event_id not in folded_here:
                await log.store.submit(session_id, item if is_there else item._replace(seq=None))

    async def _folded_items(
        self, log: SessionLog, session_id: str, events: Sequence[Event]
    ) -> list[FoldedItem]:
        """Client events that are pending here and are part of the import."""
        seqs = {event.id: event.seq for event in events}
        folded: list[FoldedItem] = []
        after = 0
        while items := await log.store.inbox(session_id, after=after, limit=_PAGE):
            after = items[-1].position
            folded += [
                FoldedItem(item.position, seqs[item.event_id])
                for item in items
                if item.seq is None and item.event_id in seqs
            ]
        return folded

    def _contains(self, event: Event) -> bool:
        return any(own.seq == event.seq and own == event for own in self.events)
