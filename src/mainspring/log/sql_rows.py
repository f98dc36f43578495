"""Code that both SQL stores share: columns to rows, record queries to SQL conditions, and checks of
values that a store cannot hold.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from operator import attrgetter
from typing import Any, Final, LiteralString

from msgspec import Struct

from mainspring.core.errors import InvalidInput
from mainspring.log.provenance import Provenance, content_hash
from mainspring.log.records import (
    Put,
    RecordChange,
    RecordQuery,
    RecordRow,
    Remove,
    Replace,
)
from mainspring.log.store import Head, SessionRow

RECORD_COLUMNS: Final = (
    "tenant, kind, id, created, updated, body, parent, name, label, due, is_archived,"
    " rev, content_hash, mac"
)
"""A record's fields, in the order of `record_row` and `record_values`."""


def session_row(row: tuple[Any, ...]) -> SessionRow:
    """From the columns that every query of sessions selects."""
    id_, thread_id, created, updated, seq, digest, *parent_and_lease = row
    return SessionRow(id_, thread_id, created, updated, Head(seq, digest), *parent_and_lease)


def record_row(row: tuple[Any, ...]) -> RecordRow:
    """From `RECORD_COLUMNS`; ignores further columns."""
    values = [*row[:14]]
    values[10] = bool(values[10])  # SQLite has no booleans
    return RecordRow(*values)


def next_row(change: Put | Replace, provenance: Provenance) -> RecordRow:
    """The row to store: with the next `rev`, the hash of its content, and its MAC."""
    row = replace(change.row, rev=change.row.rev + 1)
    if change.content is not None:
        row = replace(row, content_hash=content_hash(change.content))
    if isinstance(change, Put) and change.keeps_mac:
        return row  # its `rev` is again that of the backup
    return replace(row, mac=provenance.record_mac(row))


record_values: Callable[[RecordRow], tuple[Any, ...]] = attrgetter(*RECORD_COLUMNS.split(", "))


_INTEGERS = range(-(2**63), 2**63)
_LAST_CHARACTER = "\U0010ffff"


class Conditions(Struct, frozen=True):
    """Conditions of a `where`: a column with an operator, and the value to compare with."""

    parts: dict[LiteralString, Any]

    def where(self, placeholder: LiteralString) -> LiteralString:
        return " and ".join([f"{part} {placeholder}" for part in self.parts])

    @property
    def values(self) -> list[Any]:
        return list(self.parts.values())


def record_conditions(query: RecordQuery) -> Conditions:
    """Raises: InvalidInput: no record can have this value."""
    # the database uses a partial index only if the query repeats its condition
    parent: LiteralString = "parent <> '' and parent =" if query.parent else "parent ="
    label: LiteralString = "label <> '' and label =" if query.label else "label ="
    values: dict[LiteralString, Any] = {
        "kind =": query.kind,
        "tenant =": query.tenant,
        parent: query.parent,
        label: query.label,
        "is_archived =": query.is_archived,
        "created >=": query.created_from,
        "created <=": query.created_upto,
        "due <=": query.due_upto,
        "name >=": query.name_from,
        "name <": None if query.name_from is None else prefix_end(query.name_from),
    }
    conditions = Conditions({part: value for part, value in values.items() if value is not None})
    require_storable(conditions.values)
    return conditions


def record_order(query: RecordQuery) -> tuple[LiteralString, LiteralString]:
    """The column that a list is ordered by before the id, and the direction of both."""
    if query.due_upto is not None:
        return "due", "asc"
    if query.name_from is not None:
        return "name", "asc"
    return "created", "desc" if query.order == "desc" else "asc"


def record_page(query: RecordQuery, placeholder: LiteralString) -> tuple[LiteralString, list[Any]]:
    """The SQL after `from record` (conditions, page, order, limit), and its values."""
    conditions = record_conditions(query)
    column, direction = record_order(query)
    where, values = conditions.where(placeholder), conditions.values
    if query.after is not None:
        position = [getattr(query.after, column), query.after.id]
        require_storable(position)
        sign: LiteralString = "<" if direction == "desc" else ">"
        where = f"{where} and ({column}, id) {sign} ({placeholder}, {placeholder})"
        values += position
    order: LiteralString = f"order by {column} {direction}, id {direction} limit {placeholder}"
    return f"where {where} {order}", [*values, query.limit]


def prefix_end(prefix: str) -> str | None:
    """The first text, by code points, after all texts with this prefix; `None` if there is none."""
    stem = prefix.rstrip(_LAST_CHARACTER)
    if not stem:
        return None
    following = ord(stem[-1]) + 1
    if 0xD800 <= following <= 0xDFFF:  # surrogates: no text contains these
        following = 0xE000
    return stem[:-1] + chr(following)


def is_storable_text(text: str) -> bool:
    """Whether every database can store it: some refuse NUL and lone surrogates."""
    if "\0" in text:
        return False
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True


def require_storable(values: Iterable[Any]) -> None:
    """Raises: InvalidInput."""
    for value in values:
        if isinstance(value, str) and not is_storable_text(value):
            raise InvalidInput(f"{value!r}: the text contains NUL or an incomplete character")
        if isinstance(value, int) and value not in _INTEGERS:
            raise InvalidInput(f"{value}: the number is too large")


def require_changes_storable(record_changes: Sequence[RecordChange]) -> None:
    """Raises: InvalidInput."""
    for change in record_changes:
        require_storable(record_values(change.row))
        if not isinstance(change, Remove):
            require_storable(text for pair in change.filters or () for text in pair)
