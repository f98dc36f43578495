"""Messages of the Model Context Protocol, of both eras: JSON-RPC envelopes, requests and results.

Modern versions describe every request in its `_meta`; legacy ones begin with `initialize`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal, TypeAlias, TypeVar

import msgspec
from msgspec import Raw, Struct

from mainspring.core.errors import McpFailed

Era: TypeAlias = Literal["modern", "legacy"]

MODERN_VERSIONS = ("2026-07-28",)
"""The newest first, as below."""
LEGACY_VERSIONS = ("2025-11-25", "2025-06-18", "2025-03-26", "2024-11-05")
META = "io.modelcontextprotocol/"
SKILLS_EXTENSION = f"{META}skills"
PARSE_ERROR = -32700  # JSON-RPC 2.0, 5.1, as are the next four
INVALID_REQUEST = -32600  # JSON-RPC 2.0
METHOD_NOT_FOUND = -32601  # JSON-RPC 2.0
INVALID_PARAMS = -32602  # JSON-RPC 2.0
INTERNAL_ERROR = -32603  # JSON-RPC 2.0
HEADER_MISMATCH = -32020  # MCP 2026-07-28, as are the next two
MISSING_CAPABILITY = -32021  # MCP 2026-07-28
UNSUPPORTED_VERSION = -32022  # MCP 2026-07-28
MODERN_ERRORS = frozenset((HEADER_MISMATCH, MISSING_CAPABILITY, UNSUPPORTED_VERSION))
"""Errors that only a modern server sends."""

RequestId: TypeAlias = int | str
ResultT = TypeVar("ResultT")


class RpcError(Struct, frozen=True, omit_defaults=True):
    code: int
    message: str = ""
    data: Raw = Raw()


class Message(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Anything that a peer sends: a response, a notification or a request."""

    id: RequestId | None = None
    method: str | None = None
    params: Raw = Raw()
    result: Raw = Raw()
    error: RpcError | None = None

    @property
    def is_response(self) -> bool:
        return self.method is None and (self.error is not None or bool(bytes(self.result)))


_DECODER = msgspec.json.Decoder(Message)


def decode_message(data: bytes) -> Message | None:
    """The message, or `None` if it does not follow the protocol.

    Raises:
        McpFailed: it is nested so deeply that nobody can say what it answers; ignored, the request
            would wait until its time is over.
    """
    try:
        message = _DECODER.decode(data)
    except RecursionError:
        raise McpFailed("the server sent a message that is nested too deeply") from None
    except (msgspec.MsgspecError, UnicodeError):
        return None
    return message if message.method is not None or message.is_response else None


@dataclass(frozen=True, slots=True, kw_only=True)
class McpRequest:
    """A request to a server."""

    id: int
    method: str
    params: Mapping[str, object]
    version: str
    era: Era
    headers: Mapping[str, str] = field(default_factory=dict[str, str])
    """Further headers, for a transport over HTTP."""

    def encode(self) -> bytes:
        message = {"jsonrpc": "2.0", "id": self.id, "method": self.method, "params": self.params}
        return msgspec.json.encode(message)


def encode_notification(method: str, params: Mapping[str, object]) -> bytes:
    return msgspec.json.encode({"jsonrpc": "2.0", "method": method, "params": params})


def encode_answer(id_: RequestId, result: Mapping[str, object]) -> bytes:
    return msgspec.json.encode({"jsonrpc": "2.0", "id": id_, "result": result})


def encode_refusal(
    id_: RequestId | None, code: int, text: str, data: Mapping[str, object] | None = None
) -> bytes:
    error: dict[str, object] = {"code": code, "message": text}
    if data is not None:
        error["data"] = data
    id_part = {} if id_ is None else {"id": id_}
    return msgspec.json.encode({"jsonrpc": "2.0", **id_part, "error": error})


class Implementation(Struct, frozen=True, kw_only=True, omit_defaults=True):
    name: str = ""
    version: str = ""
    title: str | None = None


class ToolAnnotations(Struct, frozen=True, kw_only=True, omit_defaults=True, rename="camel"):
    """A server's hints about its own tool. They are not trusted."""

    title: str | None = None
    read_only_hint: bool | None = None
    destructive_hint: bool | None = None
    idempotent_hint: bool | None = None
    open_world_hint: bool | None = None


class ToolDefinition(Struct, frozen=True, kw_only=True, omit_defaults=True, rename="camel"):
    name: str
    title: str | None = None
    description: str | None = None
    input_schema: dict[str, object] = {}
    output_schema: dict[str, object] | None = None
    annotations: ToolAnnotations | None = None


class Resource(Struct, frozen=True, kw_only=True, omit_defaults=True, rename="camel"):
    uri: str
    name: str = ""
    title: str | None = None
    description: str | None = None
    mime_type: str | None = None


class ResourceTemplate(Struct, frozen=True, kw_only=True, omit_defaults=True, rename="camel"):
    uri_template: str
    name: str
    title: str | None = None
    description: str | None = None
    mime_type: str | None = None


class PromptArgument(Struct, frozen=True, kw_only=True, omit_defaults=True):
    name: str
    description: str | None = None
    required: bool = False


class Prompt(Struct, frozen=True, kw_only=True, omit_defaults=True):
    name: str
    title: str | None = None
    description: str | None = None
    arguments: list[PromptArgument] | None = None


class ResultPage(Struct, frozen=True, kw_only=True, rename="camel"):
    next_cursor: str | None = None


class ToolPage(ResultPage, frozen=True, kw_only=True):
    tools: list[Raw]
    """Decoded one by one, so that an invalid definition does not affect the others."""


class ResourcePage(ResultPage, frozen=True, kw_only=True):
    resources: list[Resource]


class PromptPage(ResultPage, frozen=True, kw_only=True):
    prompts: list[Prompt]


class SkillFile(Struct, frozen=True, kw_only=True, omit_defaults=True):
    uri: str
    digest: str = ""
    """`sha256:` and the hexadecimal hash of its bytes."""
    size: int | None = None


class SkillEntry(Struct, frozen=True, kw_only=True):
    uri: str
    """The URI of its `SKILL.md`."""
    frontmatter: dict[str, object] = {}
    resources: list[SkillFile] | str = []
    """All files of the skill; a text if the server cannot list them."""


class SkillPage(ResultPage, frozen=True, kw_only=True):
    skills: list[Raw]
    """Decoded one by one, like tools, so that one malformed entry does not fail the page."""


class Text(Struct, frozen=True, tag_field="type", tag="text"):
    text: str


class Image(Struct, frozen=True, kw_only=True, rename="camel", tag_field="type", tag="image"):
    data: str
    mime_type: str = "application/octet-stream"


class Audio(Struct, frozen=True, kw_only=True, rename="camel", tag_field="type", tag="audio"):
    data: str
    mime_type: str = "application/octet-stream"


class ResourceLink(
    Struct,
    frozen=True,
    kw_only=True,
    omit_defaults=True,
    rename="camel",
    tag_field="type",
    tag="resource_link",
):
    uri: str
    name: str = ""
    description: str | None = None
    mime_type: str | None = None


class ResourceContent(Struct, frozen=True, kw_only=True, omit_defaults=True, rename="camel"):
    uri: str
    mime_type: str | None = None
    text: str | None = None
    blob: str | None = None


class EmbeddedResource(Struct, frozen=True, kw_only=True, tag_field="type", tag="resource"):
    resource: ResourceContent


Content: TypeAlias = Text | Image | Audio | ResourceLink | EmbeddedResource


class CallResult(Struct, frozen=True, kw_only=True, rename="camel"):
    content: list[Raw] = []
    """Decoded one by one, since they come from an untrusted server."""
    structured_content: Raw = Raw()
    is_error: bool = False


class ResourceResult(Struct, frozen=True, kw_only=True):
    contents: list[ResourceContent]


class PromptMessage(Struct, frozen=True, kw_only=True):
    role: Literal["user", "assistant"]
    content: Content


class PromptResult(Struct, frozen=True, kw_only=True, omit_defaults=True):
    messages: list[PromptMessage]
    description: str | None = None


class InputRequest(Struct, frozen=True, kw_only=True):
    """A server's request for input, which it needs to continue."""

    method: str
    params: Raw = Raw(b"{}")


class InputRound(Struct, frozen=True, kw_only=True):
    """The input that a modern server needs before it continues with a request."""

    number: int
    """The number of the request that will have the answers; the first request is 1."""
    requests: dict[str, InputRequest]
    state: str | None = None
    """Opaque state that the server wants back."""


class ResultHead(Struct, frozen=True, kw_only=True, rename="camel"):
    """The part of every result that says how to decode the rest."""

    result_type: str = "complete"
    input_requests: dict[str, InputRequest] = {}
    request_state: str | None = None


class DiscoverResult(Struct, frozen=True, kw_only=True, rename="camel"):
    supported_versions: list[str]
    capabilities: dict[str, object] = {}
    instructions: str | None = None
    meta: dict[str, object] = msgspec.field(default_factory=dict[str, object], name="_meta")


class InitializeResult(Struct, frozen=True, kw_only=True, rename="camel"):
    protocol_version: str
    capabilities: dict[str, object] = {}
    server_info: Implementation = Implementation()
    instructions: str | None = None


class SupportedVersions(Struct, frozen=True):
    """The data of an error -32022."""

    supported: list[str] = []


class CancelledParams(Struct, frozen=True, kw_only=True, rename="camel"):
    request_id: RequestId


class ProgressParams(Struct, frozen=True, kw_only=True, rename="camel"):
    progress_token: RequestId
    progress: float = 0
    total: float | None = None
    message: str | None = None


def decode_result(data: Raw | bytes, type_: type[ResultT], what: str) -> ResultT:
    """Decode a result.

    Raises:
        McpFailed: it has another format.
    """
    try:
        return msgspec.json.decode(data, type=type_)
    except (msgspec.MsgspecError, UnicodeError, RecursionError) as error:
        raise McpFailed(f"invalid result of {what}: {error!s:.200}") from error


def supported_versions(error: RpcError) -> list[str]:
    try:
        return decode_result(error.data, SupportedVersions, "an error").supported
    except McpFailed:
        return []


def refusal(method: str, error: RpcError) -> McpFailed:
    return McpFailed(f"{method}: {error.message:.2000} ({error.code})", code=error.code)


def read_implementation(value: object) -> Implementation:
    """A server's description of itself; empty if it is not valid."""
    try:
        return msgspec.convert(value, Implementation)
    except msgspec.ValidationError:
        return Implementation()
