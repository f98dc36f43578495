"""Sessions as JSON lines: everything another store needs to hold the very same session.

For each session of the lineage, oldest first: a header, its own events, its blobs, an end with
the last hash. Exporting what was imported gives the same bytes.
"""

from __future__ import annotations

import base64
import binascii
from collections.abc import AsyncGenerator, AsyncIterable
from datetime import datetime
from typing import Annotated, TypeAlias

import msgspec
from msgspec import Meta, Struct

from mainspring.core.clock import from_micros, to_micros
from mainspring.core.envelope import GENESIS, Event, EventLine, encode_line
from mainspring.core.errors import InvalidInput, SessionNotFound
from mainspring.log.blobs import digest_of
from mainspring.log.chain import to_event, to_row
from mainspring.log.session_log import SessionLog
from mainspring.log.store import Append, Head, SessionRow, Span
from mainspring.log.upcast import read_line

_PAGE = 1000
_IMPORTER = "import"


class SessionLine(
    Struct, frozen=True, kw_only=True, omit_defaults=True, tag_field="line", tag="session"
):
    session_id: str
    thread_id: str
    created: Annotated[datetime, Meta(tz=True)]
    parent_id: str | None = None
    parent_seq: int = 0


class BlobLine(Struct, frozen=True, kw_only=True, tag_field="line", tag="blob"):
    hash: str
    content: str
    """Base64."""


class EndLine(Struct, frozen=True, kw_only=True, omit_defaults=True, tag_field="line", tag="end"):
    """Closes a session's part, so that a file cut short is noticed."""

    session_id: str
    seq: int
    hash: str
    blobs: int = 0
    """How many there are: the events' chain does not cover them."""


class _Kind(Struct):
    line: str | None = None


Line: TypeAlias = SessionLine | BlobLine | EndLine | EventLine

_KINDS = msgspec.json.Decoder(_Kind)
_FRAMES = msgspec.json.Decoder(SessionLine | BlobLine | EndLine)
_EVENTS = msgspec.json.Decoder(EventLine)
_ENCODER = msgspec.json.Encoder()


async def export_lines(log: SessionLog, session_id: str) -> AsyncGenerator[bytes, None]:
    """The session and what it inherits, a line at a time, without newlines."""
    for segment in await log.lineage(session_id):
        session = await log.session(segment.session_id)
        yield _ENCODER.encode(_header(session))
        head = Head(segment.after, b"")
        while rows := await log.store.read(
            Span(session_id=session.id, after=head.seq, upto=segment.upto, limit=_PAGE)
        ):
            for row in rows:
                event = to_event(session.id, row)
                yield encode_line(event)
                head = Head(event.seq, event.digest())
        digests = await log.store.blobs(session.id)
        for digest in digests:
            content = base64.b64encode(await log.blob(digest)).decode()
            yield _ENCODER.encode(BlobLine(hash=digest, content=content))
        yield _ENCODER.encode(
            EndLine(session_id=session.id, seq=head.seq, hash=head.hash.hex(), blobs=len(digests))
        )


async def import_lines(log: SessionLog, lines: AsyncIterable[bytes]) -> list[str]:
    """Store exported sessions; those that are here already, and the same, are left as they are.

    Returns the ids of sessions that are new here. A session is stored whole or not at all.

    Raises:
        InvalidInput: a line is wrong (it says which), or a session here differs from the file's.
    """
    reading = _Import(log)
    number = 0
    async for raw in lines:
        number += 1
        try:
            if raw.strip():
                await reading.take(_decode(raw))
        except InvalidInput as error:
            raise InvalidInput(f"line {number}: {error}") from error
    if reading.part is not None:
        raise InvalidInput(f"line {number}: the file ends in the middle of a session")
    if not reading.sessions:
        raise InvalidInput("the file is empty")
    return reading.added


def _decode(raw: bytes) -> Line:
    try:
        kind = _KINDS.decode(raw).line
        return _EVENTS.decode(raw) if kind is None else _FRAMES.decode(raw)
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise InvalidInput(f"not a line of an exported session: {error}") from error


class _Import:
    """Where in the file we are: between sessions, or in the middle of one."""

    def __init__(self, log: SessionLog) -> None:
        self.log = log
        self.part: _Part | None = None
        self.sessions = 0
        self.added: list[str] = []

    async def take(self, line: Line) -> None:
        if isinstance(line, SessionLine):
            if self.part is not None:
                ended = self.part.header.session_id
                raise InvalidInput(f"session {ended} was not ended before this one")
            self.part = _Part(line)
            self.sessions += 1
        elif self.part is None:
            raise InvalidInput("comes before the session it belongs to")
        elif isinstance(line, EndLine):
            if await self.part.store(self.log, line):
                self.added.append(line.session_id)
            self.part = None
        else:
            self.part.take(line)


class _Part:
    """One session of the file, gathered and checked before any of it is stored."""

    def __init__(self, header: SessionLine) -> None:
        if (header.parent_id is None) != (header.parent_seq == 0) or header.parent_seq < 0:
            raise InvalidInput(f"session {header.session_id} does not say where it begins")
        self.header = header
        self.events: list[Event] = []
        self.blobs: dict[str, bytes] = {}

    def take(self, line: EventLine | BlobLine) -> None:
        if isinstance(line, BlobLine):
            self._take_blob(line)
        else:
            self._take_event(line)

    def _take_blob(self, line: BlobLine) -> None:
        try:
            content = base64.b64decode(line.content, validate=True)
        except binascii.Error as error:
            raise InvalidInput(f"blob {line.hash} is not base64: {error}") from error
        if digest_of(content) != line.hash:
            raise InvalidInput(f"blob {line.hash} does not have the content its name says")
        self.blobs[line.hash] = content

    def _take_event(self, line: EventLine) -> None:
        event = read_line(line)
        if event.session_id != self.header.session_id:
            raise InvalidInput(f"event of {event.session_id} among {self.header.session_id}'s")
        if self.events:
            expected = Head(self.events[-1].seq, self.events[-1].digest())
        else:  # a fork's first event stands on its parent's, checked when it is stored
            expected = Head(self.header.parent_seq, event.prev)
            if self.header.parent_id is None and event.prev != GENESIS:
                raise InvalidInput("the first event does not begin a log")
        if (event.seq - 1, event.prev) != expected:
            raise InvalidInput(f"event {event.seq} does not follow from the one before it")
        self.events.append(event)

    async def store(self, log: SessionLog, end: EndLine) -> bool:
        """Whether the session is new here."""
        if not self.events or end.session_id != self.header.session_id:
            raise InvalidInput(f"session {self.header.session_id} is not complete")
        head = Head(self.events[-1].seq, self.events[-1].digest())
        if (end.seq, end.hash) != (head.seq, head.hash.hex()):
            raise InvalidInput(f"session {end.session_id} does not end as it should")
        if end.blobs != len(self.blobs):
            raise InvalidInput(f"{end.blobs} blobs belong here, and there are {len(self.blobs)}")
        try:
            existing = await log.session(end.session_id)
        except SessionNotFound:
            await self._create(log, head)
            is_new = True
        else:
            await self._extend(log, existing, head)
            is_new = False
        for digest, content in self.blobs.items():
            await log.store.put_blob(end.session_id, digest, content)
        return is_new

    async def _create(self, log: SessionLog, head: Head) -> None:
        header = self.header
        if header.parent_id is not None:
            await self._check_parent(log, header.parent_id)
        session = SessionRow(
            id=header.session_id,
            thread_id=header.thread_id,
            created=to_micros(header.created),
            updated=to_micros(self.events[-1].time),
            head=head,
            parent_id=header.parent_id,
            parent_seq=header.parent_seq,
        )
        await log.store.create(session, [to_row(event) for event in self.events])

    async def _check_parent(self, log: SessionLog, parent_id: str) -> None:
        try:
            found = await log.read(parent_id, after=self.header.parent_seq - 1, limit=1)
        except SessionNotFound as error:
            raise InvalidInput(f"begins with session {parent_id}, which is not here") from error
        if not found or found[0].digest() != self.events[0].prev:
            raise InvalidInput(f"does not follow from session {parent_id} as it is here")

    async def _extend(self, log: SessionLog, existing: SessionRow, head: Head) -> None:
        """Here already: the same, longer, or the beginning of it that came with a fork."""
        common = min(existing.head.seq, head.seq)
        [last] = await log.read(existing.id, after=common - 1, limit=1)
        if _header(existing) != self.header or not self._has(last):
            raise InvalidInput(f"session {existing.id} is here already and is not the same")
        missing = [to_row(event) for event in self.events if event.seq > common]
        if missing:
            lease = await log.store.acquire(existing.id, owner=_IMPORTER, seconds=60)
            try:
                await log.store.append(
                    Append(lease=lease, expected=existing.head, head=head, rows=missing)
                )
            finally:
                await log.store.release(lease)

    def _has(self, event: Event) -> bool:
        return any(ours.seq == event.seq and ours == event for ours in self.events)


def _header(session: SessionRow) -> SessionLine:
    return SessionLine(
        session_id=session.id,
        thread_id=session.thread_id,
        created=from_micros(session.created),
        parent_id=session.parent_id,
        parent_seq=session.parent_seq,
    )
