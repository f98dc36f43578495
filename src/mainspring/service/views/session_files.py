"""The files of a session at each of its snapshots: what changed, and going back to one of them."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from datetime import datetime
from difflib import unified_diff
from itertools import islice
from typing import Annotated, Literal, TypeAlias

from anyio import CapacityLimiter, to_thread
from msgspec import Meta, Struct

from mainspring.core.envelope import event_types
from mainspring.core.errors import InvalidInput, NotFound, StaleVersion
from mainspring.core.events import WorkspaceRestored, WorkspaceSnapshotted
from mainspring.core.ports import FileChange, FileChangeKind, Snapshots
from mainspring.log.session_log import SessionLog
from mainspring.runtime.session.rewind import (
    RestorePoint,
    RewindHistory,
    read_rewind_history,
    restore,
)
from mainspring.service.access.principal import Principal
from mainspring.service.sessions.sessions import Sessions
from mainspring.service.storage.pagination import Page, Position, cut_page, decode_cursor

_MAX_CHANGES = 500
"""Files that a list of changes names."""
_MAX_LINES = 2000
"""Of the diff of one file."""
_MAX_LINE_CHARS = 2000  # longer lines are minified code
_MAX_CONCURRENT = 2
"""Requests that read a whole log and its files at the same time."""
OpenSessionSnapshots: TypeAlias = Callable[[SessionLog, RewindHistory], Awaitable[Snapshots]]
"""Opens the snapshots of a session's workspace. Raises: InvalidInput: it has none here."""


class ListSnapshots(Struct, frozen=True, kw_only=True):
    limit: Annotated[int, Meta(ge=1, le=500)] = 100
    page: str | None = None


class SnapshotLine(Struct, frozen=True, kw_only=True):
    seq: int
    """The event after which the files were so."""
    created_at: datetime
    files: int | None
    """How many files it has; `null`: it was restored from an earlier snapshot."""
    is_restored: bool
    type: Literal["snapshot"] = "snapshot"


class DiffQuery(Struct, frozen=True, kw_only=True):
    since: Annotated[int, Meta(ge=1)] = 1
    """From the files after this event."""
    to: Annotated[int, Meta(ge=1)] | None = None
    """To the files after this event; by default as they are now."""
    path: Annotated[str, Meta(min_length=1, max_length=4096)] | None = None
    """Only this file, with its lines."""


class ChangedFile(Struct, frozen=True, kw_only=True):
    path: str
    change: FileChangeKind


class FilesDiff(Struct, frozen=True, kw_only=True):
    data: list[ChangedFile]
    more: int
    """Changed files that are not in `data`."""
    lines: list[str] | None
    """A unified diff, if one file was asked for; `null` if it is no text or too large."""
    is_cut: bool
    """Whether lines are missing."""


class RewindFiles(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    to: Annotated[int, Meta(ge=1)]
    """Restore the files to what they were after this event."""
    head: Annotated[int, Meta(ge=1)]
    """The number of the session's last event that you have seen."""


class RewoundFiles(Struct, frozen=True, kw_only=True):
    to: int
    undo: int
    """Restore to this event to undo it."""
    data: list[ChangedFile]
    more: int
    type: Literal["rewound_files"] = "rewound_files"


class FilesOfSessions:
    def __init__(self, sessions: Sessions, open_snapshots: OpenSessionSnapshots) -> None:
        self._sessions = sessions
        self._open_snapshots = open_snapshots
        self._limiter = CapacityLimiter(_MAX_CONCURRENT)

    async def snapshots(
        self, principal: Principal, session_id: str, query: ListSnapshots
    ) -> Page[SnapshotLine]:
        """Newest first. Raises: NotFound."""
        row = await self._sessions.row(principal, session_id)
        (before,) = decode_cursor(query.page, tuple[Position]) if query.page else (None,)
        types = event_types(WorkspaceSnapshotted, WorkspaceRestored)
        events = await self._sessions.log.read(session_id, types=types, threads=[row.thread_id])
        lines = [
            SnapshotLine(
                seq=event.seq,
                created_at=event.time,
                files=event.payload.files
                if isinstance(event.payload, WorkspaceSnapshotted)
                else None,
                is_restored=isinstance(event.payload, WorkspaceRestored),
            )
            for event in reversed(events)
            if before is None or event.seq < before
        ]
        return cut_page(lines, query.limit, lambda line: (line.seq,))

    async def diff(self, principal: Principal, session_id: str, query: DiffQuery) -> FilesDiff:
        """Raises: NotFound. InvalidInput: there are no snapshots here, or no such event."""
        async with self._limiter:
            history, snapshots = await self._open(principal, session_id)
            older = _snapshot_at(history, query.since)
            newer = None if query.to is None else _snapshot_at(history, query.to)
            changes = await snapshots.diff(older, newer)
            if query.path is None:
                return FilesDiff(
                    data=_shown(changes), more=_more(changes), lines=None, is_cut=False
                )
            change = next((item for item in changes if item.path == query.path), None)
            if change is None:
                raise NotFound("changed file", query.path)
            before = await snapshots.contents(older, [change.path])
            after = await snapshots.contents(newer, [change.path])
        lines, is_cut = await to_thread.run_sync(
            _lines, change, before.get(change.path), after.get(change.path)
        )
        return FilesDiff(data=_shown([change]), more=0, lines=lines, is_cut=is_cut)

    async def rewind(
        self, principal: Principal, session_id: str, request: RewindFiles
    ) -> RewoundFiles:
        """Restore files in place; the log goes on, and says so.

        Raises: NotFound. InvalidInput. LeaseHeld: it is running. StaleVersion: it has continued.
        """
        async with self._limiter:
            history, snapshots = await self._open(principal, session_id)
            if history.head != request.head:
                raise StaleVersion(
                    f"session {session_id} has {history.head} events by now; look again"
                )
            checkpoint = history.checkpoint_at(history.target(to=request.to, turns=None))
            if checkpoint is None:
                raise _without_snapshots(session_id)
            log = self._sessions.log
            done = await restore(log, history, RestorePoint(checkpoint, snapshots))
        return RewoundFiles(
            to=request.to,
            undo=done.undo_seq,
            data=_shown(done.changes),
            more=_more(done.changes),
        )

    async def _open(self, principal: Principal, session_id: str) -> tuple[RewindHistory, Snapshots]:
        """Only sessions of this installation: the log of a foreign one could name any folder."""
        row = await self._sessions.row(principal, session_id)
        log = self._sessions.log
        await log.own(session_id)
        history = await read_rewind_history(log, row)
        if history.workspace is None or not history.checkpoints:
            raise _without_snapshots(session_id)
        return history, await self._open_snapshots(log, history)


def _without_snapshots(session_id: str) -> InvalidInput:
    return InvalidInput(f"session {session_id} has changed no files: there are no snapshots")


def _snapshot_at(history: RewindHistory, seq: int) -> str:
    checkpoint = history.checkpoint_at(history.target(to=seq, turns=None))
    if checkpoint is None:
        raise _without_snapshots(history.session_id)
    return checkpoint.snapshot


def _shown(changes: Sequence[FileChange]) -> list[ChangedFile]:
    return [ChangedFile(path=item.path, change=item.kind) for item in changes[:_MAX_CHANGES]]


def _more(changes: Sequence[FileChange]) -> int:
    return max(0, len(changes) - _MAX_CHANGES)


def _lines(
    change: FileChange, before: bytes | None, after: bytes | None
) -> tuple[list[str] | None, bool]:
    """A unified diff without its header, and whether it was cut. Blocks."""
    is_missing = (before is None and change.kind != "added") or (
        after is None and change.kind != "removed"
    )
    if is_missing or any(b"\0" in content for content in (before or b"", after or b"")):
        return None, False
    old, new = ((text or b"").decode("utf-8", "replace").splitlines() for text in (before, after))
    lines = list(islice(unified_diff(old, new, n=3, lineterm=""), 2, _MAX_LINES + 3))
    shown = [line[:_MAX_LINE_CHARS] for line in lines[:_MAX_LINES]]
    return shown, len(lines) > _MAX_LINES or any(len(line) > _MAX_LINE_CHARS for line in lines)
