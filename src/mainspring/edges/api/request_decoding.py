"""Decodes a request's query and body into the structs that its route names."""

from __future__ import annotations

import re
import types
from collections.abc import Mapping
from functools import cache
from typing import Any, Union, cast, get_args, get_origin, get_type_hints

import anyio
import msgspec
from aiohttp import web
from msgspec import Struct
from multidict import MultiMapping

from mainspring.core.errors import InvalidInput, TooLarge
from mainspring.edges.api.route import Empty, Route

MAX_BODY_BYTES = 32 * 1024 * 1024  # the Messages API's own limit
_BODY_SECONDS = 300.0
"""How long a body may take to arrive."""


async def read_body(route: Route, request: web.Request) -> object:
    """Raises: TooLarge; InvalidInput, with the path of the mistake: `body.tools[0].name`."""
    if route.body is Empty or route.upload is not None:
        return Empty()
    try:
        with anyio.fail_after(_BODY_SECONDS):
            raw = bytearray()  # appended in place: not copied for each of many small chunks
            while len(raw) <= MAX_BODY_BYTES and (more := await request.content.read(1 << 20)):
                raw += more
    except web.HTTPRequestEntityTooLarge:
        raise TooLarge(f"a request may have at most {MAX_BODY_BYTES} bytes") from None
    if len(raw) > MAX_BODY_BYTES:
        raise TooLarge(f"a request may have at most {MAX_BODY_BYTES} bytes")
    try:
        return _decoder(route.body).decode(bytes(raw) or b"{}")
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise InvalidInput(_readable_error(str(error))) from error
    except RecursionError:
        raise InvalidInput("the body is nested too deeply") from None


@cache
def _decoder(type_: object) -> msgspec.json.Decoder[Any]:
    return msgspec.json.Decoder(cast("Any", type_))


def read_query(route: Route, query: MultiMapping[str]) -> object:
    """Decode a query. A name such as `created_at[gte]` becomes the field `created_at_gte`; lists
    are sent by repetition: `types[]=a&types[]=b` or `types=a&types=b`.

    Raises: InvalidInput.
    """
    if route.query is Empty:
        return Empty()
    values_by_field: dict[str, Any] = {}
    names: dict[str, str] = {}
    lists = _list_fields(route.query)
    for name in set(query.keys()):
        field = name.removesuffix("[]").replace("[", "_").replace("]", "")
        names[field] = name
        values = query.getall(name)
        if field in lists:
            values_by_field[field] = [*values_by_field.get(field, ()), *values]
        else:
            values_by_field[field] = values[-1]
    try:
        return msgspec.convert(values_by_field, route.query, strict=False)
    except msgspec.ValidationError as error:
        raise InvalidInput(_readable_error(str(error), names)) from error


@cache
def _list_fields(type_: type[Struct]) -> frozenset[str]:
    hints: Mapping[str, Any] = get_type_hints(type_)
    return frozenset(name for name, hint in hints.items() if _is_list(hint))


def _is_list(hint: object) -> bool:
    if get_origin(hint) in (Union, types.UnionType):
        return any(_is_list(part) for part in get_args(hint))
    return get_origin(hint) in (list, tuple, frozenset)


_INVALID_VALUE = re.compile(r"(Invalid(?: enum)? value) ", re.DOTALL)
"""The start of a message that continues with the value, which may be a secret."""


def _readable_error(error: str, names: Mapping[str, str] | None = None) -> str:
    """`Expected `str`, got `int` - at `$.name`` -> `name: expected `str`, got `int``. `names`:
    the names that the client uses, by field."""
    if error == "Input data was truncated":
        return "the JSON is malformed: it ends too early"
    what, _, where = error.rpartition(" - at `$") if " - at `$" in error else (error, "", "")
    if (value := _INVALID_VALUE.match(what)) is not None:
        what = f"{value[1]}: not a known value"
    where = where.rstrip("`").lstrip(".")
    where = (names or {}).get(where, where)
    return f"{where}: {what[:1].lower()}{what[1:]}" if where else what
