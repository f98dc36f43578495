"""Metadata that clients put on things: a few short pairs, changed pair by pair."""

from __future__ import annotations

from typing import Annotated, TypeAlias

from msgspec import UNSET, Meta, UnsetType

from mainspring.core.errors import InvalidInput

MAX_PAIRS = 16

Key = Annotated[str, Meta(min_length=1, max_length=64)]
Value = Annotated[str, Meta(max_length=512)]
Metadata: TypeAlias = Annotated[dict[Key, Value], Meta(max_length=MAX_PAIRS)]
MetadataPatch: TypeAlias = Annotated[dict[Key, Value | None], Meta(max_length=MAX_PAIRS)]
"""`None` takes a pair out; pairs that are not named stay."""


def patched(known: dict[str, str], patch: dict[str, str | None] | UnsetType | None) -> Metadata:
    """A pair that is `None` goes. Raises: InvalidInput: it would be too many."""
    if patch is UNSET or patch is None:
        return known
    merged = {**known, **patch}
    left = {key: value for key, value in merged.items() if value is not None}
    if len(left) > MAX_PAIRS:
        raise InvalidInput(f"metadata: at most {MAX_PAIRS} pairs")
    return left
