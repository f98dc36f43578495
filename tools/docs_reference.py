"""Reference pages: the HTTP API from its OpenAPI document, Python from docstrings."""

from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import mainspring

Json = dict[str, Any]
API_HEAD = """\
# HTTP API

Every route, from the OpenAPI document that a service has at `/v1/mainspring/openapi.json`.
[The API](../api.md) says how to use it.

"""
PYTHON_HEAD = """\
# Python

Every public name, from its docstring. [Python](../python.md) says how to use them.

"""


def write_api_pages(folder: Path, api: Json) -> list[str]:
    """`api.md` and, below `api/`, one page for each tag and one for the types; their names."""
    sections: dict[str, list[str]] = {}
    for path, methods in api["paths"].items():
        for method, operation in methods.items():
            page = sections.setdefault(operation["tags"][0], [])
            page.extend(operation_lines(method.upper(), path, operation))
    schemas = sorted(api["components"]["schemas"].items())
    sections["types"] = [line for name, schema in schemas for line in schema_lines(name, schema)]
    (folder / "api").mkdir(parents=True)
    for name, lines in sections.items():
        text = "\n".join([f"# {title(name)}", "", *lines, ""])
        (folder / f"api/{name}.md").write_text(text, encoding="utf-8")
    links = "".join(f"- [{title(name)}](api/{name}.md)\n" for name in sections)
    (folder / "api.md").write_text(API_HEAD + links, encoding="utf-8")
    return list(sections)


def write_python_page(page: Path) -> None:
    names = (f"```{{eval-rst}}\n{directive(name)}\n```\n\n" for name in mainspring.__all__)
    page.write_text(PYTHON_HEAD + "".join(names), encoding="utf-8")


def directive(name: str) -> str:
    value = getattr(mainspring, name)
    if isinstance(value, type):
        return f".. autoclass:: mainspring.{name}\n   :members:\n   :class-doc-from: class"
    return f".. auto{'function' if callable(value) else 'data'}:: mainspring.{name}"


def title(name: str) -> str:
    return name.replace("_", " ").capitalize()


def operation_lines(method: str, path: str, operation: Json) -> Iterator[str]:
    yield from (f"## {operation['summary']}", "", f"`{method} {path}`", "")
    if role := operation.get("x-mainspring-role"):
        yield from (f"Needs the role `{role}`.", "")
    if parameters := operation.get("parameters"):
        head = ("parameter", "in", "type", "required")
        yield from table(head, (parameter_cells(item) for item in parameters))
    for media_type, body in operation.get("requestBody", {}).get("content", {}).items():
        yield from (f"Request body, `{media_type}`: {type_text(body['schema'])}", "")
    responses = sorted(operation["responses"].items())
    yield from table(("status", "meaning", "body"), (response_cells(*item) for item in responses))


def parameter_cells(parameter: Json) -> tuple[str, ...]:
    is_required = "yes" if parameter.get("required") else "no"
    kind = type_text(parameter["schema"])
    return (f"`{parameter['name']}`", parameter["in"], kind, is_required)


def response_cells(status: str, response: Json) -> tuple[str, ...]:
    bodies = (type_text(body.get("schema", {})) for body in response.get("content", {}).values())
    return (status, response["description"], ", ".join(bodies))


def schema_lines(name: str, schema: Json) -> Iterator[str]:
    yield from (f"## {name}", "")
    if description := schema.get("description"):
        yield from (description, "")
    fields = schema.get("properties", {})
    if not fields:
        yield from (type_text({**schema, "description": None}), "")
        return
    required = schema.get("required", [])
    rows = (
        (f"`{field}`", type_text(kind), "yes" if field in required else "no", default_text(kind))
        for field, kind in fields.items()
    )
    yield from table(("field", "type", "required", "default"), rows)


def default_text(schema: Json) -> str:
    return f"`{schema['default']!r}`" if "default" in schema else ""


def type_text(schema: Json) -> str:
    """A schema in a few words, with links to the named types."""
    if reference := schema.get("$ref"):
        name = reference.rpartition("/")[2]
        return f"[{name}](types.md#{name.lower().replace('.', '')})"
    if alternatives := schema.get("anyOf") or schema.get("oneOf"):
        return " or ".join(type_text(item) for item in alternatives)
    if "enum" in schema:
        return " or ".join(f"`{value}`" for value in schema["enum"])
    if schema.get("type") == "array":
        return f"array of {type_text(schema.get('items', {}))}"
    if "additionalProperties" in schema:
        values: Json | bool = schema["additionalProperties"]
        return f"object of {'anything' if isinstance(values, bool) else type_text(values)}"
    return schema.get("type", "anything")


def table(head: Iterable[str], rows: Iterable[Iterable[str]]) -> Iterator[str]:
    cells = list(head)
    yield row_text(cells)
    yield row_text("---" for _ in cells)
    yield from (row_text(row) for row in rows)
    yield ""


def row_text(cells: Iterable[str]) -> str:
    return f"| {' | '.join(cell.replace('|', '&#124;') for cell in cells)} |"
