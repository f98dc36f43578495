"""Encodes requests for OpenAI's Responses API. OpenAI stores nothing: each request is complete."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from typing import TypeAlias

import msgspec
from msgspec import Struct

from mainspring.capabilities.providers.content_blocks import (
    Media,
    data_url,
    resolve_source,
    to_text_or_media,
    unseal_signature,
)
from mainspring.capabilities.providers.quirks import Quirks, output_limit, supported_effort
from mainspring.capabilities.providers.tool_calls import valid_id
from mainspring.core.content import Base64Source, DocumentBlock, ImageBlock, TextBlock
from mainspring.core.model import (
    Assistant,
    Request,
    Thinking,
    ToolResultBlock,
    ToolSpec,
    ToolUse,
    User,
)

Json: TypeAlias = dict[str, object]

MAKER = "openai"
NO_OUTPUT = "(no output)"
FAILED = "Error:\n"

_ID = re.compile(r"\S{1,64}")


class Reasoning(Struct, frozen=True, kw_only=True):
    """The parts of a reasoning item that must be sent back in addition to its summary."""

    id: str
    encrypted_content: str


_REASONING = msgspec.json.Decoder(Reasoning)


def encode(request: Request, quirks: Quirks) -> bytes:
    """The request's JSON; instructions, tools and input come first, as they are cached.

    Raises:
        InvalidInput: a source that was not loaded.
    """
    body: Json = {"model": request.model}
    if system := "\n\n".join(part for part in request.system if part.strip()):
        body["instructions"] = system
    if request.tools:
        body["tools"] = [_tool(tool) for tool in request.tools]
    body["input"] = list(_items(request, quirks))
    body["max_output_tokens"] = output_limit(request, quirks)
    body["stream"] = request.stream
    body["store"] = False
    if effort := supported_effort(request.effort, quirks):
        body["reasoning"] = {"effort": effort, "summary": "auto"}
    if quirks.efforts:
        body["include"] = ["reasoning.encrypted_content"]
    return msgspec.json.encode(body)


def _tool(tool: ToolSpec) -> Json:
    return {
        "type": "function",
        "name": tool.name,
        "description": tool.description,
        "parameters": tool.input_schema,
        "strict": False,
    }


def _items(request: Request, quirks: Quirks) -> Iterator[Json]:
    for message in request.messages:
        if isinstance(message, User):
            yield from _user_items(message, quirks)
        else:
            yield from _assistant_items(message)


def _user_items(message: User, quirks: Quirks) -> Iterator[Json]:
    parts: list[str | Media] = []
    for block in message.content:
        if isinstance(block, ToolResultBlock):
            yield _result(block, quirks)
        else:
            parts.append(to_text_or_media(block, quirks))
    if content := _content(parts):
        yield {"role": "user", "content": content}


def _result(block: ToolResultBlock, quirks: Quirks) -> Json:
    parts = [to_text_or_media(part, quirks) for part in block.content]
    if block.is_error:
        parts.insert(0, FAILED.strip())
    if any(not isinstance(part, str) for part in parts):
        output: object = _content(parts)
    else:
        output = "\n".join(part for part in parts if isinstance(part, str)) or NO_OUTPUT
    return {
        "type": "function_call_output",
        "call_id": valid_id(block.tool_use_id, pattern=_ID),
        "output": output,
    }


def _content(parts: Sequence[str | Media]) -> list[Json]:
    return [_part(part) for part in parts if not isinstance(part, str) or part.strip()]


def _part(part: str | Media) -> Json:
    match part:
        case str():
            return {"type": "input_text", "text": part}
        case ImageBlock(source=source):
            return {
                "type": "input_image",
                "detail": "auto",
                "image_url": data_url(resolve_source(source)),
            }
        case DocumentBlock(source=Base64Source() as source, title=title):
            name = title or "document.pdf"
            return {"type": "input_file", "filename": name, "file_data": data_url(source)}
        case DocumentBlock(source=source):
            return {"type": "input_file", "file_url": data_url(resolve_source(source))}


def _assistant_items(message: Assistant) -> Iterator[Json]:
    for block in message.content:
        match block:
            case TextBlock(text=text):
                if text.strip():
                    content: Json = {"type": "output_text", "text": text, "annotations": []}
                    yield {"type": "message", "role": "assistant", "content": [content]}
            case ToolUse():
                yield {
                    "type": "function_call",
                    "call_id": valid_id(block.id, pattern=_ID),
                    "name": block.name,
                    "arguments": msgspec.json.encode(block.input).decode(),
                }
            case Thinking():
                yield from _reasoning_items(block)


def _reasoning_items(block: Thinking) -> Iterator[Json]:
    if (sealed := unseal_signature(MAKER, block.signature)) is not None:
        own = _REASONING.decode(sealed)
        summary: list[Json] = [{"type": "summary_text", "text": block.text}] if block.text else []
        yield {
            "type": "reasoning",
            "id": own.id,
            "summary": summary,
            "encrypted_content": own.encrypted_content,
        }
