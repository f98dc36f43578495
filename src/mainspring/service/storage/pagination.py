"""Pages of a list: a limit, and an opaque cursor to the next page."""

from __future__ import annotations

import base64
import binascii
from collections.abc import Sequence
from typing import Annotated, Generic, TypeVar

import msgspec
from msgspec import Meta, Struct

from mainspring.core.errors import InvalidInput

T = TypeVar("T")

Limit = Annotated[int, Meta(ge=1, le=1000)]


class Page(Struct, Generic[T], frozen=True, kw_only=True):
    data: Sequence[T]
    next_page: str | None = None


def encode_cursor(*place: str | int) -> str:
    return base64.urlsafe_b64encode(msgspec.json.encode(place)).decode().rstrip("=")


def decode_cursor(cursor: str) -> list[str | int]:
    """What was put into the cursor.

    Raises:
        InvalidInput: it is not one of ours.
    """
    try:
        raw = base64.urlsafe_b64decode(cursor + "=" * (-len(cursor) % 4))
        return msgspec.json.decode(raw, type=list[str | int])
    except (binascii.Error, ValueError) as error:
        raise InvalidInput("page: not a cursor of this list") from error
