"""Which records are meant, as both SQL stores ask for it, and what values they can hold. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any, LiteralString

from mainspring.core.errors import InvalidInput
from mainspring.log.columns import record_values
from mainspring.log.records import Change, Wanted

_INTEGERS = range(-(2**63), 2**63)
_LAST = "\U0010ffff"


@dataclass(frozen=True, slots=True)
class Conditions:
    """Of a `where`: each a column with an operator, and the value that follows it."""

    parts: dict[LiteralString, Any]

    def where(self, placeholder: LiteralString) -> LiteralString:
        return " and ".join([f"{part} {placeholder}" for part in self.parts])

    @property
    def values(self) -> list[Any]:
        return list(self.parts.values())


def conditions(wanted: Wanted) -> Conditions:
    """Raises: InvalidInput: no record can have such a value."""
    # the indexes for these leave out the empty ones, and are used if that is said
    parent: LiteralString = "parent <> '' and parent =" if wanted.parent else "parent ="
    label: LiteralString = "label <> '' and label =" if wanted.label else "label ="
    given: dict[LiteralString, Any] = {
        "kind =": wanted.kind,
        "tenant =": wanted.tenant,
        parent: wanted.parent,
        label: wanted.label,
        "is_archived =": wanted.is_archived,
        "created >=": wanted.created_from,
        "created <=": wanted.created_upto,
        "due <=": wanted.due_upto,
        "name >=": wanted.name_from,
        "name <": None if wanted.name_from is None else beyond(wanted.name_from),
    }
    found = Conditions({part: value for part, value in given.items() if value is not None})
    require_keepable(found.values)
    return found


def order(wanted: Wanted) -> tuple[LiteralString, LiteralString]:
    """The column that a list is in the order of, before the id, and the direction of both."""
    if wanted.due_upto is not None:
        return "due", "asc"
    if wanted.name_from is not None:
        return "name", "asc"
    return "created", "desc" if wanted.order == "desc" else "asc"


def page(wanted: Wanted, placeholder: LiteralString) -> tuple[LiteralString, list[Any]]:
    """What follows `from record`: the conditions, where to go on, order and limit; the values."""
    found = conditions(wanted)
    column, direction = order(wanted)
    where, values = found.where(placeholder), found.values
    if wanted.after is not None:
        seen = [getattr(wanted.after, column), wanted.after.id]
        require_keepable(seen)
        sign: LiteralString = "<" if direction == "desc" else ">"
        where = f"{where} and ({column}, id) {sign} ({placeholder}, {placeholder})"
        values += seen
    rest: LiteralString = f"order by {column} {direction}, id {direction} limit {placeholder}"
    return f"where {where} {rest}", [*values, wanted.limit]


def beyond(prefix: str) -> str | None:
    """The first text, by code points, after all that begin so; `None` if nothing comes after."""
    kept = prefix.rstrip(_LAST)
    if not kept:
        return None
    following = ord(kept[-1]) + 1
    if 0xD800 <= following <= 0xDFFF:  # no text has these
        following = 0xE000
    return kept[:-1] + chr(following)


def is_text(text: str) -> bool:
    """Whether a database can hold it: NUL and halves of surrogate pairs are no text to all."""
    if "\0" in text:
        return False
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True


def require_keepable(values: Iterable[Any]) -> None:
    """Raises: InvalidInput."""
    for value in values:
        if isinstance(value, str) and not is_text(value):
            raise InvalidInput(f"{value!r}: a text here cannot have NUL or half a character in it")
        if isinstance(value, int) and value not in _INTEGERS:
            raise InvalidInput(f"{value}: is too large a number")


def require_changes_keepable(changes: Sequence[Change]) -> None:
    """Raises: InvalidInput."""
    for change in changes:
        require_keepable(record_values(change.record))
