"""Checks a value against a JSON Schema: types, properties, items, enums, bounds, patterns,
combinations. An unsupported keyword is reported as a problem, not ignored.

It uses no library: those that support every draft are compiled (5 MB), or match foreign patterns
with Python's `re`, which a short text can block for seconds.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, TypeAlias, cast

import msgspec

from mainspring.core.lazy_module import LazyModule

if TYPE_CHECKING:
    import re2
else:
    re2 = LazyModule("re2")  # few schemas have patterns

Schema: TypeAlias = Mapping[str, object]
Check: TypeAlias = Callable[[object, object, Schema, str], Iterator[str]]
"""Takes a value, the keyword's rule, its schema and the place of the value; yields problems."""
_TYPES: dict[str, Callable[[object], bool]] = {
    "object": lambda value: isinstance(value, dict),
    "array": lambda value: isinstance(value, list),
    "string": lambda value: isinstance(value, str),
    "boolean": lambda value: isinstance(value, bool),
    "null": lambda value: value is None,
    "integer": lambda value: (number := _number(value)) is not None and number % 1 == 0,
    "number": lambda value: _number(value) is not None,
}
_IGNORED = frozenset(("$schema", "$id", "title", "description", "default", "examples", "format"))
_MAX_DEPTH = 50  # of a type that contains itself


def schema_problems(value: object, schema: object, place: str = "$") -> Iterator[str]:
    """The places where a value does not match the schema."""
    if place.count(".") + place.count("[") > _MAX_DEPTH:
        yield f"{place}: too deep"
        return
    if isinstance(schema, bool):
        if not schema:
            yield f"{place}: nothing is allowed here"
        return
    if not isinstance(schema, dict):
        yield f"{place}: the schema is not an object"
        return
    rules = cast("dict[str, object]", schema)
    for keyword in rules:
        if keyword in _IGNORED:
            continue
        check = _KEYWORDS.get(keyword)
        if check is None:
            yield f"{place}: the schema's keyword {keyword} is not supported"
        else:
            yield from _checked(check, keyword, value, rules, place)


def supported_keywords(schema: Schema) -> dict[str, object]:
    """A schema, and that of its items, without unsupported keywords: for schemas that somebody else
    checks, too."""
    rules = {key: rule for key, rule in schema.items() if key in _KEYWORDS}
    if isinstance(items := rules.get("items"), dict):
        inner = cast("dict[str, object]", items)
        rules["items"] = {key: rule for key, rule in inner.items() if key in _KEYWORDS}
    return rules


def _checked(
    check: Check, keyword: str, value: object, schema: Schema, place: str
) -> Iterator[str]:
    try:
        yield from check(value, schema[keyword], schema, place)
    except (TypeError, ValueError, AttributeError, re2.error):  # `minimum: x`
        yield f"{place}: the schema's {keyword} is not valid"


def _type(value: object, rule: object, _: Schema, place: str) -> Iterator[str]:
    names = cast("list[str]", rule if isinstance(rule, list) else [rule])
    if not any(_TYPES.get(str(name), lambda _: False)(value) for name in names):
        yield f"{place}: {_short_json(value)} is not of type {' or '.join(map(str, names))}"


def _enum(value: object, rule: object, _: Schema, place: str) -> Iterator[str]:
    if value not in cast("list[object]", rule):
        yield f"{place}: {_short_json(value)} is not one of {_short_json(rule)}"


def _const(value: object, rule: object, _: Schema, place: str) -> Iterator[str]:
    if value != rule:
        yield f"{place}: {_short_json(value)} is not {_short_json(rule)}"


def _properties(value: object, rule: object, _: Schema, place: str) -> Iterator[str]:
    if isinstance(value, dict):
        fields = cast("dict[str, object]", value)
        for name, inner in cast("dict[str, object]", rule).items():
            if name in fields:
                yield from schema_problems(fields[name], inner, f"{place}.{name}")


def _required(value: object, rule: object, _: Schema, place: str) -> Iterator[str]:
    if isinstance(value, dict):
        fields = cast("dict[str, object]", value)
        yield from (
            f"{place}.{name}: missing" for name in cast("list[str]", rule) if name not in fields
        )


def _additional(value: object, rule: object, schema: Schema, place: str) -> Iterator[str]:
    if isinstance(value, dict):
        properties = cast("dict[str, object]", schema.get("properties", {}))
        for name, item in cast("dict[str, object]", value).items():
            if name not in properties:
                problems = list(schema_problems(item, rule, f"{place}.{name}"))
                yield from [f"{place}.{name}: not expected"] if rule is False else problems


def _items(value: object, rule: object, _: Schema, place: str) -> Iterator[str]:
    if isinstance(value, list):
        for index, item in enumerate(cast("list[object]", value)):
            yield from schema_problems(item, rule, f"{place}[{index}]")


def _pattern(value: object, rule: object, _: Schema, place: str) -> Iterator[str]:
    if isinstance(value, str) and re2.compile(str(rule)).search(value) is None:
        yield f"{place}: {_short_json(value)} does not match {rule}"


def _all_of(value: object, rule: object, _: Schema, place: str) -> Iterator[str]:
    for inner in cast("list[object]", rule):
        yield from schema_problems(value, inner, place)


def _matching(value: object, rule: object, place: str) -> int:
    inners = cast("list[object]", rule)
    return sum(next(schema_problems(value, inner, place), None) is None for inner in inners)


def _any_of(value: object, rule: object, _: Schema, place: str) -> Iterator[str]:
    if not _matching(value, rule, place):
        yield f"{place}: {_short_json(value)} fits none of the alternatives"


def _one_of(value: object, rule: object, _: Schema, place: str) -> Iterator[str]:
    if (count := _matching(value, rule, place)) != 1:
        yield f"{place}: {_short_json(value)} fits {count} alternatives, not one"


def _not(value: object, rule: object, _: Schema, place: str) -> Iterator[str]:
    if next(schema_problems(value, rule, place), None) is None:
        yield f"{place}: {_short_json(value)} is not allowed here"


def _unique(value: object, rule: object, _: Schema, place: str) -> Iterator[str]:
    if rule and isinstance(value, list):
        items = [msgspec.json.encode(item, order="sorted") for item in cast("list[object]", value)]
        if len(set(items)) != len(items):
            yield f"{place}: items are repeated"


def _bound(
    measure: Callable[[object], float | None], is_within: Callable[[float, float], bool], what: str
) -> Check:
    def check(value: object, rule: object, _: Schema, place: str) -> Iterator[str]:
        size = measure(value)
        if size is not None and not is_within(size, float(cast("float", rule))):
            yield f"{place}: {what} {rule}"

    return check


def _number(value: object) -> float | None:
    return value if isinstance(value, int | float) and not isinstance(value, bool) else None


def _length(value: object) -> float | None:
    return len(value) if isinstance(value, str) else None


def _count(value: object) -> float | None:
    return len(cast("Sequence[object]", value)) if isinstance(value, list) else None


_KEYWORDS: dict[str, Check] = {
    "type": _type,
    "enum": _enum,
    "const": _const,
    "properties": _properties,
    "required": _required,
    "additionalProperties": _additional,
    "items": _items,
    "pattern": _pattern,
    "allOf": _all_of,
    "anyOf": _any_of,
    "oneOf": _one_of,
    "not": _not,
    "uniqueItems": _unique,
    "minimum": _bound(_number, lambda size, bound: size >= bound, "is less than"),
    "maximum": _bound(_number, lambda size, bound: size <= bound, "is more than"),
    "exclusiveMinimum": _bound(_number, lambda size, bound: size > bound, "is not more than"),
    "exclusiveMaximum": _bound(_number, lambda size, bound: size < bound, "is not less than"),
    "minLength": _bound(_length, lambda size, bound: size >= bound, "is shorter than"),
    "maxLength": _bound(_length, lambda size, bound: size <= bound, "is longer than"),
    "minItems": _bound(_count, lambda size, bound: size >= bound, "has fewer items than"),
    "maxItems": _bound(_count, lambda size, bound: size <= bound, "has more items than"),
}


def _short_json(value: object) -> str:
    text = msgspec.json.encode(value).decode()
    return text if len(text) <= 80 else f"{text[:80]}..."
