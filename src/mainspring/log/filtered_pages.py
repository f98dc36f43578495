"""The SQL of both stores for a page of records that is filtered: one filter gives the records in
order, by an index; each record is looked up in the other filters.

With several filters, the rarest one leads: what costs is the number of its records that the others
exclude.
"""

from __future__ import annotations

from typing import Any, Final, LiteralString

from msgspec import Struct

from mainspring.log.records import RecordFilter, RecordQuery
from mainspring.log.sql_rows import RECORD_COLUMNS, require_storable

_COLUMNS: Final = ", ".join([f"r.{column}" for column in RECORD_COLUMNS.split(", ")])
_MAX_COUNTED = 1000
"""Records of a filter that are counted: which one is the rarest matters only if it has few."""


class SqlDialect(Struct, frozen=True):
    records: LiteralString
    """The table."""
    filters: LiteralString
    placeholder: LiteralString


class SqlText(Struct, frozen=True):
    """A part of a statement, with its values."""

    text: LiteralString
    values: list[Any]

    def __add__(self, other: SqlText) -> SqlText:
        return SqlText(self.text + other.text, self.values + other.values)


def filter_counts(query: RecordQuery, dialect: SqlDialect) -> SqlText:
    """How many records each filter has, up to `_MAX_COUNTED`."""
    counts = [_count(query, item, dialect) for item in query.filters]
    text = ", ".join([count.text for count in counts])
    return SqlText(f"select {text}", [value for count in counts for value in count.values])


def _count(query: RecordQuery, item: RecordFilter, dialect: SqlDialect) -> SqlText:
    branches = [_entries(query, item.name, value, dialect) for value in item.values]
    union = _union([SqlText("select 1 ", []) + branch for branch in branches])
    return SqlText(
        f"(select count(*) from ({union.text} limit {dialect.placeholder}) entries)",
        [*union.values, _MAX_COUNTED],
    )


def filtered_ids(query: RecordQuery, dialect: SqlDialect, leading: int) -> SqlText:
    """When each record was created, and its id, of those that have a value of each filter; the
    filter at `leading` gives them in order.

    Raises: InvalidInput: no record can have this value.
    """
    order = SqlText(f" {_order(query)} limit {dialect.placeholder}", [query.limit])
    tail = _range(query, dialect.placeholder)
    for index, item in enumerate(query.filters):
        if index != leading:
            tail += _lookup(item, dialect)
    first = query.filters[leading]
    branches = [
        _entries(query, first.name, value, dialect) + tail + order for value in first.values
    ]
    union = _union([_inside("select * from (select created, id", item) for item in branches])
    page = _inside("select created, id from (", union) + order
    require_storable(page.values)
    return page


def filtered_records(query: RecordQuery, dialect: SqlDialect, leading: int) -> SqlText:
    """As `filtered_ids`, but whole records. Raises: InvalidInput."""
    page = filtered_ids(query, dialect, leading)
    at, direction = dialect.placeholder, _direction(query)
    text: LiteralString = (
        f"select {_COLUMNS} from ({page.text}) page join {dialect.records} r"
        f" on r.kind = {at} and r.id = page.id and r.tenant = {at}"
        f" order by page.created {direction}, page.id {direction}"
    )
    return SqlText(text, [*page.values, query.kind, query.tenant])


def _direction(query: RecordQuery) -> LiteralString:
    return "desc" if query.order == "desc" else "asc"


def _order(query: RecordQuery) -> LiteralString:
    return f"order by created {_direction(query)}, id {_direction(query)}"


def _entries(
    query: RecordQuery, name: str, value: tuple[str, bool], dialect: SqlDialect
) -> SqlText:
    at = dialect.placeholder
    return SqlText(
        f" from {dialect.filters} f where f.kind = {at} and f.tenant = {at} and f.name = {at}"
        f" and f.value = {at} and f.is_archived = {at}",
        [query.kind, query.tenant, name, *value],
    )


def _range(query: RecordQuery, at: LiteralString) -> SqlText:
    part = SqlText("", [])
    if query.created_from is not None:
        part += SqlText(f" and f.created >= {at}", [query.created_from])
    if query.created_upto is not None:
        part += SqlText(f" and f.created <= {at}", [query.created_upto])
    if query.after is not None:
        sign: LiteralString = "<" if query.order == "desc" else ">"
        position = [query.after.created, query.after.id]
        part += SqlText(f" and (f.created, f.id) {sign} ({at}, {at})", position)
    return part


def _lookup(item: RecordFilter, dialect: SqlDialect) -> SqlText:
    at = dialect.placeholder
    value: LiteralString = f"(o.value = {at} and o.is_archived = {at})"
    either: LiteralString = " or ".join([value for _ in item.values])
    # a scalar query, looked up for one record at a time: PostgreSQL might join all of an `exists`
    return SqlText(
        f" and coalesce((select true from {dialect.filters} o where o.kind = f.kind"
        f" and o.id = f.id and o.name = {at} and ({either}) limit 1), false)",
        [item.name, *(part for pair in item.values for part in pair)],
    )


def _union(parts: list[SqlText]) -> SqlText:
    text: LiteralString = " union all ".join([part.text for part in parts])
    return SqlText(text, [value for part in parts for value in part.values])


def _inside(start: LiteralString, part: SqlText) -> SqlText:
    return SqlText(f"{start} {part.text}) part", part.values)
