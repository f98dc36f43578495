"""Types of tool inputs: their JSON Schema, strict conversion, and all mismatches of a value
(msgspec stops at the first; a model needs all). pydantic models are recognized by their methods.
"""

from __future__ import annotations

import dataclasses
import types
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from enum import Enum
from typing import (
    Annotated,
    Literal,
    Protocol,
    TypeAlias,
    TypeGuard,
    Union,
    cast,
    get_args,
    get_origin,
    get_type_hints,
    is_typeddict,
)

import msgspec

from mainspring.core.errors import InvalidInput


class PydanticModel(Protocol):
    @classmethod
    def model_json_schema(cls, *, ref_template: str) -> dict[str, object]: ...
    @classmethod
    def model_validate_json(cls, json_data: bytes, /) -> object: ...
    def model_dump(self, *, mode: str) -> object: ...


class PydanticFailure(Protocol):
    def errors(self, *, include_url: bool) -> Sequence[Mapping[str, object]]: ...


def is_model_type(hint: object) -> TypeGuard[type[PydanticModel]]:
    return isinstance(hint, type) and _is_model_like(hint)


def is_model(value: object) -> TypeGuard[PydanticModel]:
    return not isinstance(value, type) and _is_model_like(type(value))


def _is_model_like(kind: type) -> bool:
    methods = ("model_json_schema", "model_validate_json", "model_dump")
    return all(hasattr(kind, method) for method in methods)


def encode_model(value: object) -> object:
    if is_model(value):
        return value.model_dump(mode="json")
    raise TypeError(f"a {type(value).__name__} has no JSON form")


def decode_model(hint: type, value: object) -> object:
    """Read a value with the validation of its model, from JSON."""
    if hint is object:
        return value
    if not is_model_type(hint):
        raise NotImplementedError
    try:
        return hint.model_validate_json(msgspec.json.encode(value))
    except ValueError as error:
        if not hasattr(error, "errors"):
            raise
        raise ValueError(_failure_text(cast("PydanticFailure", error))) from None


def _failure_text(failure: PydanticFailure) -> str:
    return "; ".join(
        f"{_place(error.get('loc', ()))}{error.get('msg', 'is not valid')}"
        for error in failure.errors(include_url=False)
    )


def _place(location: object) -> str:
    steps = cast("Iterable[object]", location) if isinstance(location, tuple) else ()
    words = ".".join(str(step) for step in steps)
    return f"{words}: " if words else ""


def json_schemas(hints: Sequence[object]) -> tuple[list[dict[str, object]], dict[str, object]]:
    """A JSON Schema for each type, and the definitions they refer to under `#/$defs`.

    Raises:
        TypeError: a type has no JSON form.
        InvalidInput: two different models have the same name.
    """
    hoisted: dict[str, object] = {}

    def schema_of(hint: type) -> dict[str, object]:
        if hint is object:
            return {"description": "any JSON value"}  # msgspec treats an empty schema as none
        if not is_model_type(hint):
            raise NotImplementedError
        name = hint.__name__
        schema = hint.model_json_schema(ref_template=f"#/$defs/{name}.{{model}}")
        inner = cast("dict[str, object]", schema.pop("$defs", {}))
        for key, definition in inner.items():
            if hoisted.setdefault(f"{name}.{key}", definition) != definition:
                raise InvalidInput(f"two different models are called {name}: rename one of them")
        return schema

    schemas, definitions = msgspec.json.schema_components(
        hints, schema_hook=schema_of, ref_template="#/$defs/{name}"
    )
    return list(schemas), {**definitions, **hoisted}


@dataclasses.dataclass(frozen=True, slots=True)
class Field:
    hint: object
    """A type expression, for which Python has no type."""
    required: bool


Fields: TypeAlias = Mapping[str, Field]


def convert_strictly(value: object, hint: object) -> object:
    """The value, converted to the type without coercion.

    Raises:
        msgspec.ValidationError: it is not of that type.
    """
    return msgspec.convert(value, hint, str_keys=True, dec_hook=decode_model)


def type_mismatches(value: object, hint: object, path: str) -> list[str]:
    """The innermost problems of a value; empty if there are none."""
    try:
        convert_strictly(value, hint)
    except msgspec.ValidationError as error:
        bare = _bare(hint)
        return list(_inner(value, bare, path)) or [_mismatch_text(error, bare, path)]
    except TypeError:
        return []  # a type variable, which has no meaning by itself
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
    """The type without `Annotated`, and without the `None` of an optional."""
    origin, arguments = get_origin(hint), get_args(hint)
    if origin is Annotated:
        return _bare(arguments[0])
    if origin in (Union, types.UnionType):
        others = [argument for argument in arguments if argument is not types.NoneType]
        return _bare(others[0]) if len(others) == 1 else hint
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
    """Missing and wrong fields; unknown members are ignored."""
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
        fields = msgspec.structs.fields(kind)
        return {field.encode_name: Field(field.type, field.required) for field in fields}
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
    no_default = dataclasses.MISSING
    return field.default is no_default and field.default_factory is no_default
