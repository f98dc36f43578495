"""JSON Schemas of the types that routes name, for the OpenAPI document."""

from __future__ import annotations

import ast
import inspect
import re
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from itertools import pairwise
from typing import Any, TypeAlias, cast

import msgspec
from msgspec import Struct

Schema: TypeAlias = dict[str, Any]

REF_PREFIX = "#/components/schemas/"
_PACKAGE_PREFIX = re.compile(r"mainspring\.\w+\.")


@dataclass(frozen=True, slots=True)
class Schemas:
    """The schema of each given type; structs are references to `components`."""

    places: Mapping[Any, Schema]
    components: Mapping[str, Schema]

    def of(self, type_: object) -> Schema:
        return self.places[_type_key(type_)]

    def struct(self, type_: type[Struct]) -> Schema:
        """The schema of a struct itself, not the reference to it."""
        return self.components[self.name(type_)]

    def name(self, type_: type[Struct]) -> str:
        """The name of a struct in `components`."""
        return self.of(type_)["$ref"].removeprefix(REF_PREFIX)


def schemas_of(types: Sequence[object]) -> Schemas:
    once = {_type_key(item): item for item in types}
    schemas, components = msgspec.json.schema_components(
        list(once.values()), ref_template=f"{REF_PREFIX}{{name}}", schema_hook=_any_schema
    )
    for struct in _structs(list(once.values())):
        for name in (struct.__name__, f"{struct.__module__}.{struct.__qualname__}"):
            if name in components:
                _add_descriptions(components[name], struct)
    return Schemas(
        places={
            key: _with_component_names(schema) for key, schema in zip(once, schemas, strict=True)
        },
        components={
            _component_name(name): _with_component_names(components[name])
            for name in sorted(components, key=_component_name)
        },
    )


def without_null(schema: Schema) -> Schema:
    """The schema of a query field, which can be omitted but cannot be null."""
    options = [item for item in schema.get("anyOf", ()) if item != {"type": "null"}]
    if not options:
        return {key: value for key, value in schema.items() if (key, value) != ("default", None)}
    types = {key: value for key, value in schema.items() if key not in ("anyOf", "default")}
    return {**types, **(options[0] if len(options) == 1 else {"anyOf": options})}


def map_schema(schema: Any, change: Callable[[Schema], Schema]) -> Any:  # noqa: ANN401 (any JSON)
    """The schema with `change` applied to every object in it, innermost first."""
    if isinstance(schema, dict):
        current = cast("Schema", schema)
        return change({key: map_schema(value, change) for key, value in current.items()})
    if isinstance(schema, list):
        return [map_schema(item, change) for item in cast("list[Any]", schema)]
    return schema


def _any_schema(type_: type) -> Schema:
    if type_ is object:
        return {"description": "Anything."}
    raise NotImplementedError


def _type_key(type_: object) -> object:
    """A key that identifies a type. Types that are not classes, such as unions, are compared by
    their text."""
    return type_ if isinstance(type_, type) else repr(type_)


def _with_component_names(schema: Schema) -> Schema:
    def rename(part: Schema) -> Schema:
        return {
            key: f"{REF_PREFIX}{_component_name(value.removeprefix(REF_PREFIX))}"
            if isinstance(value, str) and value.startswith(REF_PREFIX)
            else _component_name(value)
            if key == "title" and isinstance(value, str)
            else value
            for key, value in part.items()
        }

    return map_schema(schema, rename)


@cache
def _component_name(name: str) -> str:
    """`Page_Agent_` -> `Page.Agent`; a name with a module keeps it without the package."""
    if "_" not in name.rpartition(".")[2] and "Page_" not in name:
        return _PACKAGE_PREFIX.sub("", name)
    plain = name.replace("dict_str__typing.Any_", "Object")
    plain = re.sub(r"[a-z_.]+\.(?=[A-Z])", "_", plain)
    first, *parts = [part for part in plain.split("_") if part]
    return ".".join([first, "Or".join(parts)])


def _structs(types: Sequence[object]) -> Iterator[type[Struct]]:
    """All structs that the types contain."""
    visited: set[int] = set()
    waiting: list[object] = list(msgspec.inspect.multi_type_info(types))
    while waiting:
        part = waiting.pop()
        if isinstance(part, (tuple, list)):
            waiting += cast("Sequence[object]", part)
        elif (
            isinstance(part, (msgspec.inspect.Type, msgspec.inspect.Field))
            and id(part) not in visited
        ):
            visited.add(id(part))
            waiting += [getattr(part, name) for name in part.__struct_fields__]
            if isinstance(part, msgspec.inspect.StructType):
                yield _origin(part.cls)


def _origin(struct: Any) -> type[Struct]:  # noqa: ANN401 (a struct, or one with its parameters)
    return getattr(struct, "__origin__", struct)


def _add_descriptions(schema: Schema, struct: type[Struct]) -> None:
    """Add what msgspec leaves out: field descriptions, and the format of timestamps."""
    properties: dict[str, Schema] = schema.get("properties", {})
    docs = _field_docs(struct)
    for field in msgspec.structs.fields(struct):
        if (described := properties.get(field.encode_name)) is None:
            continue
        if text := docs.get(field.name):
            described["description"] = text
        _mark_date_time(described, field.type)


def _mark_date_time(schema: Schema, type_: object) -> None:
    info = msgspec.inspect.type_info(type_)
    if isinstance(info, msgspec.inspect.DateTimeType):
        schema["format"] = "date-time"
    elif isinstance(info, msgspec.inspect.UnionType):
        names = [type(entry).__name__ for entry in info.types]
        if "DateTimeType" in names and "StrType" not in names:
            for item in schema.get("anyOf", (schema,)):
                if item.get("type") == "string":
                    item["format"] = "date-time"


@cache
def _field_docs(struct: type[Struct]) -> Mapping[str, str]:
    """The docstrings under the fields of a class, which Python discards."""
    docs: dict[str, str] = {}
    for item in reversed(struct.__mro__):
        if issubclass(item, Struct) and item is not Struct and item.__module__ != "msgspec":
            docs |= _own_field_docs(item)
    return docs


def _own_field_docs(struct: type[Struct]) -> Mapping[str, str]:
    body = _class_bodies(struct.__module__).get(struct.__name__, ())
    return {
        field.target.id: " ".join(text.value.value.split())
        for field, text in pairwise(body)
        if isinstance(field, ast.AnnAssign)
        and isinstance(field.target, ast.Name)
        and isinstance(text, ast.Expr)
        and isinstance(text.value, ast.Constant)
        and isinstance(text.value.value, str)
    }


@cache
def _class_bodies(module: str) -> Mapping[str, Sequence[ast.stmt]]:
    try:
        tree = ast.parse(inspect.getsource(sys.modules[module]))
    except (KeyError, OSError, TypeError):  # defined at run time, or its source is not available
        return {}
    return {item.name: item.body for item in tree.body if isinstance(item, ast.ClassDef)}
