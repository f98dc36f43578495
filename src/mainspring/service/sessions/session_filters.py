"""Stores what lists filter by for the session records of an older Mainspring or of a backup. Later
changes are stored with the records and the events themselves.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence

from mainspring.core.errors import StoreCorrupt
from mainspring.log.records import SESSION_KIND, FilterValues, RecordRow
from mainspring.log.session_activity import (
    ACTIVITY_TYPES,
    activity_note,
    current_activity,
    fold_activity,
)
from mainspring.log.session_log import SessionLog
from mainspring.log.store import ActivityNote, SessionRow
from mainspring.service.sessions.session_record import SessionRecord, index_columns
from mainspring.service.storage.repository import Repository

_LOG = logging.getLogger("mainspring.sessions")
_STEP = 500
"""Sessions of one commit: a second of work at most, and what is lost if the process is killed."""


async def fill_filters(log: SessionLog) -> int:
    """Fill what is missing, step by step: a killed process has lost one step, and the next one
    continues. Returns how many sessions were filled.

    Raises: StoreFailed.
    """
    repository = Repository(log.store.records, SESSION_KIND, SessionRecord, columns=index_columns)
    last, filled = "", 0
    while rows := await log.store.records.without_filters(SESSION_KIND, after=last, limit=_STEP):
        last = rows[-1].id
        await _note_statuses(log, [row.id for row in rows])
        changes: list[tuple[RecordRow, FilterValues]] = []
        for row in rows:
            try:
                columns = index_columns(repository.read(row))
            except StoreCorrupt as error:  # lists without a filter report it
                _LOG.error("%s", error)
                continue
            changes.append((row, columns.filters or ()))
        await log.store.records.add_filters(*changes)
        filled += len(changes)
        _LOG.info("prepared the lists of sessions: %d sessions so far", filled)
    return filled


async def _note_statuses(log: SessionLog, session_ids: Sequence[str]) -> None:
    notes: list[ActivityNote] = []
    unread: list[tuple[SessionRow, int]] = []
    for row in await log.store.rows(session_ids):
        if row.status is not None:
            continue
        if (activity := current_activity(row.activity, row.head.seq)) is not None:
            notes.append(activity_note(row.id, activity))
        else:
            unread.append((row, 0))
    for row, events in await log.read_many(unread, types=ACTIVITY_TYPES):
        activity = fold_activity(row.thread_id, events)
        activity.seq = row.head.seq
        notes.append(activity_note(row.id, activity))
    if notes:
        await log.store.note_activity(*notes)
