"""A whole store in one file: compressed JSON lines from which any store can be restored.

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
_RESTORE_OWNER: Final = "restore"


class HeaderLine(Struct, frozen=True, kw_only=True, tag_field="line", tag="backup"):
    format: int = _FORMAT
    time: Annotated[datetime, Meta(tz=True)]
    """When the backup began. Everything in it is as of this moment."""


class RunningLine(Struct, frozen=True, kw_only=True, tag_field="line", tag="at_work"):
    """The session was running, even if its inbox is empty."""

    session_id: str


class RecordLine(
    Struct, frozen=True, kw_only=True, omit_defaults=True, tag_field="line", tag="record"
):
    record: RecordRow
    chunks: int | None = None
    """How many of the following lines contain its content; `None` if it has no content."""


class ContentLine(Struct, frozen=True, kw_only=True, tag_field="line", tag="content"):
    content: bytes


class TallyLine(Struct, frozen=True, kw_only=True, tag_field="line", tag="tally"):
    name: str
    amount: int


class FooterLine(Struct, frozen=True, kw_only=True, tag_field="line", tag="seal"):
    sessions: int
    records: int
    tallies: int
    sha256: str


_BackupLine: TypeAlias = (
    HeaderLine | RunningLine | RecordLine | ContentLine | TallyLine | FooterLine
)
_LINE_DECODER: Final = msgspec.json.Decoder(_BackupLine)
_TAGS: Final = tuple(
    b'{"line":"%s"' % tag
    for tag in (b"backup", b"at_work", b"record", b"content", b"tally", b"seal")
)
BackupItem: TypeAlias = SessionImport | RunningLine | Put | TallyLine


@dataclass(slots=True)
class Counts:
    """How many entries of a backup have been written or read."""

    sessions: int = 0
    records: int = 0
    tallies: int = 0
    damaged: list[str] = field(default_factory=list[str])
    """Sessions that are not in the backup because their logs, or those of their parents, fail
    verification."""


ReportProgress: TypeAlias = Callable[[Counts], None]


async def write_backup(
    store: Store, file: IO[bytes], *, time: datetime, report_progress: ReportProgress
) -> Counts:
    """Back up everything in the store as of this moment, while the store is in use."""
    counts = Counts()
    async with store.transaction(writes=False) as snapshot:
        with gzip.GzipFile("", "wb", _LEVEL, file, mtime=0) as compressed:
            writer = _LineWriter(compressed)
            writer.write(lines.encode(HeaderLine(time=time)))
            await _write_sessions(SessionLog(snapshot), writer, counts, report_progress)
            await _write_records(snapshot.records, writer, counts, report_progress)
            writer.write(
                lines.encode(
                    FooterLine(
                        sessions=counts.sessions,
                        records=counts.records,
                        tallies=counts.tallies,
                        sha256=writer.hash.hexdigest(),
                    )
                )
            )
    return counts


class _LineWriter:
    """Writes lines and keeps their running hash."""

    def __init__(self, file: IO[bytes] | gzip.GzipFile) -> None:
        self._file = file
        self.hash = hashlib.sha256()

    def write(self, line: bytes) -> None:
        self._file.write(line + b"\n")
        self.hash.update(line + b"\n")


async def _write_sessions(
    log: SessionLog, writer: _LineWriter, counts: Counts, report_progress: ReportProgress
) -> None:
    damaged_ids: set[str] = set()
    abandoned = frozenset(await log.store.runnable(limit=_NO_LIMIT))
    for session in _parents_first([item async for item in all_sessions(log.store)]):
        if session.parent_id in damaged_ids or not (await verify(log, session.id)).ok:
            damaged_ids.add(session.id)
            counts.damaged.append(session.id)
            continue
        async for line in export_own_lines(log, session):
            writer.write(line)
        if session.owner is not None or session.id in abandoned:
            writer.write(lines.encode(RunningLine(session_id=session.id)))
        counts.sessions += 1
        report_progress(counts)


def _parents_first(sessions: Sequence[SessionRow]) -> Iterator[SessionRow]:
    waiting = {session.id: session for session in reversed(sessions)}
    while waiting:
        lineage = [next(iter(waiting.values()))]
        while (parent := waiting.get(lineage[-1].parent_id or "")) is not None:
            lineage.append(parent)
        for session in reversed(lineage):
            del waiting[session.id]
            yield session


async def _write_records(
    records: Records, writer: _LineWriter, counts: Counts, report_progress: ReportProgress
) -> None:
    last: RecordRow | None = None
    while rows := await records.everything(after=last, limit=_PAGE):
        for item in rows:
            await _write_record(records, writer, item)
            counts.records += 1
            report_progress(counts)
        last = rows[-1]
    after = ""
    while tallies := await records.tallies(after=after):
        for name, amount in tallies:
            writer.write(lines.encode(TallyLine(name=name, amount=amount)))
            counts.tallies += 1
        after = tallies[-1][0]


async def _write_record(records: Records, writer: _LineWriter, row: RecordRow) -> None:
    content = (await records.whole(row.kind, row.id)).content
    if content is None:
        writer.write(lines.encode(RecordLine(record=row)))
        return
    starts = range(0, len(content), _CHUNK)
    writer.write(lines.encode(RecordLine(record=row, chunks=len(starts))))
    for start in starts:
        writer.write(lines.encode(ContentLine(content=content[start : start + _CHUNK])))


async def restore_backup(
    store: Store, file: IO[bytes], *, report_progress: ReportProgress
) -> Counts:
    """Restore a backup into an empty store, all or nothing.

    Raises:
        InvalidInput: the store is not empty, or the file is not a whole, unchanged backup.
    """
    counts = Counts()
    async with store.transaction(writes=True) as transaction:
        await _require_empty(transaction)
        log = SessionLog(transaction)
        async for item in _items(file):
            await _restore(log, item)
            match item:
                case SessionImport():
                    counts.sessions += 1
                case Put():
                    counts.records += 1
                case TallyLine():
                    counts.tallies += 1
                case RunningLine():
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
        raise InvalidInput("the store is not empty: restore the backup into a new store")


async def _restore(log: SessionLog, backup_item: BackupItem) -> None:
    match backup_item:
        case SessionImport():
            if not await backup_item.store(log):
                raise InvalidInput(
                    f"the backup contains session {backup_item.header.session_id} twice"
                )
        case Put():
            # the store adds one when it writes
            record = replace(backup_item.row, rev=backup_item.row.rev - 1)
            try:
                await log.store.records.write(
                    Put(row=record, content=backup_item.content, keeps_mac=True)
                )
            except ServiceError as error:
                raise InvalidInput(f"the backup contains a record twice: {error}") from error
        case TallyLine():
            await log.store.records.tally([(backup_item.name, backup_item.amount)])
        case RunningLine(session_id=session_id):
            try:  # the lease expires at once, so a worker finds the session and continues it
                await log.store.acquire(session_id, owner=_RESTORE_OWNER, seconds=0)
            except SessionNotFound as error:
                raise InvalidInput(
                    f"session {session_id} was running, but is not in the backup"
                ) from error


async def _items(file: IO[bytes]) -> AsyncGenerator[BackupItem, None]:
    """The entries of the file, each as soon as it is complete. Raises if the footer is missing."""
    reader = _BackupReader()
    for number, raw in enumerate(_decompress(file), 1):
        if number % _PAGE == 0:
            await anyio.lowlevel.checkpoint()
        try:
            item = reader.take(raw)
        except InvalidInput as error:
            raise InvalidInput(f"line {number}: {error}") from error
        if item is not None:
            yield item
    if not reader.is_complete:
        raise InvalidInput("the backup was cut short")


def _decompress(file: IO[bytes]) -> Iterator[bytes]:
    try:
        with gzip.GzipFile("", "rb", fileobj=file) as compressed:
            yield from compressed
    except gzip.BadGzipFile as error:
        raise InvalidInput(f"this is not a backup, or it is damaged: {error}") from error
    except (EOFError, zlib.error) as error:
        raise InvalidInput(f"the backup is damaged or was cut short: {error}") from error


class _BackupReader:
    """Parses and checks the lines of a backup."""

    def __init__(self) -> None:
        self.is_complete = False
        self._has_header = False
        self._hash = hashlib.sha256()
        self._sessions = SessionImporter()
        self._records = 0
        self._tallies = 0
        self._open_record: tuple[RecordLine, list[bytes]] | None = None
        """A record whose content is not complete yet."""

    def take(self, raw: bytes) -> BackupItem | None:
        if self.is_complete:
            raise InvalidInput("this line follows the end of the backup")
        line = _decode_line(raw)
        if self._has_header == isinstance(line, HeaderLine):
            raise InvalidInput("this is not the beginning of a backup")
        if isinstance(line, FooterLine):
            self._check_footer(line)
            self.is_complete = True
            return None
        self._hash.update(raw)
        return self._take_line(line)

    def _take_line(
        self,
        export_line: HeaderLine
        | RunningLine
        | RecordLine
        | ContentLine
        | TallyLine
        | lines.ExportLine,
    ) -> BackupItem | None:
        if isinstance(export_line, ContentLine):
            return self._add_content(export_line.content)
        if self._open_record is not None:
            raise InvalidInput("the content of the record before it is not complete")
        match export_line:
            case HeaderLine():
                return self._check_header(export_line)
            case RecordLine():
                self._open_record = (export_line, [])
                return self._add_content(None)
            case TallyLine():
                self._tallies += 1
                return export_line
            case RunningLine():
                return export_line
            case _:
                return self._sessions.take(export_line)

    def _check_header(self, line: HeaderLine) -> None:
        self._has_header = True
        if line.format > _FORMAT:
            raise InvalidInput(
                "a newer version of Mainspring wrote this backup; upgrade, then restore it"
            )

    def _add_content(self, chunk: bytes | None) -> Put | None:
        if self._open_record is None:
            raise InvalidInput("content comes before the record it belongs to")
        line, chunks = self._open_record
        if chunk is not None:
            chunks.append(chunk)
        if len(chunks) < (line.chunks or 0):
            return None
        self._open_record = None
        self._records += 1
        content = None if line.chunks is None else b"".join(chunks)
        return Put(row=line.record, content=content)

    def _check_footer(self, footer: FooterLine) -> None:
        counts = (self._sessions.count, self._records, self._tallies)
        is_open = self._sessions.open is not None or self._open_record is not None
        if is_open or counts != (footer.sessions, footer.records, footer.tallies):
            raise InvalidInput("the backup is not complete")
        if footer.sha256 != self._hash.hexdigest():
            raise InvalidInput("the backup was changed: its hash differs")


def _decode_line(raw: bytes) -> _BackupLine | lines.ExportLine:
    if not raw.startswith(_TAGS):
        return lines.decode(raw)
    try:
        return _LINE_DECODER.decode(raw)
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise InvalidInput(f"not a line of a backup: {error}") from error
