"""Every way in which a value is not of a type. msgspec stops at the first; a model needs all."""

from __future__ import annotations

import dataclasses
import types
from collections.abc import Collection, Iterator, Mapping
from enum import Enum
from typing import (
    Annotated,
    Literal,
    TypeAlias,
    Union,
    cast,
    get_args,
    get_origin,
    get_type_hints,
    is_typeddict,
)

import msgspec

from mainspring.capabilities.tools.pydantic_types import decode_model


@dataclasses.dataclass(frozen=True, slots=True)
class Field:
    hint: object
    """A type expression, for which Python has no type."""
    required: bool


Fields: TypeAlias = Mapping[str, Field]


def convert_strictly(value: object, hint: object) -> object:
    """The value as the type says, strictly.

    Raises:
        msgspec.ValidationError: it is not of that type.
    """
    return msgspec.convert(value, hint, str_keys=True, dec_hook=decode_model)


def type_mismatches(value: object, hint: object, path: str) -> list[str]:
    """What is wrong with a value, innermost first to blame; empty if nothing is."""
    try:
        convert_strictly(value, hint)
    except msgspec.ValidationError as error:
        bare = _bare(hint)
        return list(_inner(value, bare, path)) or [_mismatch_text(error, bare, path)]
    except TypeError:
        return []  # a type variable: it means something only where it is filled in
    return []


def _mismatch_text(error: msgspec.ValidationError, hint: object, path: str) -> str:
    words, _, inside = str(error).partition(" - at `$")
    choices = _choices(hint)
    if choices:
        words = f"must be one of {choices}"
    return f"{path}{inside.rstrip('`')}: {words[:1].lower()}{words[1:]}"


def _choices(hint: object) -> str:
    if get_origin(hint) is Literal:
        return ", ".join(repr(choice) for choice in get_args(hint))
    if isinstance(hint, type) and issubclass(hint, Enum):
        return ", ".join(repr(member.value) for member in hint)
    return ""


def _bare(hint: object) -> object:
    """Without `Annotated`, and without the `None` of an optional."""
    origin, arguments = get_origin(hint), get_args(hint)
    if origin is Annotated:
        return _bare(arguments[0])
    if origin in (Union, types.UnionType):
        rest = [argument for argument in arguments if argument is not types.NoneType]
        return _bare(rest[0]) if len(rest) == 1 else hint
    return hint


def _inner(value: object, hint: object, path: str) -> Iterator[str]:
    if isinstance(value, list):
        items = cast("list[object]", value)
        for at, (item, part) in enumerate(zip(items, _item_hints(hint, len(items)), strict=False)):
            yield from type_mismatches(item, part, f"{path}[{at}]")
    elif isinstance(value, dict):
        members = cast("dict[str, object]", value)
        fields = _fields(hint)
        if fields is not None:
            yield from field_mismatches(members, fields, f"{path}.")
        elif _is_generic(hint, Mapping):
            for key, member in members.items():
                yield from type_mismatches(member, get_args(hint)[1], f"{path}.{key}")


def field_mismatches(members: Mapping[str, object], fields: Fields, prefix: str) -> Iterator[str]:
    """What is missing and what is wrong; members that are no field are left alone."""
    for name, field in fields.items():
        if name in members:
            yield from type_mismatches(members[name], field.hint, f"{prefix}{name}")
        elif field.required:
            yield f"{prefix}{name}: missing"


def _item_hints(hint: object, count: int) -> list[object]:
    if not _is_generic(hint, Collection) or _is_generic(hint, Mapping):
        return []
    arguments = get_args(hint)
    is_fixed = get_origin(hint) is tuple and arguments[-1] is not Ellipsis
    return list(arguments) if is_fixed else [arguments[0]] * count


def _is_generic(hint: object, kind: type) -> bool:
    origin = get_origin(hint)
    return isinstance(origin, type) and issubclass(origin, kind) and bool(get_args(hint))


def _fields(hint: object) -> Fields | None:
    if not isinstance(hint, type):
        return None
    kind = cast("type[object]", hint)
    if issubclass(kind, msgspec.Struct):
        return {
            field.encode_name: Field(field.type, field.required)
            for field in msgspec.structs.fields(kind)
        }
    if dataclasses.is_dataclass(kind):
        hints = get_type_hints(kind, include_extras=True)
        return {
            field.name: Field(hints[field.name], _is_required(field))
            for field in dataclasses.fields(kind)
            if field.init
        }
    if is_typeddict(kind):
        required = cast("frozenset[str]", getattr(kind, "__required_keys__", frozenset[str]()))
        return {name: Field(part, name in required) for name, part in get_type_hints(kind).items()}
    return None


def _is_required(field: dataclasses.Field[object]) -> bool:
    missing = dataclasses.MISSING
    return field.default is missing and field.default_factory is missing
