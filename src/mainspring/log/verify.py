"""Tamper evidence: recompute a session's hash chain from its first event to its head."""

from __future__ import annotations

from dataclasses import dataclass

from mainspring.core.envelope import GENESIS, Event
from mainspring.core.errors import BlobNotFound, MalformedEvent
from mainspring.log.blobs import digest_of
from mainspring.log.chain import to_event
from mainspring.log.session_log import Segment, SessionLog
from mainspring.log.store import Row, Span

_PAGE = 2000


@dataclass(frozen=True, slots=True, kw_only=True)
class Problem:
    seq: int
    what: str


@dataclass(frozen=True, slots=True, kw_only=True)
class VerifyReport:
    session_id: str
    events: int
    problems: tuple[Problem, ...]

    @property
    def ok(self) -> bool:
        return not self.problems


async def verify(log: SessionLog, session_id: str) -> VerifyReport:
    """Check order, chain, head, readability and blobs, inherited events included."""
    check = _Check()
    for segment in await log.lineage(session_id):
        await check.segment(log, segment)
        for digest in await log.store.blobs(segment.session_id):
            await check.blob(log, digest)
    session = await log.session(session_id)
    if check.seq != session.head.seq:
        check.found(check.seq, f"the log ends here, but the session says {session.head.seq}")
    elif check.hash != session.head.hash:
        check.found(check.seq, "the last event is not the one that was written last")
    return VerifyReport(session_id=session_id, events=check.seq, problems=tuple(check.problems))


class _Check:
    def __init__(self) -> None:
        self.seq = 0
        self.hash = GENESIS
        self.problems: list[Problem] = []

    def found(self, seq: int, what: str) -> None:
        self.problems.append(Problem(seq=seq, what=what))

    async def segment(self, log: SessionLog, segment: Segment) -> None:
        while self.seq < segment.upto:
            rows = await log.store.read(
                Span(
                    session_id=segment.session_id,
                    after=max(self.seq, segment.after),
                    upto=segment.upto,
                    limit=_PAGE,
                )
            )
            if not rows:
                return
            for row in rows:
                self.row(segment.session_id, row)

    def row(self, session_id: str, row: Row) -> None:
        if row.seq != self.seq + 1:
            self.found(row.seq, f"events {self.seq + 1} to {row.seq - 1} are missing")
        elif row.prev != self.hash:
            self.found(row.seq, "does not follow from the event before it: one of them was changed")
        event = self.readable(session_id, row)
        self.seq = row.seq
        if event is not None:
            self.hash = event.digest()

    def readable(self, session_id: str, row: Row) -> Event | None:
        try:
            event = to_event(session_id, row)
        except MalformedEvent as error:
            self.found(row.seq, f"cannot be read: {error}")
            return None
        if event.type != row.type:
            self.found(row.seq, f"is filed as {row.type} but is a {event.type}")
        return event

    async def blob(self, log: SessionLog, digest: str) -> None:
        try:
            if digest_of(await log.blob(digest)) != digest:
                self.found(self.seq, f"blob {digest} was changed")
        except BlobNotFound:
            self.found(self.seq, f"blob {digest} is missing")
