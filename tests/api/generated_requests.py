"""Requests made from the types that routes name: every place where an id can stand, and a body or
query with one in it.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, TypeAlias
from urllib.parse import urlencode

import msgspec
from msgspec import inspect

from mainspring.edges.api.route import Route
from mainspring.service.access.request_ids import kind_of

Step: TypeAlias = str | int | None
"""A field, an alternative of a union, or an item of a list."""
_LISTS = (inspect.ListType, inspect.VarTupleType, inspect.SetType, inspect.FrozenSetType)


@dataclass(frozen=True, slots=True)
class Place:
    """Where a text can stand in a request."""

    route: Route
    part: str
    """`query` or `body`."""
    steps: tuple[Step, ...]
    kind: str | None
    """What it is the id of, by its type."""

    @property
    def name(self) -> str:
        return next((step for step in reversed(self.steps) if isinstance(step, str)), "")

    def __str__(self) -> str:
        shown = ".".join(step for step in self.steps if isinstance(step, str))
        return f"{self.route.operation}: {self.part} {shown}"


def places(route: Route) -> Iterator[Place]:
    """All texts that may stand in its query and its body."""
    for part in ("query", "body"):
        if part == "body" and route.upload is not None:
            continue
        for steps, kind in _texts(msgspec.inspect.type_info(getattr(route, part)), frozenset()):
            yield Place(route, part, steps, kind)


def _texts(  # noqa: C901 (one case for each type)
    info: inspect.Type, above: frozenset[object]
) -> Iterator[tuple[tuple[Step, ...], str | None]]:
    if (kind := kind_of(info)) is not None or isinstance(info, inspect.StrType):
        yield (), kind
    elif isinstance(info, inspect.Metadata):
        yield from _texts(info.type, above)
    elif isinstance(info, inspect.UnionType):
        for index, each in enumerate(info.types):
            yield from (((index, *rest), found) for rest, found in _texts(each, above))
    elif isinstance(info, _LISTS):
        yield from (((None, *rest), found) for rest, found in _texts(info.item_type, above))
    elif isinstance(info, inspect.StructType) and info.cls not in above:
        for field in info.fields:
            for rest, found in _texts(field.type, above | {info.cls}):
                yield (field.encode_name, *rest), found


def request(place: Place, id_: str, own: Mapping[str, str]) -> tuple[str, object]:
    """The query and the body that name this id there; what else has to be named is `own`."""
    info = msgspec.inspect.type_info(getattr(place.route, place.part))
    made = _made(info, place.steps, id_, own)
    body_type = msgspec.inspect.type_info(place.route.body)
    if place.part == "query":
        body = _made(body_type, (), id_, own) if place.route.method == "POST" else None
        return f"?{urlencode(made, doseq=True)}", body
    return "", made


def _made(  # noqa: C901 (one case for each type)
    info: inspect.Type, steps: tuple[Step, ...], id_: str, own: Mapping[str, str]
) -> Any:  # noqa: ANN401 (JSON)
    if (kind := kind_of(info)) is not None:
        return id_ if not steps and kind == own["kind"] else own.get(kind, "claude-opus-5-5")
    match info:
        case inspect.Metadata(type=inner):
            return _made(inner, steps, id_, own)
        case inspect.UnionType(types=types):
            index = steps[0] if steps and isinstance(steps[0], int) else 0
            return _made(types[index], steps[1:], id_, own)
        case inspect.StructType(fields=fields):
            made: dict[str, Any] = {}
            if info.tag_field is not None:
                made[info.tag_field] = info.tag
            for field in fields:
                is_meant = bool(steps) and steps[0] == field.encode_name
                if is_meant or field.required:
                    further = steps[1:] if is_meant else ()
                    wanted = own if is_meant else {**own, "kind": ""}
                    made[field.encode_name] = _made(field.type, further, id_, wanted)
            return made
        case inspect.LiteralType(values=values):
            return values[0]
        case inspect.StrType():
            return "text"
        case inspect.IntType():
            return max(1, info.ge or 1)
        case inspect.BoolType():
            return True
        case inspect.DictType():
            return {}
        case _ if isinstance(info, _LISTS):
            is_item = bool(steps) or bool(info.min_length)
            return [_made(info.item_type, steps[1:], id_, own)] if is_item else []
        case _:
            return None
