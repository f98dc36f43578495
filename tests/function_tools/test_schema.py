"""What the model is told about an input is what the tool accepts."""

from collections.abc import Callable, Mapping
from typing import Literal, TypeAlias, cast

from hypothesis import given
from hypothesis import strategies as st
from tests.function_tools.samples import Colour, Line, Options, Point

from mainspring.function_tools.define import tool

Schema: TypeAlias = Mapping[str, object]

SIMPLE: list[object] = [
    *(str, int, float, bool, None, Colour, Point, Line, Options),
    *(Literal["a", 1], int | str | None, list[int] | str, dict[str, int] | list[Point]),
]
HINTS = st.recursive(
    st.sampled_from(SIMPLE),
    lambda inner: st.one_of(
        inner.map(lambda hint: list[hint]),
        inner.map(lambda hint: dict[str, hint]),
        st.sampled_from([str, int, bool]).map(lambda hint: hint | None),
    ),
    max_leaves=4,
)
WORDS = st.sampled_from(["a", "red", "x", "y", "start", "ends", "deep", "depth", "z"])
VALUES = st.recursive(
    st.none() | st.booleans() | st.integers(-2, 2) | st.just(0.5) | WORDS,
    lambda inner: st.lists(inner, max_size=2) | st.dictionaries(WORDS, inner, max_size=3),
    max_leaves=8,
)
KINDS: dict[str, Callable[[object], bool]] = {
    "string": lambda value: isinstance(value, str),
    "integer": lambda value: isinstance(value, int) and not isinstance(value, bool),
    "number": lambda value: isinstance(value, int | float) and not isinstance(value, bool),
    "boolean": lambda value: isinstance(value, bool),
    "null": lambda value: value is None,
    "array": lambda value: isinstance(value, list),
    "object": lambda value: isinstance(value, dict),
}


def allows(schema: Schema, value: object, definitions: Mapping[str, Schema]) -> bool:
    """Whether a JSON Schema, made of the words that ours use, allows a value."""
    match schema:
        case {"$ref": str(ref)}:
            return allows(definitions[ref.removeprefix("#/$defs/")], value, definitions)
        case {"anyOf": choices}:
            parts = cast("list[Schema]", choices)
            return any(allows(part, value, definitions) for part in parts)
        case {"enum": choices}:
            allowed = cast("list[object]", choices)
            return any(type(value) is type(choice) and value == choice for choice in allowed)
        case _:
            kind = cast("str", schema["type"])
            return KINDS[kind](value) and allows_inside(schema, value, definitions)


def allows_inside(schema: Schema, value: object, definitions: Mapping[str, Schema]) -> bool:
    if isinstance(value, list):
        items = cast("list[object]", value)
        part = cast("Schema", schema["items"])
        return all(allows(part, item, definitions) for item in items)
    if not isinstance(value, dict):
        return True
    members = cast("dict[str, object]", value)
    named = cast("Mapping[str, Schema]", schema.get("properties", {}))
    others = cast("Schema | bool", schema.get("additionalProperties", True))
    if any(name not in members for name in cast("list[str]", schema.get("required", []))):
        return False
    parts = {name: named.get(name, others) for name in members}
    return all(
        part if isinstance(part, bool) else allows(part, members[name], definitions)
        for name, part in parts.items()
    )


@given(HINTS, VALUES)
def test_the_schema_allows_exactly_what_the_tool_accepts(hint: object, value: object):
    def take(x: object) -> None:
        """Take."""

    take.__annotations__["x"] = hint
    made = tool(take)
    schema = made.spec.input_schema
    definitions = cast("Mapping[str, Schema]", schema.get("$defs", {}))
    assert allows(schema, {"x": value}, definitions) == (made.invalid({"x": value}) is None)
