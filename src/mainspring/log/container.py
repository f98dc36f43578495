"""The one reader of sessions from outside a store: exports, moved sessions and backups.

What it reads is checked, never trusted: sessions and records bring the MACs that they were written
with, and `provenance.py` decides whose they are.
"""

from __future__ import annotations

import hashlib
from collections.abc import AsyncIterable
from typing import TypeAlias

from mainspring.core.envelope import EventLine
from mainspring.core.errors import InvalidInput
from mainspring.log.lines import (
    BACKUP_FORMAT,
    BlobLine,
    ContentLine,
    EndLine,
    FooterLine,
    HeaderLine,
    InboxLine,
    RecordLine,
    RunningLine,
    SessionLine,
    TallyLine,
    decode,
)
from mainspring.log.records import Put
from mainspring.log.session_log import SessionLog
from mainspring.log.transfer import ImportedSession

Item: TypeAlias = ImportedSession | RunningLine | Put | TallyLine
_BackupLine: TypeAlias = HeaderLine | RunningLine | RecordLine | ContentLine | TallyLine
_SessionLine: TypeAlias = SessionLine | BlobLine | InboxLine | EndLine | EventLine


class ContainerReader:
    """Parses lines into sessions and, of a backup, records and counters."""

    def __init__(self, *, is_backup: bool = False) -> None:
        self.open: ImportedSession | None = None
        self.sessions = 0
        """The number of complete sessions."""
        self._is_backup = is_backup
        self._lines = 0
        self._is_complete = False
        self._hash = hashlib.sha256()
        self._records = 0
        self._tallies = 0
        self._open_record: tuple[RecordLine, list[bytes]] | None = None
        """A record whose content is not complete yet."""

    def take(self, raw: bytes) -> Item | None:
        """What this line completes, if anything. Raises: InvalidInput."""
        if self._is_complete:
            raise InvalidInput("this line follows the end of the backup")
        line = decode(raw)
        self._lines += 1
        if isinstance(line, HeaderLine) != (self._is_backup and self._lines == 1):
            raise InvalidInput(
                "this is not the beginning of a backup"
                if self._is_backup
                else "this is a backup; `mainspring restore` reads it"
            )
        if isinstance(line, FooterLine):
            self._check_footer(line)
            self._is_complete = True
            return None
        self._hash.update(raw)
        return self._take_line(line)

    def end(self) -> None:
        """Raises: InvalidInput: more lines belong to it."""
        if self._is_backup and not self._is_complete:
            raise InvalidInput("the backup was cut short")
        if self.open is not None:
            raise InvalidInput(f"line {self._lines}: the file ends in the middle of a session")
        if not self._is_backup and not self.sessions:
            raise InvalidInput("the file is empty")

    def _take_line(self, line: _BackupLine | _SessionLine) -> Item | None:
        if isinstance(line, ContentLine):
            return self._add_content(line.content)
        if self._open_record is not None:
            raise InvalidInput("the content of the record before it is not complete")
        match line:
            case HeaderLine(format=version):
                if version > BACKUP_FORMAT:
                    raise InvalidInput(
                        "a newer version of Mainspring wrote this backup; upgrade, then restore it"
                    )
                return None
            case RecordLine():
                self._open_record = (line, [])
                return self._add_content(None)
            case TallyLine():
                self._tallies += 1
                return line
            case RunningLine():
                return line
            case _:
                return self._take_session(line)

    def _take_session(self, line: _SessionLine) -> ImportedSession | None:
        if isinstance(line, SessionLine):
            if self.open is not None:
                open_id = self.open.header.session_id
                raise InvalidInput(f"session {open_id} does not end before this one begins")
            self.open = ImportedSession(line)
        elif self.open is None:
            raise InvalidInput("this line comes before its session")
        elif isinstance(line, EndLine):
            finished, self.open = self.open, None
            finished.end(line)
            self.sessions += 1
            return finished
        else:
            self.open.take(line)
        return None

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
        return Put(row=line.record, content=content, keeps_mac=True)

    def _check_footer(self, footer: FooterLine) -> None:
        counts = (self.sessions, self._records, self._tallies)
        is_open = self.open is not None or self._open_record is not None
        if is_open or counts != (footer.sessions, footer.records, footer.tallies):
            raise InvalidInput("the backup is not complete")
        if footer.sha256 != self._hash.hexdigest():
            raise InvalidInput("the backup was changed: its hash differs")


async def import_lines(log: SessionLog, lines: AsyncIterable[bytes]) -> list[str]:
    """Store exported sessions. Identical sessions that already exist do not change.

    Returns the ids of the new sessions. A session is stored completely or not at all.

    Raises:
        InvalidInput: a line is malformed, or an existing session differs from the file's.
    """
    reader, new_ids, number = ContainerReader(), list[str](), 0
    async for raw in lines:
        number += 1
        try:
            session = reader.take(raw) if raw.strip() else None
            if isinstance(session, ImportedSession) and await session.store(log):
                new_ids.append(session.header.session_id)
        except InvalidInput as error:
            raise InvalidInput(f"line {number}: {error}") from error
    reader.end()
    return new_ids
