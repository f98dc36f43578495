"""What both SQL stores select, in the same order of columns, made into records."""

from __future__ import annotations

from typing import Any

from mainspring.log.store import Head, InboxItem, SessionRow


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
        position=found[7],
        seq=found[8],
    )
