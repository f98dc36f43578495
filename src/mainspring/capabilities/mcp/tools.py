"""Tools of MCP servers as tools of a session: their names, their descriptions for the model, and
their results."""

from __future__ import annotations

import base64
import binascii
import hashlib
import re
from collections import Counter
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TypeAlias, cast

import msgspec

from mainspring.capabilities.mcp.elicitation import Questions
from mainspring.capabilities.mcp.protocol.client import Progress, ToolList
from mainspring.capabilities.mcp.protocol.foreign_text import (
    clean_description,
    clean_line,
    clean_text,
    clean_value,
)
from mainspring.capabilities.mcp.protocol.messages import (
    Audio,
    CallResult,
    Content,
    EmbeddedResource,
    Image,
    ResourceContent,
    ResourceLink,
    Text,
    ToolDefinition,
)
from mainspring.core.content import Base64Source, Block, ImageBlock, TextBlock, plain_text
from mainspring.core.errors import McpFailed
from mainspring.core.model import ToolSpec
from mainspring.core.tool import Call, Tool, ToolOrigin, ToolResult, Traits

CallServer: TypeAlias = Callable[[Call, str, Progress], Awaitable[CallResult | Questions]]
"""Calls a tool: the call, the server's own name of the tool, and a callback for progress. Raises:
McpFailed."""

MAX_NAME = 64
"""Some providers do not accept longer tool names."""
_MAX_SERVER_NAME = 32  # characters: half of `MAX_NAME`, so that a tool's own name has room
_MAX_SCHEMA_BYTES = 64 << 10  # of one tool's schema, about 16,000 tokens
_MAX_RESULT_CHARS = 100_000  # about 25,000 tokens, Claude Code's limit for a tool of MCP
_MAX_IMAGE_CHARS = 7_000_000  # of base64: about 5 MB, the Messages API's limit for an image
_IMAGES = frozenset(("image/png", "image/jpeg", "image/gif", "image/webp"))
_MORE_KEYS = (
    "nextCursor",
    "next_cursor",
    "nextPageToken",
    "next_page_token",
    "hasMore",
    "has_more",
)
_UNION_KEYS = ("anyOf", "oneOf", "allOf", "not", "$schema")
"""Keys that providers do not accept at the top of a schema."""
_CONTENT: msgspec.json.Decoder[Content] = msgspec.json.Decoder(Content)
IN_DOUBT = "Whether the call took effect is not known: look before you do it again."


@dataclass(frozen=True, slots=True)
class ServerTools:
    tools: tuple[Tool, ...]
    rejected: tuple[str, ...]
    """Why a tool of the server was left out."""


def server_key(name: str) -> str:
    """The name of a server in the names of its tools. It has no `__`, so that no rule for another
    server matches its tools."""
    plain = re.sub(r"_{2,}", "_", plain_name(name)).strip("_") or "server"
    if len(plain) <= _MAX_SERVER_NAME:
        return plain
    digest = hashlib.sha256(name.encode("utf-8", "surrogatepass")).hexdigest()[:8]
    return f"{plain[: _MAX_SERVER_NAME - 9]}-{digest}"


def tool_prefix(server: str) -> str:
    """The prefix of the names of a server's tools."""
    return f"mcp__{server_key(server)}__"


def definition_hash(definition: ToolDefinition) -> str:
    """A hash of a tool's whole definition."""
    return hashlib.sha256(msgspec.json.encode(definition, order="sorted")).hexdigest()


def definition_text(definition: ToolDefinition) -> str:
    """All text in a definition that a model would read."""
    texts: list[str] = [definition.name, definition.title or "", definition.description or ""]
    pending: list[object] = [definition.input_schema]
    for value in pending:  # grows during the loop
        if isinstance(value, str):
            texts.append(value)
        elif isinstance(value, list):
            pending += cast("list[object]", value)
        elif isinstance(value, dict):
            fields = cast("dict[str, object]", value)
            texts += fields
            pending += fields.values()
    return "\n".join(texts)


def server_tools(
    server: str,
    tool_list: ToolList,
    call: CallServer,
    *,
    refused: Mapping[str, str | None],
) -> ServerTools:
    """`server`: its own name. `refused`: tools that must not be used, with a reason if it should be
    reported."""
    key = server_key(server)
    rejected = [*tool_list.rejected, *(f"{name}: {why}" for name, why in refused.items() if why)]
    tools: dict[str, Tool] = {}
    definitions = [item for item in tool_list.tools if item.name not in refused]
    uses = Counter(plain_name(item.name) for item in definitions)
    for definition in definitions:
        name = _tool_name(key, definition.name, is_unique=uses[plain_name(definition.name)] == 1)
        try:
            tools[name] = _tool(ToolOrigin(server, definition.name), name, definition, call)
        except ValueError as error:
            rejected.append(f"{clean_line(definition.name, 80)}: {error}")
    return ServerTools(tuple(tools.values()), tuple(clean_line(why, 300) for why in rejected))


def plain_name(name: str) -> str:
    """The name with only the characters that providers accept in tool names."""
    return re.sub(r"[^A-Za-z0-9_-]", "_", name)


def _tool_name(server: str, name: str, *, is_unique: bool) -> str:
    """The tool's full name; if it is too long or not unique, with a hash."""
    plain = plain_name(name)
    whole = f"mcp__{server}__{plain}"
    if len(whole) <= MAX_NAME and (is_unique or plain == name):
        return whole
    digest = hashlib.sha256(f"{server}\0{name}".encode("utf-8", "surrogatepass")).hexdigest()[:8]
    return f"{whole[: MAX_NAME - 9]}_{digest}"


def _tool(origin: ToolOrigin, name: str, definition: ToolDefinition, call: CallServer) -> Tool:
    hints = definition.annotations
    reads = hints is not None and hints.read_only_hint is True
    adds = hints is not None and hints.destructive_hint is False
    traits = Traits(
        read_only=reads,
        concurrent=reads,
        destructive=not (reads or adds),
        max_chars=_MAX_RESULT_CHARS,
    )

    async def run(tool_call: Call) -> ToolResult:
        try:
            answer = await call(
                tool_call, definition.name, lambda text: tool_call.say(clean_line(text, 500))
            )
        except McpFailed as error:
            return _failure(origin.server, error)
        return ToolResult.asking(*answer) if isinstance(answer, tuple) else tool_result(answer)

    return Tool(
        spec=ToolSpec(
            name=name,
            description=clean_description(definition.description or definition.title or ""),
            input_schema=_schema(definition.input_schema),
        ),
        run=run,
        traits=lambda _: traits,
        origin=origin,
    )


def _schema(schema: Mapping[str, object]) -> dict[str, object]:
    """Raises ValueError: it is too large, or not the schema of an object."""
    if len(msgspec.json.encode(schema)) > _MAX_SCHEMA_BYTES:
        raise ValueError(f"its schema has more than {_MAX_SCHEMA_BYTES:,} bytes")
    if schema.get("type", "object") != "object":
        raise ValueError("its schema does not describe an object")
    cleaned = cast("dict[str, object]", clean_value(dict(schema)))
    plain = {key: value for key, value in cleaned.items() if key not in _UNION_KEYS}
    return {**plain, "type": "object"}


def _failure(server: str, error: McpFailed) -> ToolResult:
    text = f"MCP server {clean_line(server, 80)}: {clean_text(str(error))}"
    if error.is_in_doubt:
        return ToolResult.text(f"{text}\n{IN_DOUBT}", ok=False, error="in_doubt")
    kind = "unavailable" if error.code is None else "failed"
    return ToolResult.text(text, ok=False, error=kind)


def tool_result(result: CallResult) -> ToolResult:
    blocks = _blocks(result.content)
    structured = bytes(result.structured_content)
    if structured and structured != b"null":
        blocks += _structured(structured, plain_text(tuple(blocks)))
    if not blocks:
        blocks = [TextBlock("(no content)")]
    return ToolResult(
        tuple(blocks), ok=not result.is_error, error="failed" if result.is_error else None
    )


_MAX_PARTS = 1_000
"""Parts of a result that are read: a hostile server sends hundreds of thousands of empty ones."""
_MAX_TEXTS = 50
"""Texts that stay apart; more become one, as each costs the log and the model its frame."""


def _blocks(parts: Sequence[msgspec.Raw]) -> list[Block]:
    blocks = [_block(item) for item in parts[:_MAX_PARTS]]
    blocks = [item for item in blocks if not isinstance(item, TextBlock) or item.text.strip()]
    if len(parts) > _MAX_PARTS:
        blocks.append(TextBlock(f"[{len(parts) - _MAX_PARTS:,} more parts were left out]"))
    texts = [item.text for item in blocks if isinstance(item, TextBlock)]
    if len(texts) <= _MAX_TEXTS:
        return blocks
    media = (item for item in blocks if not isinstance(item, TextBlock))
    return [TextBlock("\n".join(texts)), *media]


def _structured(data: bytes, text: str) -> list[Block]:
    """Structured content that the text does not already have, and a note if there are more
    pages."""
    try:
        value: object = msgspec.json.decode(data)
        is_same = bool(text) and msgspec.json.decode(text) == value
    except (msgspec.MsgspecError, RecursionError, UnicodeError):
        value, is_same = None, False
    blocks: list[Block] = (
        [] if is_same else [TextBlock(clean_text(data.decode("utf-8", "replace")))]
    )
    if isinstance(value, dict):
        fields = cast("dict[str, object]", value)
        if more := [key for key in _MORE_KEYS if fields.get(key)]:
            blocks.append(TextBlock(f"[There is more: {more[0]} says how to continue.]"))
    return blocks


def content_text(content: Content) -> str:
    """The text of a part of a prompt; anything else is replaced by a note."""
    block = _content_block(content)
    return block.text if isinstance(block, TextBlock) else "[an image was left out]"


def resource_text(resource: ResourceContent) -> str:
    block = _resource(resource)
    return block.text if isinstance(block, TextBlock) else "[an image was left out]"


def _block(raw: msgspec.Raw) -> Block:
    try:
        content = _CONTENT.decode(raw)
    except (msgspec.MsgspecError, RecursionError, UnicodeError):
        return TextBlock("[a part of the result of an unknown kind was left out]")
    return _content_block(content)


def _content_block(content: Content) -> Block:
    match content:
        case Text(text=text):
            return TextBlock(clean_text(text))
        case Image(data=data, mime_type=media_type):
            return _image(data, media_type)
        case Audio(mime_type=media_type):
            return TextBlock(f"[audio ({clean_line(media_type, 80)}) was left out]")
        case ResourceLink(uri=uri, name=name, description=description):
            text = f"{name} <{uri}> {description or ''}"
            return TextBlock(f"[resource link: {clean_line(text, 2_000)}]")
        case EmbeddedResource(resource=resource):
            return _resource(resource)


def _resource(resource: ResourceContent) -> Block:
    uri = clean_line(resource.uri, 500)
    if resource.text is not None:
        return TextBlock(f"[resource {uri}]\n{clean_text(resource.text)}")
    if resource.blob is not None and resource.mime_type in _IMAGES:
        return _image(resource.blob, resource.mime_type)
    return TextBlock(
        f"[resource {uri} ({clean_line(resource.mime_type or 'bytes', 80)}): left out]"
    )


def _image(data: str, media_type: str) -> Block:
    if media_type not in _IMAGES:
        return TextBlock(f"[an image ({clean_line(media_type, 80)}) was left out]")
    if len(data) > _MAX_IMAGE_CHARS:
        return TextBlock(f"[an image of {len(data):,} characters was left out: it is too large]")
    try:
        base64.b64decode(data, validate=True)
    except (binascii.Error, ValueError):
        return TextBlock("[an image that is not Base64 was left out]")
    return ImageBlock(source=Base64Source(media_type=media_type, data=data))
