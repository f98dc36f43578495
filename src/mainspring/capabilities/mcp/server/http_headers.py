"""Headers of a request over HTTP: its era, and whether they match the body. Only the body is used;
a header that differs is refused, since proxies may have relied on it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import msgspec
from msgspec import Struct

from mainspring.capabilities.mcp.protocol.messages import (
    MODERN_VERSIONS,
    Era,
    Message,
    ToolDefinition,
)
from mainspring.capabilities.mcp.protocol.param_headers import decode_header, param_headers
from mainspring.capabilities.mcp.server.params import CallToolParams, RequestHead, read_params
from mainspring.capabilities.mcp.server.refusals import (
    header_mismatch,
    invalid,
    unsupported_version,
)
from mainspring.core.errors import InvalidInput

VERSION_HEADER = "MCP-Protocol-Version"
SESSION_HEADER = "Mcp-Session-Id"
_NAMED = {"tools/call": "name", "prompts/get": "name", "resources/read": "uri"}


def era_of(message: Message, headers: Mapping[str, str]) -> Era:
    """The era of a request. `headers`: with case-insensitive names. A client that sends a session
    id or `initialize` is a legacy one; any other request is treated as modern, which is
    self-describing."""
    if headers.get(VERSION_HEADER) in MODERN_VERSIONS:
        return "modern"
    begins = message.method == "initialize"
    return "legacy" if begins or SESSION_HEADER in headers or message.is_response else "modern"


def check_modern(message: Message, headers: Mapping[str, str]) -> RequestHead:
    """Check a modern request. Raises: RequestRefused: something is missing, or header and body
    differ."""
    head = read_params(message.params, RequestHead)
    version = head.meta.version
    if version is None:
        raise invalid("_meta: must have the protocol version; older clients begin with initialize")
    _check_same(VERSION_HEADER, headers.get(VERSION_HEADER), version)
    if version not in MODERN_VERSIONS:
        raise unsupported_version(version)
    if head.meta.capabilities is None:
        raise invalid("_meta: must have the capabilities of the client")
    _check_same("Mcp-Method", headers.get("Mcp-Method"), message.method or "")
    if (field := _NAMED.get(message.method or "")) is not None:
        target = read_params(message.params, _Named)
        value = target.name if field == "name" else target.uri
        if value is None:
            raise invalid(f"{field}: missing")
        _check_same("Mcp-Name", _decoded("Mcp-Name", headers.get("Mcp-Name")), value)
    return head


def check_arguments(
    message: Message, headers: Mapping[str, str], tools: Sequence[ToolDefinition]
) -> None:
    """Check arguments that their tool also wants in headers.

    Raises: RequestRefused.
    """
    call = read_params(message.params, CallToolParams)
    schemas = {tool.name: tool.input_schema for tool in tools}
    try:
        mirrored = param_headers(schemas.get(call.name, {}))
    except InvalidInput:
        return  # no client uses such a tool
    expected = mirrored.values(call.arguments or {})
    for path in mirrored.paths:
        name = f"Mcp-Param-{path}"
        header_value, value = headers.get(name), expected.get(name)
        if (header_value is None) != (value is None) or not _agree(
            _decoded(name, header_value), value
        ):
            raise header_mismatch(f"{name}: does not agree with the body")


class _Named(Struct, frozen=True):
    name: str | None = None
    uri: str | None = None


def _agree(sent: str | None, value: str | None) -> bool:
    expected = None if value is None else _decoded("", value)
    if sent == expected or sent is None or expected is None:
        return sent == expected
    try:
        return msgspec.convert(sent, float, strict=False) == msgspec.convert(
            expected, float, strict=False
        )
    except msgspec.ValidationError:
        return False


def _check_same(name: str, sent: str | None, value: str) -> None:
    if sent is None:
        raise header_mismatch(f"{name}: the header is missing")
    if sent != value:
        raise header_mismatch(f"{name}: the header says {sent!r:.100}, the body {value!r:.100}")


def _decoded(name: str, value: str | None) -> str | None:
    try:
        return None if value is None else decode_header(value)
    except InvalidInput as error:
        raise header_mismatch(f"{name}: {error}") from error
