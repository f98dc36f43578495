"""The OpenAPI document, made of the routes and of the types that they name."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from typing import Any, Literal, TypeAlias

import msgspec
from msgspec import Struct

from mainspring.edges.api.errors import error_type
from mainspring.edges.api.route import Nothing, Route
from mainspring.edges.api.schemas import Schema, Schemas, replaced, schemas_of, without_null

VERSION = "3.1.0"
EXTENSION = "x-mainspring-extension"
STREAM = "text/event-stream"

Document: TypeAlias = dict[str, Any]

_ABOUT = (
    "Mainspring's API. It is that of Claude Managed Agents, for the official clients to use with"
    " another base URL; what is ours says `x-mainspring-extension`. Times are RFC 3339 in UTC."
    " Lists are given in pages: pass `next_page` as `page`. A list in a query is given by"
    " repetition: `types[]=a&types[]=b`."
)
_BRACKETED = re.compile(r"^(.+)_(gte|gt|lte|lt)$")
_IN_PATH = re.compile(r"\{(\w+)\}")
_WHY = {
    400: "What was sent is wrong; the message says where and how",
    401: "No key, or one that does not hold",
    403: "The key may not do this",
    404: "There is no such thing, or it is another tenant's",
    409: "It cannot be done as things stand: it exists, runs, or has changed meanwhile",
    412: "It is not what the request said that it must be",
    413: "More was sent than is taken",
    429: "Too many requests; `retry-after` says how many seconds to wait",
    503: "The store cannot be reached; try again",
}


class ErrorDetail(Struct, frozen=True, kw_only=True):
    type: str
    message: str


class Error(Struct, frozen=True, kw_only=True):
    """What is answered instead, if something cannot be done."""

    error: ErrorDetail
    request_id: str
    type: Literal["error"] = "error"


def document(routes: Sequence[Route], *, version: str, title: str = "Mainspring") -> Document:
    """The same routes make the same document, byte for byte, in whatever order they come."""
    ordered = sorted(routes, key=lambda route: (route.path, route.method))
    schemas = schemas_of([Error, *(type_ for route in ordered for type_ in _types(route))])
    paths: dict[str, dict[str, Any]] = {}
    for route in ordered:
        paths.setdefault(route.path, {})[route.method.lower()] = _operation(route, schemas)
    inlined = {schemas.name(type_) for route in ordered for type_ in _inlined(route)}
    return {
        "openapi": VERSION,
        "info": {"title": title, "version": version, "description": _ABOUT},
        "security": [{"key": []}, {"bearer": []}],
        "tags": [{"name": name} for name in sorted({_tag(route) for route in ordered})],
        "paths": paths,
        "components": {
            "securitySchemes": {
                "key": {"type": "apiKey", "in": "header", "name": "x-api-key"},
                "bearer": {"type": "http", "scheme": "bearer"},
            },
            "schemas": {
                name: schema for name, schema in schemas.components.items() if name not in inlined
            },
        },
    }


def encoded(made: Document) -> bytes:
    return msgspec.json.encode(made, order="sorted")


def _types(route: Route) -> Iterator[object]:
    yield from (each for each in (route.answer, *route.also.values()) if each is not None)
    yield from (each for each in (route.query, route.body) if each is not Nothing)


def _inlined(route: Route) -> Iterator[type[Struct]]:
    """What stands where it is used, and nowhere else: queries are parameters, forms have files."""
    if route.query is not Nothing:
        yield route.query
    if route.upload is not None and route.body is not Nothing:
        yield route.body


def operation_id(route: Route) -> str:
    """`post_v1_agents_by_agent_id_archive`."""
    words = re.sub(_IN_PATH, r"by_\1", route.path).replace(".", "_")
    return "_".join([route.method.lower(), *filter(None, words.split("/"))])


def _tag(route: Route) -> str:
    """The first thing that its path names."""
    words = [word for word in route.path.split("/") if word not in ("", "v1", "mainspring")]
    return words[0].partition(".")[0] if words else "page"


def _operation(route: Route, schemas: Schemas) -> Schema:
    made: Schema = {
        "operationId": operation_id(route),
        "summary": route.summary,
        "tags": [_tag(route)],
        "parameters": [*_path(route), *_query(route, schemas), *_headers(route)],
        "responses": {str(status): each for status, each in _responses(route, schemas)},
    }
    if not made["parameters"]:
        del made["parameters"]
    if (body := _body(route, schemas)) is not None:
        made["requestBody"] = body
    if route.is_open:
        made["security"] = []
    else:
        made["x-mainspring-role"] = route.role
    if route.is_extension:
        made[EXTENSION] = True
    return made


def _path(route: Route) -> Iterator[Schema]:
    for name in _IN_PATH.findall(route.path):
        yield {"name": name, "in": "path", "required": True, "schema": {"type": "string"}}


def _query(route: Route, schemas: Schemas) -> Iterator[Schema]:
    if route.query is Nothing:
        return
    schema = schemas.struct(route.query)
    required = schema.get("required", ())
    for field, given in schema["properties"].items():
        plain = without_null(given)
        told = {"description": plain.pop("description")} if "description" in plain else {}
        yield {
            "name": _name(field, plain),
            "in": "query",
            "required": field in required,
            "schema": plain,
            **told,
        }


def _name(field: str, schema: Schema) -> str:
    """As the official clients send it; `reading` takes the plain name too."""
    if schema.get("type") == "array":
        return f"{field}[]"
    return _BRACKETED.sub(r"\1[\2]", field)


def _headers(route: Route) -> Iterator[Schema]:
    if route.media_type == STREAM:
        yield {
            "name": "Last-Event-ID",
            "in": "header",
            "required": False,
            "schema": {"type": "string", "pattern": "^[0-9]{1,18}$"},
            "description": "Go on behind this event; has precedence over `after`.",
        }


def _body(route: Route, schemas: Schemas) -> Schema | None:
    if route.upload is not None:
        schema: Schema = {}  # any JSON
        if route.body is not Nothing:
            schema = replaced(schemas.struct(route.body), _binary)
        elif route.upload != "application/json":
            schema = {"type": "string", "format": "binary"}
        return {"required": True, "content": {route.upload: {"schema": schema}}}
    if route.body is Nothing:
        return None
    return {
        "required": _is_needed(route.body),
        "content": {"application/json": {"schema": schemas.of(route.body)}},
    }


def _is_needed(body: Any) -> bool:  # noqa: ANN401 (a type)
    """What may be all defaults may also be left out."""
    try:
        msgspec.convert({}, body)
    except msgspec.ValidationError:
        return True
    return False


def _binary(schema: Schema) -> Schema:
    """A file in a form is sent as it is."""
    if schema.get("contentEncoding") != "base64":
        return schema
    return {"type": "string", "format": "binary"}


def _responses(route: Route, schemas: Schemas) -> Iterator[tuple[int, Schema]]:
    answer = {"type": "string"} if route.answer is None else schemas.of(route.answer)
    if route.answer is None and route.media_type not in (STREAM, "text/plain"):
        answer = {"type": "string", "format": "binary"}
    yield (
        route.status,
        {
            "description": "Done" if route.answer is not None else "What was asked for",
            "content": {route.media_type: {"schema": answer}},
        },
    )
    for status, type_ in route.also.items():
        schema = schemas.of(type_)
        told = _WHY.get(status, "Otherwise")
        yield status, {"description": told, "content": {"application/json": {"schema": schema}}}
    for status in _refusals(route):
        yield (
            status,
            {
                "description": f"{_WHY[status]} (`{error_type(status)}`)",
                "content": {"application/json": {"schema": schemas.of(Error)}},
            },
        )


def _refusals(route: Route) -> Iterator[int]:
    has_input = route.query is not Nothing or route.body is not Nothing or route.upload is not None
    changes = route.method != "GET"
    for status, applies in (
        (400, has_input or changes or route.media_type == STREAM or not route.is_open),
        (401, not route.is_open or "{" in route.path),
        (403, not route.is_open),
        (404, "{" in route.path or has_input),
        (409, changes),
        (412, changes and "{" in route.path),
        (413, has_input and changes),
        (429, not route.is_open or changes),
        (503, True),
    ):
        if applies and status not in route.also:
            yield status
