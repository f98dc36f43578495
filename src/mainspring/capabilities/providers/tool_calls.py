"""Repairs tool calls: inputs that are not JSON, ids that are missing or used twice."""

from __future__ import annotations

import re
from collections.abc import Sequence
from hashlib import blake2b
from itertools import count

import msgspec

from mainspring.core.model import INVALID_JSON, Assistant, Request, ToolUse


def parse_input(pieces: Sequence[str]) -> dict[str, object]:
    """The input that a model wrote in pieces, parsed once."""
    text = "".join(pieces)
    if not text.strip():
        return {}
    try:
        value: object = msgspec.json.decode(text)
    except (msgspec.DecodeError, UnicodeError, RecursionError):
        return {INVALID_JSON: text}
    return as_input(value, text)


def as_input(value: object, text: str | None = None) -> dict[str, object]:
    """A decoded input as the mapping that it must be."""
    match value:
        case dict():
            return msgspec.convert(value, dict[str, object])
        case None:
            return {}
        case _:
            return {INVALID_JSON: text or msgspec.json.encode(value).decode()}


class CallIds:
    """Ids for the calls of one reply: the server's own, unless it is missing or taken."""

    def __init__(self, request: Request) -> None:
        self._used_ids = {
            block.id
            for message in request.messages
            if isinstance(message, Assistant)
            for block in message.content
            if isinstance(block, ToolUse)
        }
        stem = f"call_{_digest(request.request_id, 6)}"
        self._new_ids = (f"{stem}_{number}" for number in count(1))

    def unique(self, call_id: str | None) -> str:
        unique_id = call_id or next(self._new_ids)
        while unique_id in self._used_ids:
            unique_id = next(self._new_ids)
        self._used_ids.add(unique_id)
        return unique_id


def valid_id(id_: str, *, pattern: re.Pattern[str]) -> str:
    """The id, or a replacement where a provider would reject another provider's id."""
    return id_ if pattern.fullmatch(id_) else f"call_{_digest(id_, 16)}"


def _digest(text: str, size: int) -> str:
    return blake2b(text.encode(), digest_size=size).hexdigest()
