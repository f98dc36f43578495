"""Fields of resources: the metadata that clients set, patches, and copies between types."""

from __future__ import annotations

from typing import Annotated, TypeAlias, TypeVar

from msgspec import UNSET, Meta, Struct, UnsetType
from msgspec.structs import replace

from mainspring.core.errors import InvalidInput

MAX_PAIRS = 16  # the Managed Agents API's own limit

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
    """Apply a patch; pairs that are `None` are removed. Raises: InvalidInput: too many pairs."""
    if patch is UNSET or patch is None:
        return current
    merged = {**current, **patch}
    pairs = {key: value for key, value in merged.items() if value is not None}
    if len(pairs) > MAX_PAIRS:
        raise InvalidInput(f"metadata: at most {MAX_PAIRS} pairs")
    return pairs


S = TypeVar("S", bound=Struct)


def apply_patch(current: S, request: Struct, **changes: object) -> S:
    """The entity with the fields that the request sets, and then with `changes`. Unset fields
    stay."""
    fields = frozenset(current.__struct_fields__)
    patch = {
        name: value
        for name in request.__struct_fields__
        if name in fields and (value := getattr(request, name)) is not UNSET
    }
    return replace(current, **patch | changes)


def copy_fields(type_: type[S], source: object, **fields: object) -> S:
    """A struct of another type, with these fields and, for the rest, the fields of `source` that
    have the same names."""
    names = [name for name in type_.__struct_fields__ if name not in fields]
    shared = {name: getattr(source, name) for name in names if hasattr(source, name)}
    return type_(**shared, **fields)
