"""What both SQL stores select, in the same order of columns, made into records."""

from __future__ import annotations

from typing import Any, Final

from mainspring.log.records import Record
from mainspring.log.store import Head, InboxItem, SessionRow

RECORD: Final = (
    "tenant, kind, id, created, updated, body, parent, name, label, due, is_archived, rev"
)
"""A record's fields, in the order of `record` and `record_values`."""


def session_row(found: tuple[Any, ...]) -> SessionRow:
    """From id, thread, created, updated, seq, hash, parent, its seq, epoch, owner."""
    return SessionRow(
        id=found[0],
        thread_id=found[1],
        created=found[2],
        updated=found[3],
        head=Head(found[4], found[5]),
        parent_id=found[6],
        parent_seq=found[7],
        epoch=found[8],
        owner=found[9],
    )


def inbox_item(found: tuple[Any, ...]) -> InboxItem:
    """From the item's fields, in their order."""
    return InboxItem(
        event_id=found[0],
        client_id=found[1],
        thread_id=found[2],
        time=found[3],
        version=found[4],
        type=found[5],
        body=found[6],
        sender=found[7],
        position=found[8],
        seq=found[9],
    )


def record(found: tuple[Any, ...]) -> Record:
    return Record(
        tenant=found[0],
        kind=found[1],
        id=found[2],
        created=found[3],
        updated=found[4],
        body=found[5],
        parent=found[6],
        name=found[7],
        label=found[8],
        due=found[9],
        is_archived=bool(found[10]),
        rev=found[11],
    )


def record_values(kept: Record) -> tuple[Any, ...]:
    return (
        kept.tenant,
        kept.kind,
        kept.id,
        kept.created,
        kept.updated,
        kept.body,
        kept.parent,
        kept.name,
        kept.label,
        kept.due,
        kept.is_archived,
        kept.rev,
    )
