"""Types that msgspec leaves to us: models of pydantic, known by their methods, never imported."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Protocol, TypeGuard, cast

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
    return all(
        hasattr(kind, method)
        for method in ("model_json_schema", "model_validate_json", "model_dump")
    )


def encode_model(value: object) -> object:
    if is_model(value):
        return value.model_dump(mode="json")
    raise TypeError(f"a {type(value).__name__} has no JSON form")


def decode_model(hint: type, value: object) -> object:
    """Read a value as its model's author has set it to be read; JSON rules, not Python's."""
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
        f"{_place(found.get('loc', ()))}{found.get('msg', 'is not valid')}"
        for found in failure.errors(include_url=False)
    )


def _place(location: object) -> str:
    steps = cast("Iterable[object]", location) if isinstance(location, tuple) else ()
    words = ".".join(str(step) for step in steps)
    return f"{words}: " if words else ""


def json_schemas(hints: Sequence[object]) -> tuple[list[dict[str, object]], dict[str, object]]:
    """A JSON Schema for each type, and the definitions they refer to under `#/$defs`.

    Raises:
        TypeError: a type has no JSON form.
        InvalidInput: two models of one name do not fit beside each other.
    """
    hoisted: dict[str, object] = {}

    def schema_of(hint: type) -> dict[str, object]:
        if hint is object:
            return {"description": "any JSON value"}  # msgspec takes an empty schema for none
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
