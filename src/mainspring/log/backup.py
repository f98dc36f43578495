"""A whole store in one file: compressed JSON lines that any store can be made from again.

The lines are: a header; every session as `transfer.py` exports it, parents before forks, and
whether it was running; every record with its content; every counter; a footer with the counts and
the hash of all lines before it.
"""

from __future__ import annotations

import gzip
import hashlib
import zlib
from collections.abc import AsyncGenerator, Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime
from typing import IO, Annotated, Final, TypeAlias

import anyio.lowlevel
import msgspec
from msgspec import Meta, Struct

from mainspring.core.errors import InvalidInput, ServiceError, SessionNotFound
from mainspring.log import lines
from mainspring.log.records import Put, RecordRow, Records
from mainspring.log.session_log import SessionLog
from mainspring.log.store import SessionRow, Store, all_sessions
from mainspring.log.transfer import SessionImport, SessionImporter, export_own_lines
from mainspring.log.verify import verify

_FORMAT: Final = 1
_PAGE: Final = 500
_CHUNK: Final = 1 << 20
_LEVEL: Final = 6
_NO_LIMIT: Final = 2**31 - 1
_RESTORER: Final = "restore"


class BeginLine(Struct, frozen=True, kw_only=True, tag_field="line", tag="backup"):
    format: int = _FORMAT
    time: Annotated[datetime, Meta(tz=True)]
    """When the backup began. Everything in it is as of this moment."""


class AtWorkLine(Struct, frozen=True, kw_only=True, tag_field="line", tag="at_work"):
    """The session was running, even if its inbox is empty."""

    session_id: str


class RecordLine(
    Struct, frozen=True, kw_only=True, omit_defaults=True, tag_field="line", tag="record"
):
    record: RecordRow
    chunks: int | None = None
    """How many of the following lines hold its content; `None` if it has none."""


class ContentLine(Struct, frozen=True, kw_only=True, tag_field="line", tag="content"):
    content: bytes


class TallyLine(Struct, frozen=True, kw_only=True, tag_field="line", tag="tally"):
    name: str
    amount: int


class SealLine(Struct, frozen=True, kw_only=True, tag_field="line", tag="seal"):
    sessions: int
    records: int
    tallies: int
    sha256: str


_BackupLine: TypeAlias = BeginLine | AtWorkLine | RecordLine | ContentLine | TallyLine | SealLine
_LINE_DECODER: Final = msgspec.json.Decoder(_BackupLine)
_TAGS: Final = tuple(
    b'{"line":"%s"' % tag
    for tag in (b"backup", b"at_work", b"record", b"content", b"tally", b"seal")
)
BackupItem: TypeAlias = SessionImport | AtWorkLine | Put | TallyLine


@dataclass(slots=True)
class Counts:
    """Counts of what was written to, or read from, a backup so far."""

    sessions: int = 0
    records: int = 0
    tallies: int = 0
    damaged: list[str] = field(default_factory=list[str])
    """Sessions that were left out because their logs, or those of their parents, fail
    verification."""


ReportProgress: TypeAlias = Callable[[Counts], None]


async def write_backup(
    store: Store, file: IO[bytes], *, time: datetime, report_progress: ReportProgress
) -> Counts:
    """Back up everything in the store as of this moment; the store stays in use."""
    counts = Counts()
    async with store.transaction(writes=False) as then:
        with gzip.GzipFile("", "wb", _LEVEL, file, mtime=0) as packed:
            page = _Page(packed)
            page.write(lines.encode(BeginLine(time=time)))
            await _write_sessions(SessionLog(then), page, counts, report_progress)
            await _write_records(then.records, page, counts, report_progress)
            page.write(
                lines.encode(
                    SealLine(
                        sessions=counts.sessions,
                        records=counts.records,
                        tallies=counts.tallies,
                        sha256=page.hash.hexdigest(),
                    )
                )
            )
    return counts


class _Page:
    """Writes lines and keeps their running hash."""

    def __init__(self, file: IO[bytes] | gzip.GzipFile) -> None:
        self._file = file
        self.hash = hashlib.sha256()

    def write(self, line: bytes) -> None:
        self._file.write(line + b"\n")
        self.hash.update(line + b"\n")


async def _write_sessions(
    log: SessionLog, page: _Page, counts: Counts, report_progress: ReportProgress
) -> None:
    left_out: set[str] = set()
    abandoned = frozenset(await log.store.runnable(limit=_NO_LIMIT))
    for session in _parents_first([item async for item in all_sessions(log.store)]):
        if session.parent_id in left_out or not (await verify(log, session.id)).ok:
            left_out.add(session.id)
            counts.damaged.append(session.id)
            continue
        async for line in export_own_lines(log, session):
            page.write(line)
        if session.owner is not None or session.id in abandoned:
            page.write(lines.encode(AtWorkLine(session_id=session.id)))
        counts.sessions += 1
        report_progress(counts)


def _parents_first(sessions: Sequence[SessionRow]) -> Iterator[SessionRow]:
    waiting = {session.id: session for session in reversed(sessions)}
    while waiting:
        line = [next(iter(waiting.values()))]
        while (parent := waiting.get(line[-1].parent_id or "")) is not None:
            line.append(parent)
        for session in reversed(line):
            del waiting[session.id]
            yield session


async def _write_records(
    records: Records, page: _Page, counts: Counts, report_progress: ReportProgress
) -> None:
    last: RecordRow | None = None
    while some := await records.everything(after=last, limit=_PAGE):
        for item in some:
            await _write_record(records, page, item)
            counts.records += 1
            report_progress(counts)
        last = some[-1]
    after = ""
    while tallies := await records.tallies(after=after):
        for name, amount in tallies:
            page.write(lines.encode(TallyLine(name=name, amount=amount)))
            counts.tallies += 1
        after = tallies[-1][0]


async def _write_record(records: Records, page: _Page, row: RecordRow) -> None:
    content = (await records.whole(row.kind, row.id)).content
    if content is None:
        page.write(lines.encode(RecordLine(record=row)))
        return
    starts = range(0, len(content), _CHUNK)
    page.write(lines.encode(RecordLine(record=row, chunks=len(starts))))
    for start in starts:
        page.write(lines.encode(ContentLine(content=content[start : start + _CHUNK])))


async def restore_backup(
    store: Store, file: IO[bytes], *, report_progress: ReportProgress
) -> Counts:
    """Restore a backup into an empty store, all or nothing.

    Raises:
        InvalidInput: the store is not empty, or the file is not a whole, unchanged backup.
    """
    counts = Counts()
    async with store.transaction(writes=True) as together:
        await _require_empty(together)
        log = SessionLog(together)
        async for item in _items(file):
            await _restore(log, item)
            match item:
                case SessionImport():
                    counts.sessions += 1
                case Put():
                    counts.records += 1
                case TallyLine():
                    counts.tallies += 1
                case AtWorkLine():
                    pass
            report_progress(counts)
    return counts


async def _require_empty(store: Store) -> None:
    records = store.records
    if (
        await store.sessions(limit=1)
        or await records.everything(limit=1)
        or await records.tallies(limit=1)
    ):
        raise InvalidInput("the store is not empty: a backup is restored into a new one")


async def _restore(log: SessionLog, backup_item: BackupItem) -> None:
    match backup_item:
        case SessionImport():
            if not await backup_item.store(log):
                raise InvalidInput(f"session {backup_item.header.session_id} is in it twice")
        case Put():
            # the store adds one when it writes
            record = replace(backup_item.row, rev=backup_item.row.rev - 1)
            try:
                await log.store.records.write(Put(row=record, content=backup_item.content))
            except ServiceError as error:
                raise InvalidInput(f"a record is in it twice: {error}") from error
        case TallyLine():
            await log.store.records.tally([(backup_item.name, backup_item.amount)])
        case AtWorkLine(session_id=session_id):
            try:  # its lease has no living holder, so a worker finds the session and continues it
                await log.store.acquire(session_id, owner=_RESTORER, seconds=0)
            except SessionNotFound as error:
                raise InvalidInput(f"session {session_id} is at work and not in it") from error


async def _items(file: IO[bytes]) -> AsyncGenerator[BackupItem, None]:
    """The entries of the file, each as soon as it is complete. Ends with the footer, or raises."""
    reading = _BackupReader()
    for number, raw in enumerate(_decompress(file), 1):
        if number % _PAGE == 0:
            await anyio.lowlevel.checkpoint()
        try:
            item = reading.take(raw)
        except InvalidInput as error:
            raise InvalidInput(f"line {number}: {error}") from error
        if item is not None:
            yield item
    if not reading.is_sealed:
        raise InvalidInput("the backup was cut short")


def _decompress(file: IO[bytes]) -> Iterator[bytes]:
    try:
        with gzip.GzipFile("", "rb", fileobj=file) as packed:
            yield from packed
    except gzip.BadGzipFile as error:
        raise InvalidInput(f"this is no backup, or a damaged one: {error}") from error
    except (EOFError, zlib.error) as error:
        raise InvalidInput(f"the backup is damaged or was cut short: {error}") from error


class _BackupReader:
    """The position in the file, for error messages."""

    def __init__(self) -> None:
        self.is_sealed = False
        self._has_begun = False
        self._hash = hashlib.sha256()
        self._parts = SessionImporter()
        self._records = 0
        self._tallies = 0
        self._open: tuple[RecordLine, list[bytes]] | None = None
        """A record whose content has not been read completely yet."""

    def take(self, raw: bytes) -> BackupItem | None:
        if self.is_sealed:
            raise InvalidInput("comes after the end")
        line = _decode_line(raw)
        if self._has_begun == isinstance(line, BeginLine):
            raise InvalidInput("this is not the beginning of a backup")
        if isinstance(line, SealLine):
            self._check(line)
            self.is_sealed = True
            return None
        self._hash.update(raw)
        return self._taken(line)

    def _taken(
        self,
        export_line: BeginLine
        | AtWorkLine
        | RecordLine
        | ContentLine
        | TallyLine
        | lines.ExportLine,
    ) -> BackupItem | None:
        if isinstance(export_line, ContentLine):
            return self._complete(export_line.content)
        if self._open is not None:
            raise InvalidInput("a record's content is not complete")
        match export_line:
            case BeginLine():
                return self._begin(export_line)
            case RecordLine():
                self._open = (export_line, [])
                return self._complete(None)
            case TallyLine():
                self._tallies += 1
                return export_line
            case AtWorkLine():
                return export_line
            case _:
                return self._parts.take(export_line)

    def _begin(self, line: BeginLine) -> None:
        self._has_begun = True
        if line.format > _FORMAT:
            raise InvalidInput("the backup is a newer Mainspring's; upgrade, then restore it")

    def _complete(self, chunk: bytes | None) -> Put | None:
        if self._open is None:
            raise InvalidInput("content comes before the record it belongs to")
        line, chunks = self._open
        if chunk is not None:
            chunks.append(chunk)
        if len(chunks) < (line.chunks or 0):
            return None
        self._open = None
        self._records += 1
        content = None if line.chunks is None else b"".join(chunks)
        return Put(row=line.record, content=content)

    def _check(self, seal: SealLine) -> None:
        counted = (self._parts.count, self._records, self._tallies)
        is_complete = self._parts.open is None and self._open is None
        if not is_complete or counted != (seal.sessions, seal.records, seal.tallies):
            raise InvalidInput("the backup is not complete")
        if seal.sha256 != self._hash.hexdigest():
            raise InvalidInput("the backup is not as it was written: its hash differs")


def _decode_line(raw: bytes) -> _BackupLine | lines.ExportLine:
    if not raw.startswith(_TAGS):
        return lines.decode(raw)
    try:
        return _LINE_DECODER.decode(raw)
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise InvalidInput(f"not a line of a backup: {error}") from error
