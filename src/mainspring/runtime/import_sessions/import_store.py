"""Stores imported sessions in the log: once each, and incrementally when their files have grown."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Literal, TypeAlias

import msgspec
from msgspec.structs import replace

from mainspring.core import ids
from mainspring.core.clock import to_micros
from mainspring.core.envelope import GENESIS, payload_type
from mainspring.core.errors import SessionNotFound
from mainspring.core.events import (
    ContextAdded,
    ContextCompacted,
    KnownPayload,
    SessionCreated,
    SessionForked,
    SessionImported,
    UserMessage,
)
from mainspring.core.sender import Sender
from mainspring.log.blobs import digest_of
from mainspring.log.event_chain import EventDraft, chain_events, encode_scrubbed, to_row
from mainspring.log.session_activity import encode_activity, fold_activity
from mainspring.log.session_log import SessionLog
from mainspring.log.store import Append, Head, SessionRow
from mainspring.runtime.import_sessions.import_plan import (
    IMPORT_NOTE,
    ImportPlan,
    PlannedEvent,
    plan_import,
)
from mainspring.runtime.import_sessions.source_session import TOOL_NAMES, SourceSession

ImportStatus: TypeAlias = Literal["new", "unchanged", "grown", "forked"]
"""`grown`: new events were added. `forked`: they were added to a fork, since the session has
continued here or the file has taken another branch."""

_MARKER = payload_type(SessionImported(format="", path="", source_session_id="", sha256=""))
_OWNER = "import"


@dataclass(frozen=True, slots=True, kw_only=True)
class ImportResult:
    session_id: str
    import_status: ImportStatus
    events: int
    """The number of events added."""
    parent_id: str | None = None


async def store_new_session(
    log: SessionLog, source: SourceSession, *, session_id: str, now: datetime, importer: Sender
) -> None:
    """Store a session under this id, atomically.

    Raises: SessionExists.
    """
    planned = plan_import(source, scrub=log.scrub, now=now, session_id=session_id)
    writer = _ImportWriter(log, source, planned, now, importer)
    await writer.create(session_id, Head(0, GENESIS), None, planned.events, {})


async def store_session(
    log: SessionLog, source: SourceSession, *, now: datetime, importer: Sender
) -> ImportResult:
    """Store a session, or its new events, atomically."""
    planned = plan_import(source, scrub=log.scrub, now=now)
    writer = _ImportWriter(log, source, planned, now, importer)
    try:
        existing = await log.session(planned.session_id)
    except SessionNotFound:
        await writer.create(planned.session_id, Head(0, GENESIS), None, planned.events, {})
        return ImportResult(
            session_id=planned.session_id, import_status="new", events=len(planned.events) + 1
        )
    return await writer.extend(existing)


@dataclass(slots=True)
class _ImportWriter:
    log: SessionLog
    source: SourceSession
    planned: ImportPlan
    now: datetime
    importer: Sender

    async def extend(self, existing: SessionRow) -> ImportResult:
        await self.log.store.provenance.require_own(self.log.store, existing)
        seqs = [
            (event.id, event.seq)
            for event in await self.log.read(existing.id)
            if event.type != _MARKER
        ]
        common = _common_prefix([id_ for id_, _ in seqs], [item.id for item in self.planned.events])
        new = self.planned.events[common:]
        if not new:
            return ImportResult(session_id=existing.id, import_status="unchanged", events=0)
        stored_seqs = dict(seqs[:common])
        if common == len(seqs):
            await self._append(existing, new, stored_seqs)
            return ImportResult(session_id=existing.id, import_status="grown", events=len(new) + 1)
        return await self._fork(existing, new, stored_seqs, at=seqs[common - 1][1] if common else 0)

    async def _append(
        self, existing: SessionRow, new: Sequence[PlannedEvent], stored: Mapping[str, int]
    ) -> None:
        lease = await self.log.store.acquire(existing.id, owner=_OWNER, seconds=60)
        try:
            for digest, content in self._blobs(new).items():
                await self.log.store.put_blob(existing.id, digest, content)
            drafts = self._drafts(new, stored, existing.head.seq)
            events, head = chain_events(existing.id, existing.head, drafts)
            rows = [to_row(event) for event in events]
            await self.log.store.append(
                Append(
                    lease=lease,
                    expected=existing.head,
                    head=head,
                    rows=rows,
                    mac=self._mac(existing.id, head),
                )
            )
        finally:
            await self.log.store.release(lease)

    async def _fork(
        self, existing: SessionRow, new: list[PlannedEvent], stored: Mapping[str, int], *, at: int
    ) -> ImportResult:
        fork_id = ids.stable_id(ids.SESSION, existing.id, new[-1].id)
        try:
            await self.log.session(fork_id)
            return ImportResult(
                session_id=fork_id, import_status="unchanged", events=0, parent_id=existing.id
            )
        except SessionNotFound:
            pass
        if not at:
            await self.create(fork_id, Head(0, GENESIS), None, new, stored)
            return ImportResult(session_id=fork_id, import_status="new", events=len(new) + 1)
        [last] = await self.log.read(existing.id, after=at - 1, limit=1)
        forked = SessionForked(parent_session_id=existing.id, parent_seq=at)
        first = PlannedEvent(
            id=ids.stable_id(ids.EVENT, fork_id, "forked"),
            thread_id=existing.thread_id,
            time=self.now,
            payload=forked,
            source_id="forked",
        )
        base = Head(at, last.digest())
        await self.create(fork_id, base, last.session_id, [first, *new], stored)
        return ImportResult(
            session_id=fork_id, import_status="forked", events=len(new) + 1, parent_id=existing.id
        )

    async def create(
        self,
        session_id: str,
        base: Head,
        parent_id: str | None,
        events: Sequence[PlannedEvent],
        stored: Mapping[str, int],
    ) -> None:
        drafts = self._drafts(events, stored, base.seq)
        linked, head = chain_events(session_id, base, drafts)
        activity = None  # a fork also has the events of its parent
        if parent_id is None:
            activity = fold_activity(self.planned.thread_id, linked)
        session = SessionRow(
            id=session_id,
            thread_id=self.planned.thread_id,
            created=to_micros(linked[0].time),
            updated=to_micros(self.now),
            head=head,
            parent_id=parent_id,
            parent_seq=base.seq,
            activity=None if activity is None else encode_activity(activity),
            mac=self._mac(session_id, head),
            status=None if activity is None else activity.status,
        )
        rows = [to_row(event) for event in linked]
        await self.log.store.create(session, rows, blobs=self._blobs(events))

    def _mac(self, session_id: str, head: Head) -> bytes:
        return self.log.store.provenance.log_mac(session_id, head)

    def _drafts(
        self, events: Sequence[PlannedEvent], stored: Mapping[str, int], base: int
    ) -> list[EventDraft]:
        """Return the events with redacted payloads, followed by a marker that ends the history."""
        seqs = {**stored, **{event.id: base + i for i, event in enumerate(events, 1)}}
        drafts = [self._draft(event, _with_seqs(event, seqs)) for event in events]
        marker = SessionImported(
            format=self.source.format,
            path=self.source.path,
            source_session_id=self.source.id,
            sha256=self.source.sha256,
            source_ids=digest_of(self._source_ids(events)),
            note=IMPORT_NOTE.format(tool=TOOL_NAMES[self.source.format]),
            metadata=self.source.metadata or None,
        )
        last = PlannedEvent(
            id=ids.stable_id(ids.EVENT, self.planned.session_id, "imported", events[-1].id),
            thread_id=self.planned.thread_id,
            time=self.now,
            payload=marker,
            source_id="",
        )
        return [*drafts, self._draft(last, marker)]

    def _draft(self, event: PlannedEvent, payload: KnownPayload) -> EventDraft:
        clean, body = encode_scrubbed(payload, self.log.scrub)
        is_sent = isinstance(payload, UserMessage | ContextAdded | SessionCreated | SessionForked)
        sender = Sender(
            kind="system", id=f"import:{self.source.format}", on_behalf_of=(self.importer.id,)
        )
        return EventDraft(
            id=event.id,
            thread_id=event.thread_id,
            time=event.time,
            payload=clean,
            body=body,
            sender=sender if is_sent else None,
        )

    def _blobs(self, events: Sequence[PlannedEvent]) -> dict[str, bytes]:
        source_ids = self._source_ids(events)
        return {**self.planned.blobs, digest_of(source_ids): source_ids}

    def _source_ids(self, events: Sequence[PlannedEvent]) -> bytes:
        source_ids = {event.id: event.source_id for event in events}
        return self.log.scrub(msgspec.json.encode(source_ids))


def _with_seqs(event: PlannedEvent, seqs: Mapping[str, int]) -> KnownPayload:
    """The payload, with the sequence numbers of the events that a summary replaces."""
    if event.replaces is None or not isinstance(event.payload, ContextCompacted):
        return event.payload
    first, last = event.replaces
    return replace(event.payload, first_seq=seqs[first], last_seq=seqs[last])


def _common_prefix(first: Sequence[str], second: Sequence[str]) -> int:
    """The length of the common prefix."""
    pairs = enumerate(zip(first, second, strict=False))
    return next((i for i, (a, b) in pairs if a != b), min(len(first), len(second)))
