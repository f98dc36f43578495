"""Metadata that clients set on resources, and patches: a value that is not given stays as it is."""

from __future__ import annotations

from typing import Annotated, TypeAlias, TypeVar

from msgspec import UNSET, Meta, UnsetType

from mainspring.core.errors import InvalidInput

MAX_PAIRS = 16

MetadataKey = Annotated[str, Meta(min_length=1, max_length=64)]
MetadataValue = Annotated[str, Meta(max_length=512)]
Metadata: TypeAlias = Annotated[dict[MetadataKey, MetadataValue], Meta(max_length=MAX_PAIRS)]
MetadataPatch: TypeAlias = Annotated[
    dict[MetadataKey, MetadataValue | None], Meta(max_length=MAX_PAIRS)
]
"""`None` removes a pair; pairs that are not named stay."""


def patch_metadata(
    current: dict[str, str], patch: dict[str, str | None] | UnsetType | None
) -> Metadata:
    """Pairs that are `None` are removed. Raises: InvalidInput: too many pairs."""
    if patch is UNSET or patch is None:
        return current
    merged = {**current, **patch}
    left = {key: value for key, value in merged.items() if value is not None}
    if len(left) > MAX_PAIRS:
        raise InvalidInput(f"metadata: at most {MAX_PAIRS} pairs")
    return left


T = TypeVar("T")


def value_or_current(params: T | UnsetType, current: T) -> T:
    return current if isinstance(params, UnsetType) else params
