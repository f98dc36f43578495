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
from mainspring.log.session_log import HistorySegment, SessionLog
from mainspring.log.store import EventRange, Row, SessionRow

_PAGE = 2000  # events verified at once


@dataclass(frozen=True, slots=True, kw_only=True)
class Problem:
    seq: int
    what: str


@dataclass(frozen=True, slots=True, kw_only=True)
class VerifyReport:
    session_id: str
    events: int
    head: str
    """Hash of the last event, in hex. Save it elsewhere to detect a rebuilt chain."""
    problems: tuple[Problem, ...]

    @property
    def ok(self) -> bool:
        return not self.problems


async def verify(log: SessionLog, session_id: str) -> VerifyReport:
    """Check order, chain, head, readability and blobs, inherited events included."""
    verification = _Verification(log)
    session = await log.session(session_id)
    await verification.read_redactions(session_id)
    for segment in await log.lineage(session_id):
        await verification.check_beginning(await log.session(segment.session_id))
        await verification.check_segment(segment, last=session.head.seq)
    await verification.check_blobs()
    if verification.seq != session.head.seq:
        what = f"the log ends here, but the session's head is {session.head.seq}"
        verification.report(verification.seq, what)
    elif verification.hash not in (None, session.head.hash):
        what = "the last event is not the one that the session recorded as its last"
        verification.report(verification.seq, what)
    return VerifyReport(
        session_id=session_id,
        events=verification.seq,
        head=session.head.hash.hex(),
        problems=tuple(verification.problems),
    )


class _Verification:
    """The progress and the findings of a verification."""

    def __init__(self, log: SessionLog) -> None:
        self.log = log
        self.seq = 0
        self.hash: bytes | None = GENESIS
        """Hash of the last event; `None` if the event is unreadable."""
        self.problems: list[Problem] = []
        self.blob_seqs: dict[str, int] = {}
        """Blobs that events refer to, each with the seq of the first such event."""
        self.redactions: dict[tuple[str, int], Redaction] = {}
        self.removed_blobs: set[str] = set()

    async def read_redactions(self, session_id: str) -> None:
        """Read the redactions that the logs record; the hash chain covers these records. An
        ancestor's log may record one after the fork."""
        for segment in await self.log.lineage(session_id):
            with suppress(MalformedEvent, StoreCorrupt):  # `check_segment` reports it
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

    async def check_beginning(self, session: SessionRow) -> None:
        """The session's row must agree with its first event, which the hash chain covers."""
        seq = session.parent_seq + 1
        try:
            rows = await self.log.store.read(
                EventRange(session_id=session.id, after=session.parent_seq, upto=seq)
            )
        except StoreCorrupt:
            return  # `check_segment` reports it
        for row in rows:
            if row.thread_id != session.thread_id:
                self.report(seq, f"begins thread {row.thread_id}, not {session.thread_id}")
            if row.time != session.created:
                self.report(seq, "its time differs from the session's creation time")

    async def check_segment(self, segment: HistorySegment, last: int) -> None:
        limit = _PAGE
        while self.seq < segment.upto:
            page = EventRange(
                session_id=segment.session_id,
                after=max(self.seq, segment.after),
                upto=segment.upto,
                limit=limit,
            )
            try:
                rows = await self.log.store.read(page)
            except StoreCorrupt as error:
                if page.after >= last:
                    raise
                if limit == 1:
                    self.report_unreadable(page.after + 1, error)
                limit = 1  # one at a time, to name the events that the database cannot read
                continue
            if not rows:
                break
            for row in rows:
                self.check_row(segment.session_id, row)
        for digest in await self.log.store.blobs(segment.session_id):
            self.blob_seqs.setdefault(digest, self.seq)

    def report_unreadable(self, seq: int, why: MainspringError) -> None:
        self.report(seq, f"cannot be read: {why}")
        self.seq, self.hash = seq, None

    def check_row(self, session_id: str, row: Row) -> None:
        if row.seq != self.seq + 1:
            self.report(row.seq, f"events {self.seq + 1} to {row.seq - 1} are missing")
        elif self.hash not in (None, row.prev):
            self.report(
                row.seq, "does not match the hash of the event before it: one of them was changed"
            )
        try:
            event = to_event(session_id, row)
        except MalformedEvent as error:
            return self.report_unreadable(row.seq, error)
        if event.type != row.type:
            self.report(row.seq, f"is stored as {row.type} but is {event.type}")
        if (original := redacted_digest(event.body)) is not None:
            self.check_redaction(event, original)
        for digest in referenced_blobs(event.payload):
            self.blob_seqs.setdefault(digest, row.seq)
        self.seq, self.hash = row.seq, event.digest()

    def check_redaction(self, event: Event, original: bytes) -> None:
        """A redaction that the log does not record counts as tampering."""
        entry = self.redactions.get((event.session_id, event.seq))
        body = hashlib.sha256(event.body).hexdigest()
        if entry is None or (entry.digest, entry.body_sha256) != (original.hex(), body):
            self.report(event.seq, "its text was removed, but the log does not record a redaction")

    async def check_blobs(self) -> None:
        for digest, seq in self.blob_seqs.items():
            if digest in self.removed_blobs:
                continue
            try:
                if digest_of(await self.log.store.blob(digest)) != digest:
                    self.report(seq, f"blob {digest} was changed")
            except BlobNotFound:
                self.report(seq, f"blob {digest} is missing")
