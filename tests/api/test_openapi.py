import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any, cast

import anthropic
import jsonschema_rs
import msgspec
from schemathesis.specs.openapi import definitions
from tests.api.whole_api import Whole

from mainspring.edges.api.openapi import EXTENSION_KEY, OPENAPI_PATH, document, encode_document
from mainspring.edges.api.route import Empty

_CALL = re.compile(
    r'self\._(get|post|delete|get_api_list)\(\s*(?:path_template\(\s*)?"(/v1/[^"?]+)'
)


def operations(made: Any) -> Iterator[tuple[str, str, Any]]:  # noqa: ANN401 (JSON)
    for path, methods in made["paths"].items():
        for method, operation in methods.items():
            yield method, path, operation


def references(schema: object) -> Iterator[str]:
    if isinstance(schema, dict):
        for key, value in cast("dict[str, object]", schema).items():
            if key == "$ref":
                yield str(value)
            yield from references(value)
    elif isinstance(schema, list):
        for item in cast("list[object]", schema):
            yield from references(item)


def shape(path: str) -> str:
    """A path whatever its ids are called."""
    return re.sub(r"\{\w+\}", "{}", path)


async def test_the_document_is_valid_and_has_every_route_once(api: Whole):
    made = (await api.ask("GET", OPENAPI_PATH, key=None)).json
    definitions.OPENAPI_31_VALIDATOR.validate(made)
    found = {f"{method} {path}" for method, path, _ in operations(made)}
    documented = {route.operation for route in api.routes if route.is_documented}
    assert found == documented
    hidden = {route.path for route in api.routes if not route.is_documented}
    assert hidden == {"/mcp"}, "MCP has a description of its own"
    ids = [operation["operationId"] for _, _, operation in operations(made)]
    assert len(ids) == len(set(ids)) == len(documented)


async def test_the_same_routes_make_the_same_document_in_any_order(api: Whole):
    served = (await api.ask("GET", OPENAPI_PATH, key=None)).body
    made = msgspec.json.decode(served)
    version = made["info"]["version"]
    assert encode_document(document(api.routes, version=version)).decode() == served
    assert encode_document(document(api.routes[::-1], version=version)).decode() == served


async def test_every_schema_is_valid_and_every_reference_resolves(api: Whole):
    made = document(api.routes, version="1")
    schemas = made["components"]["schemas"]
    for name in {reference.removeprefix("#/components/schemas/") for reference in references(made)}:
        assert name in schemas
    for name, schema in schemas.items():
        jsonschema_rs.meta.validate(schema)
        assert re.fullmatch(r"[A-Za-z0-9._-]+", name)


async def test_documented_query_parameters_are_those_that_are_read(api: Whole):
    made = document(api.routes, version="1")
    for route in (route for route in api.routes if route.is_documented):
        given = made["paths"][route.path][route.method.lower()].get("parameters", ())
        names = [item["name"] for item in given if item["in"] == "query"]
        fields = (
            ()
            if route.query is Empty
            else (field.encode_name for field in msgspec.structs.fields(route.query))
        )
        plain = [name.removesuffix("[]").replace("[", "_").removesuffix("]") for name in names]
        assert sorted(plain) == sorted(fields)
    agents = made["paths"]["/v1/agents"]["get"]["parameters"]
    assert {"created_at[gte]", "created_at[lte]"} < {agent["name"] for agent in agents}
    events = made["paths"]["/v1/sessions/{session_id}/events"]["get"]["parameters"]
    assert "types[]" in {event["name"] for event in events}


async def test_times_keys_forms_and_streams_are_documented_as_such(api: Whole):
    made = document(api.routes, version="1")
    paths, schemas = made["paths"], made["components"]["schemas"]
    assert schemas["Environment"]["properties"]["created_at"]["format"] == "date-time"
    kept = schemas["Key"]["properties"]["expires_at"]["anyOf"]
    assert {"type": "string", "format": "date-time"} in kept
    assert schemas["Key"]["properties"]["agent_id"]["description"].startswith("The only agent")
    form = paths["/v1/files"]["post"]["requestBody"]["content"]["multipart/form-data"]["schema"]
    assert form["properties"]["file"] == {"type": "string", "format": "binary"}
    stream = paths["/v1/sessions/{session_id}/events/stream"]["get"]
    assert list(stream["responses"]["200"]["content"]) == ["text/event-stream"]
    assert "Last-Event-ID" in {item["name"] for item in stream["parameters"]}
    assert made["security"] == [{"key": []}, {"bearer": []}]
    assert paths[OPENAPI_PATH]["get"]["security"] == []


async def test_official_operations_are_exactly_those_of_the_official_client(api: Whole):
    """Of the resources that we have: each of its operations, and none that it does not know."""
    made = document(api.routes, version="1")
    theirs = {
        (f"{method} {shape(path)}")
        for method, path, operation in operations(made)
        if EXTENSION_KEY not in operation
    }
    roots = {operation.split("/")[2] for operation in theirs}
    package = Path(anthropic.__file__).parent / "resources" / "beta"
    current = {
        f"{method.removesuffix('_api_list')} {shape(path)}"
        for file in package.rglob("*.py")
        for method, path in _CALL.findall(file.read_text())
        if path.split("/")[2] in roots
    }
    assert theirs == current
