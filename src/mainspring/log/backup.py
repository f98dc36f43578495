"""A whole store in one file: compressed JSON lines from which any store can be restored.

`container.py` reads the lines: a header; every session as an export has it, parents before forks,
and whether it was running; every record with its content; every counter; a footer with the counts
and the hash of all lines before it.
"""

from __future__ import annotations

import gzip
import hashlib
import zlib
from collections.abc import AsyncGenerator, Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime
from typing import IO, Final, TypeAlias

import anyio.lowlevel
import msgspec

from mainspring.core.errors import InvalidInput, ServiceError, SessionNotFound
from mainspring.log import lines
from mainspring.log.container import ContainerReader, Item
from mainspring.log.records import Put, RecordRow, Records
from mainspring.log.session_log import SessionLog
from mainspring.log.store import SessionRow, Store, all_sessions
from mainspring.log.transfer import ImportedSession, export_own_lines
from mainspring.log.verify import verify

_PAGE: Final = 500  # events read at once
_CHUNK: Final = 1 << 20  # bytes written at once
_LEVEL: Final = 6  # zlib's default
_NO_LIMIT: Final = 2**31 - 1  # more sessions than a store can have
_RESTORE_OWNER: Final = "restore"


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
            writer.write(lines.encode(lines.HeaderLine(time=time)))
            await _write_sessions(SessionLog(snapshot), writer, counts, report_progress)
            await _write_records(snapshot.records, writer, counts, report_progress)
            writer.write(
                lines.encode(
                    lines.FooterLine(
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
            writer.write(lines.encode(lines.RunningLine(session_id=session.id)))
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
            writer.write(lines.encode(lines.TallyLine(name=name, amount=amount)))
            counts.tallies += 1
        after = tallies[-1][0]


async def _write_record(records: Records, writer: _LineWriter, row: RecordRow) -> None:
    content = (await records.whole(row.kind, row.id)).content
    if content is None:
        writer.write(lines.encode(lines.RecordLine(record=row)))
        return
    starts = range(0, len(content), _CHUNK)
    writer.write(lines.encode(lines.RecordLine(record=row, chunks=len(starts))))
    for start in starts:
        writer.write(lines.encode(lines.ContentLine(content=content[start : start + _CHUNK])))


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
                case ImportedSession():
                    counts.sessions += 1
                case Put():
                    counts.records += 1
                case lines.TallyLine():
                    counts.tallies += 1
                case lines.RunningLine():
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


async def _restore(log: SessionLog, backup_item: Item) -> None:
    match backup_item:
        case ImportedSession():
            if not await backup_item.store(log):
                raise InvalidInput(
                    f"the backup contains session {backup_item.header.session_id} twice"
                )
        case Put():
            # the store adds one when it writes
            record = replace(backup_item.row, rev=backup_item.row.rev - 1)
            try:
                await log.store.records.write(msgspec.structs.replace(backup_item, row=record))
            except ServiceError as error:
                raise InvalidInput(f"the backup contains a record twice: {error}") from error
        case lines.TallyLine():
            await log.store.records.tally([(backup_item.name, backup_item.amount)])
        case lines.RunningLine(session_id=session_id):
            try:  # the lease expires at once, so a worker finds the session and continues it
                await log.store.acquire(session_id, owner=_RESTORE_OWNER, seconds=0)
            except SessionNotFound as error:
                raise InvalidInput(
                    f"session {session_id} was running, but is not in the backup"
                ) from error


async def _items(file: IO[bytes]) -> AsyncGenerator[Item, None]:
    """The entries of the file, each as soon as it is complete. Raises if the footer is missing."""
    reader = ContainerReader(is_backup=True)
    for number, raw in enumerate(_decompress(file), 1):
        if number % _PAGE == 0:
            await anyio.lowlevel.checkpoint()
        try:
            item = reader.take(raw)
        except InvalidInput as error:
            raise InvalidInput(f"line {number}: {error}") from error
        if item is not None:
            yield item
    reader.end()


def _decompress(file: IO[bytes]) -> Iterator[bytes]:
    try:
        with gzip.GzipFile("", "rb", fileobj=file) as compressed:
            yield from compressed
    except gzip.BadGzipFile as error:
        raise InvalidInput(f"this is not a backup, or it is damaged: {error}") from error
    except (EOFError, zlib.error) as error:
        raise InvalidInput(f"the backup is damaged or was cut short: {error}") from error
