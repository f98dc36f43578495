"""Pages of a list: a limit, and an opaque cursor to the next page."""

from __future__ import annotations

import base64
import binascii
from collections.abc import Callable, Sequence
from datetime import datetime, timedelta
from typing import Annotated, Generic, TypeVar

import msgspec
from msgspec import Meta, Struct

from mainspring.core.errors import InvalidInput

T = TypeVar("T")
U = TypeVar("U")

_MICROSECOND = timedelta(microseconds=1)  # the precision of times in cursors
Limit = Annotated[int, Meta(ge=1, le=1000)]
Position = Annotated[int, Meta(ge=0, lt=1 << 62)]


class Page(Struct, Generic[T], frozen=True, kw_only=True):
    data: Sequence[T]
    next_page: str | None = None

    def map(self, function: Callable[[T], U]) -> Page[U]:
        return Page(data=[function(item) for item in self.data], next_page=self.next_page)


def cut_page(
    items: Sequence[T], limit: int, position: Callable[[T], tuple[str | int, ...]]
) -> Page[T]:
    """The first `limit` items; if there are more, with a cursor to the position of the last."""
    data = items[:limit]
    has_more = len(items) > limit
    return Page(data=data, next_page=encode_cursor(*position(data[-1])) if has_more else None)


def created_bounds(query: object) -> tuple[datetime | None, datetime | None]:
    """The first and the last time that a query asks for, by its fields `created_at_gte`, `_gt`,
    `_lte` and `_lt`, as far as it has them.

    Raises: InvalidInput: a time without a zone.
    """
    gte, gt, lte, lt = (
        getattr(query, f"created_at_{name}", None) for name in ("gte", "gt", "lte", "lt")
    )
    if any(moment is not None and moment.tzinfo is None for moment in (gte, gt, lte, lt)):
        raise InvalidInput("created_at: a time needs a time zone, such as 2026-11-16T12:00:00Z")
    lower = filter(None, (gte, _shifted(gt, _MICROSECOND)))
    upper = filter(None, (lte, _shifted(lt, -_MICROSECOND)))
    return max(lower, default=None), min(upper, default=None)


def _shifted(moment: datetime | None, by: timedelta) -> datetime | None:
    try:
        return moment and moment + by
    except OverflowError:  # the first or the last moment there is
        return moment


def encode_cursor(*position: str | int) -> str:
    return base64.urlsafe_b64encode(msgspec.json.encode(position)).decode().rstrip("=")


def decode_cursor(cursor: str, type_: type[T]) -> T:
    """The position in the cursor, as a tuple of this type.

    Raises:
        InvalidInput: it is not a cursor of this list.
    """
    try:
        raw = base64.urlsafe_b64decode(cursor + "=" * (-len(cursor) % 4))
        return msgspec.json.decode(raw, type=type_)
    except (binascii.Error, ValueError) as error:
        raise InvalidInput("page: not a cursor of this list") from error
