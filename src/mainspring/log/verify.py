"""Tamper evidence: recompute a session's hash chain from its first event to its head."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable
from contextlib import suppress
from dataclasses import dataclass

from mainspring.core.envelope import GENESIS, Event, event_types, redacted_digest
from mainspring.core.errors import BlobNotFound, MainspringError, MalformedEvent, StoreCorrupt
from mainspring.core.events import EventsRedacted, Redaction
from mainspring.log.blobs import digest_of, referenced_blobs
from mainspring.log.event_chain import to_event
from mainspring.log.session_log import Segment, SessionLog
from mainspring.log.store import EventRange, Row, SessionRow

_PAGE = 2000


@dataclass(frozen=True, slots=True, kw_only=True)
class Problem:
    seq: int
    what: str


@dataclass(frozen=True, slots=True, kw_only=True)
class VerifyReport:
    session_id: str
    events: int
    head: str
    """Hash of the last event, in hex. Keep it elsewhere to detect a chain that was rebuilt."""
    problems: tuple[Problem, ...]

    @property
    def ok(self) -> bool:
        return not self.problems


async def verify(log: SessionLog, session_id: str) -> VerifyReport:
    """Check order, chain, head, readability and blobs, inherited events included."""
    check = _Check(log)
    session = await log.session(session_id)
    await check.read_redactions(session_id)
    for segment in await log.lineage(session_id):
        await check.beginning(await log.session(segment.session_id))
        await check.segment(segment, last=session.head.seq)
    await check.blobs()
    if check.seq != session.head.seq:
        check.report(check.seq, f"the log ends here, but the session says {session.head.seq}")
    elif check.hash not in (None, session.head.hash):
        check.report(check.seq, "the last event is not the one that was written last")
    return VerifyReport(
        session_id=session_id,
        events=check.seq,
        head=session.head.hash.hex(),
        problems=tuple(check.problems),
    )


class _Check:
    """The progress and the findings of a verification."""

    def __init__(self, log: SessionLog) -> None:
        self.log = log
        self.seq = 0
        self.hash: bytes | None = GENESIS
        """Hash of the last event; `None` if that could not be read."""
        self.problems: list[Problem] = []
        self.blob_seqs: dict[str, int] = {}
        """Blobs that events refer to, each with the first such event."""
        self.redactions: dict[tuple[str, int], Redaction] = {}
        self.removed_blobs: set[str] = set()

    async def read_redactions(self, session_id: str) -> None:
        """Redactions that the logs record; the hash chain covers these records. An ancestor's log
        may record one after the fork."""
        for segment in await self.log.lineage(session_id):
            with suppress(MalformedEvent, StoreCorrupt):  # found again when all are read
                self._read_redactions(
                    await self.log.read(segment.session_id, types=event_types(EventsRedacted))
                )

    def _read_redactions(self, events: Iterable[Event]) -> None:
        for event in events:
            if isinstance(event.payload, EventsRedacted):
                self.removed_blobs.update(event.payload.blobs)
                for item in event.payload.redactions:
                    self.redactions[event.session_id, item.seq] = item

    def report(self, seq: int, what: str) -> None:
        self.problems.append(Problem(seq=seq, what=what))

    async def beginning(self, session: SessionRow) -> None:
        """The session's row must agree with its first event, which the hash chain covers."""
        seq = session.parent_seq + 1
        try:
            rows = await self.log.store.read(
                EventRange(session_id=session.id, after=session.parent_seq, upto=seq)
            )
        except StoreCorrupt:
            return  # found again, and told, when all are read
        for row in rows:
            if row.thread_id != session.thread_id:
                self.report(seq, f"begins thread {row.thread_id}, not {session.thread_id}")
            if row.time != session.created:
                self.report(seq, "is not from when the session says that it was created")

    async def segment(self, segment: Segment, last: int) -> None:
        limit = _PAGE
        while self.seq < segment.upto:
            span = EventRange(
                session_id=segment.session_id,
                after=max(self.seq, segment.after),
                upto=segment.upto,
                limit=limit,
            )
            try:
                rows = await self.log.store.read(span)
            except StoreCorrupt as error:
                if span.after >= last:
                    raise
                if limit == 1:
                    self.lost(span.after + 1, error)
                limit = 1  # one at a time, to name the events that the database cannot read
                continue
            if not rows:
                break
            for row in rows:
                self.row(segment.session_id, row)
        for digest in await self.log.store.blobs(segment.session_id):
            self.blob_seqs.setdefault(digest, self.seq)

    def lost(self, seq: int, why: MainspringError) -> None:
        self.report(seq, f"cannot be read: {why}")
        self.seq, self.hash = seq, None

    def row(self, session_id: str, row: Row) -> None:
        if row.seq != self.seq + 1:
            self.report(row.seq, f"events {self.seq + 1} to {row.seq - 1} are missing")
        elif self.hash not in (None, row.prev):
            self.report(
                row.seq, "does not follow from the event before it: one of them was changed"
            )
        try:
            event = to_event(session_id, row)
        except MalformedEvent as error:
            return self.lost(row.seq, error)
        if event.type != row.type:
            self.report(row.seq, f"is filed as {row.type} but is a {event.type}")
        if (original := redacted_digest(event.body)) is not None:
            self.redacted(event, original)
        for digest in referenced_blobs(event.payload):
            self.blob_seqs.setdefault(digest, row.seq)
        self.seq, self.hash = row.seq, event.digest()

    def redacted(self, event: Event, original: bytes) -> None:
        """A redaction that the log does not record counts as tampering."""
        entry = self.redactions.get((event.session_id, event.seq))
        body = hashlib.sha256(event.body).hexdigest()
        if entry is None or (entry.digest, entry.body_sha256) != (original.hex(), body):
            self.report(event.seq, "its text was removed, and the log does not say so")

    async def blobs(self) -> None:
        for digest, seq in self.blob_seqs.items():
            if digest in self.removed_blobs:
                continue
            try:
                if digest_of(await self.log.blob(digest)) != digest:
                    self.report(seq, f"blob {digest} was changed")
            except BlobNotFound:
                self.report(seq, f"blob {digest} is missing")
