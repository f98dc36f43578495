"""The OpenAPI document, built from the routes and the types they name, and the route that serves
it.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from typing import Any, Literal, TypeAlias

import msgspec
from msgspec import Struct

from mainspring.edges.api.errors import error_type_of_status
from mainspring.edges.api.openapi_schemas import (
    Schema,
    Schemas,
    map_schema,
    schemas_of,
    without_null,
)
from mainspring.edges.api.route import Empty, Route

OPENAPI_PATH = "/v1/mainspring/openapi.json"
OPENAPI_VERSION = "3.1.0"
EXTENSION_KEY = "x-mainspring-extension"
STREAM_MEDIA_TYPE = "text/event-stream"

Document: TypeAlias = dict[str, Any]

_PAGE = "text/html"
_DESCRIPTION = (
    "The API of Mainspring. It implements the Claude Managed Agents API, so the official clients"
    " work with another base URL. Extensions are marked with `x-mainspring-extension`. Times are"
    " RFC 3339 in UTC. Lists are paginated: pass `next_page` as `page`. To send a list in a query,"
    " repeat the parameter: `types[]=a&types[]=b`."
)
_RANGE_FIELD = re.compile(r"^(.+)_(gte|gt|lte|lt)$")
_PATH_PARAMETER = re.compile(r"\{(\w+)\}")
_ERROR_DESCRIPTIONS = {
    400: "The request is invalid; the message names the field and the problem",
    401: "The API key is missing or invalid",
    403: "The key does not have the permission",
    404: "The resource does not exist, or it belongs to another tenant",
    409: "The resource already exists, is running, or has changed in the meantime",
    412: "A precondition of the request is not met",
    413: "The request is too large",
    429: "Too many requests; `retry-after` is the number of seconds to wait",
    503: "The store is unavailable; try again",
}


class ApiErrorDetail(Struct, frozen=True, kw_only=True):
    type: str
    message: str


class Error(Struct, frozen=True, kw_only=True):
    """The response if a request fails."""

    error: ApiErrorDetail
    request_id: str
    type: Literal["error"] = "error"


def document(routes: Sequence[Route], *, version: str, title: str = "Mainspring") -> Document:
    """The OpenAPI document, identical to the byte for the same routes in any order."""
    documented = [route for route in routes if route.is_documented]
    ordered = sorted(documented, key=lambda route: (route.path, route.method))
    schemas = schemas_of([Error, *(type_ for route in ordered for type_ in _named_types(route))])
    paths: dict[str, dict[str, Any]] = {}
    for route in ordered:
        paths.setdefault(route.path, {})[route.method.lower()] = _operation(route, schemas)
    inlined = {schemas.name(type_) for route in ordered for type_ in _inline_types(route)}
    return {
        "openapi": OPENAPI_VERSION,
        "info": {"title": title, "version": version, "description": _DESCRIPTION},
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


def encode_document(content: Document) -> bytes:
    return msgspec.json.encode(content, order="sorted")


def _named_types(route: Route) -> Iterator[object]:
    yield from (
        other_response
        for other_response in (route.response_type, *route.other_responses.values())
        if other_response is not None
    )
    yield from (item for item in (route.query, route.body) if item is not Empty)


def _inline_types(route: Route) -> Iterator[type[Struct]]:
    """Types that are inlined where they are used: queries are parameters, forms have files."""
    if route.query is not Empty:
        yield route.query
    if route.upload is not None and route.body is not Empty:
        yield route.body


def operation_id(route: Route) -> str:
    """Such as `post_v1_agents_by_agent_id_archive`."""
    words = re.sub(_PATH_PARAMETER, r"by_\1", route.path).replace(".", "_")
    return "_".join([route.method.lower(), *filter(None, words.split("/"))])


def _tag(route: Route) -> str:
    """The tag of a route: the first name in its path."""
    words = [word for word in route.path.split("/") if word not in ("", "v1", "mainspring")]
    return words[0].partition(".")[0] if words else "page"


def _operation(route: Route, schemas: Schemas) -> Schema:
    operation: Schema = {
        "operationId": operation_id(route),
        "summary": route.summary,
        "tags": [_tag(route)],
        "parameters": [
            *_path_parameters(route),
            *_query_parameters(route, schemas),
            *_header_parameters(route),
        ],
        "responses": {str(status): each for status, each in _responses(route, schemas)},
    }
    if not operation["parameters"]:
        del operation["parameters"]
    if (body := _request_body(route, schemas)) is not None:
        operation["requestBody"] = body
    if route.is_open:
        operation["security"] = []
    else:
        operation["x-mainspring-role"] = route.role
    if route.is_extension:
        operation[EXTENSION_KEY] = True
    return operation


def _path_parameters(route: Route) -> Iterator[Schema]:
    for name in _PATH_PARAMETER.findall(route.path):
        yield {"name": name, "in": "path", "required": True, "schema": {"type": "string"}}


def _query_parameters(route: Route, schemas: Schemas) -> Iterator[Schema]:
    if route.query is Empty:
        return
    schema = schemas.struct(route.query)
    required = schema.get("required", ())
    for name, parameters in schema["properties"].items():
        plain = without_null(parameters)
        described = {"description": plain.pop("description")} if "description" in plain else {}
        yield {
            "name": _parameter_name(name, plain),
            "in": "query",
            "required": name in required,
            "schema": plain,
            **described,
        }


def _parameter_name(field: str, schema: Schema) -> str:
    """The name that the official clients send; the plain name of the field is accepted, too."""
    if schema.get("type") == "array":
        return f"{field}[]"
    return _RANGE_FIELD.sub(r"\1[\2]", field)


def _header_parameters(route: Route) -> Iterator[Schema]:
    if route.media_type == STREAM_MEDIA_TYPE:
        yield {
            "name": "Last-Event-ID",
            "in": "header",
            "required": False,
            "schema": {"type": "string", "pattern": "^[0-9]{1,18}$"},
            "description": "Continue after this event; takes precedence over `after`.",
        }


def _request_body(route: Route, schemas: Schemas) -> Schema | None:
    if route.upload is not None:
        schema: Schema = {}  # any JSON
        if route.body is not Empty:
            schema = map_schema(schemas.struct(route.body), _binary_field)
        elif route.upload != "application/json":
            schema = {"type": "string", "format": "binary"}
        return {"required": True, "content": {route.upload: {"schema": schema}}}
    if route.body is Empty:
        return None
    return {
        "required": _is_body_required(route.body),
        "content": {"application/json": {"schema": schemas.of(route.body)}},
    }


def _is_body_required(body: Any) -> bool:  # noqa: ANN401 (a type)
    """A body whose fields all have defaults may be omitted."""
    try:
        msgspec.convert({}, body)
    except msgspec.ValidationError:
        return True
    return False


def _binary_field(schema: Schema) -> Schema:
    """Files in a form are sent as raw bytes."""
    if schema.get("contentEncoding") != "base64":
        return schema
    return {"type": "string", "format": "binary"}


def _responses(route: Route, schemas: Schemas) -> Iterator[tuple[int, Schema]]:
    answer = {"type": "string"} if route.response_type is None else schemas.of(route.response_type)
    if route.response_type is None and route.media_type not in (STREAM_MEDIA_TYPE, "text/plain"):
        answer = {"type": "string", "format": "binary"}
    yield (
        200,
        {
            "description": "Success",
            "content": {route.media_type: {"schema": answer}},
        },
    )
    for status, type_ in route.other_responses.items():
        schema = schemas.of(type_)
        text = _ERROR_DESCRIPTIONS.get(status, "Otherwise")
        yield status, {"description": text, "content": {"application/json": {"schema": schema}}}
    errors: Schema = {"application/json": {"schema": schemas.of(Error)}}
    if route.media_type == _PAGE:  # shown to a person in a browser
        errors[_PAGE] = {"schema": {"type": "string"}}
    for status in _error_statuses(route):
        text = f"{_ERROR_DESCRIPTIONS[status]} (`{error_type_of_status(status)}`)"
        yield status, {"description": text, "content": errors}


def _error_statuses(route: Route) -> Iterator[int]:
    has_input = route.query is not Empty or route.body is not Empty or route.upload is not None
    changes = route.method != "GET"
    for status, applies in (
        (400, has_input or changes or route.media_type == STREAM_MEDIA_TYPE or not route.is_open),
        (401, not route.is_open or "{" in route.path),
        (403, not route.is_open),
        (404, "{" in route.path or has_input),
        (409, changes),
        (412, changes and "{" in route.path),
        (413, has_input and changes),
        (429, not route.is_open or changes),
        (503, True),
    ):
        if applies and status not in route.other_responses:
            yield status
