"""Parameters of tools that are mirrored in HTTP headers (`x-mcp-header`, since 2026-07-28)."""

from __future__ import annotations

import base64
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import cast

from mainspring.core.errors import InvalidInput

_KEY = "x-mcp-header"
_TOKEN = re.compile(r"[!#$%&'*+\-.^_`|~0-9A-Za-z]{1,100}")
_PLAIN = re.compile(r"[\x21-\x7e](?:[\x20-\x7e\t]*[\x21-\x7e])?")
_SENTINEL = re.compile(r"=\?base64\?.*\?=", re.DOTALL)
_TYPES = ("string", "integer", "boolean")
_MAX_SAFE = 2**53 - 1  # the largest integer that JSON keeps exact everywhere (RFC 8259, 6)
_MAX_NODES = 20_000  # parts of a schema; more are an error


@dataclass(frozen=True, slots=True)
class ParamHeaders:
    paths: Mapping[str, tuple[str, ...]]
    """The path of each header's value in the arguments."""

    def values(self, arguments: object) -> dict[str, str]:
        headers: dict[str, str] = {}
        for name, path in self.paths.items():
            value = _value_at(arguments, path)
            if isinstance(value, bool):
                headers[f"Mcp-Param-{name}"] = "true" if value else "false"
            elif isinstance(value, int) and abs(value) <= _MAX_SAFE:
                headers[f"Mcp-Param-{name}"] = str(value)
            elif isinstance(value, str):
                headers[f"Mcp-Param-{name}"] = encode_header(value)
        return headers


def encode_header(value: str) -> str:
    """The value, in Base64 if a header cannot contain it."""
    if (_PLAIN.fullmatch(value) or not value) and not _SENTINEL.fullmatch(value):
        return value
    encoded = base64.b64encode(value.encode("utf-8", "surrogatepass")).decode("ascii")
    return f"=?base64?{encoded}?="


def decode_header(value: str) -> str:
    """Raises: InvalidInput: characters or Base64 that the protocol does not allow."""
    if not _SENTINEL.fullmatch(value):
        if value and not _PLAIN.fullmatch(value):
            raise InvalidInput("characters that a header cannot have")
        return value
    try:
        return base64.b64decode(value[9:-2].encode("ascii"), validate=True).decode()
    except ValueError as error:  # from Base64 or UTF-8
        raise InvalidInput("not Base64 of UTF-8") from error


def param_headers(schema: Mapping[str, object]) -> ParamHeaders:
    """The headers that a tool's schema declares.

    Raises:
        InvalidInput: a header that the protocol does not allow; the tool is not to be used.
    """
    paths: dict[str, tuple[str, ...]] = {}
    for fields, path in _subschemas(schema):
        if _KEY not in fields:
            continue
        name = fields[_KEY]
        if not isinstance(name, str) or not _TOKEN.fullmatch(name):
            raise InvalidInput(f"{_KEY}: {name!r:.80} is not a header name")
        if not path:
            raise InvalidInput(f"{_KEY}: {name} must be set on a property of an object")
        if fields.get("type") not in _TYPES:
            raise InvalidInput(f"{_KEY}: {name} is not at a {', '.join(_TYPES)}")
        if name.lower() in (header.lower() for header in paths):
            raise InvalidInput(f"{_KEY}: {name} is used twice")
        paths[name] = path
    return ParamHeaders(paths)


def _subschemas(
    schema: Mapping[str, object],
) -> Iterator[tuple[Mapping[str, object], tuple[str, ...] | None]]:
    """Each subschema with its path of properties; `None` if it has none."""
    pending: list[tuple[object, tuple[str, ...] | None]] = [(schema, ())]
    for node, path in pending:  # grows during the loop
        if len(pending) > _MAX_NODES:
            raise InvalidInput(f"a schema of more than {_MAX_NODES:,} parts")
        if isinstance(node, list):
            pending += [(item, None) for item in cast("list[object]", node)]
        elif isinstance(node, dict):
            fields = cast("dict[str, object]", node)
            yield fields, path
            for key, value in fields.items():
                pending += _children(key, value, path)


def _children(
    key: str, value: object, path: tuple[str, ...] | None
) -> list[tuple[object, tuple[str, ...] | None]]:
    if key in ("default", "const", "enum", "examples"):
        return []
    if key != "properties" or not isinstance(value, dict):
        return [(value, None)]
    properties = cast("dict[str, object]", value)
    return [(item, None if path is None else (*path, name)) for name, item in properties.items()]


def _value_at(arguments: object, path: tuple[str, ...]) -> object:
    for name in path:
        if not isinstance(arguments, Mapping):
            return None
        arguments = cast("Mapping[str, object]", arguments).get(name)
    return arguments
