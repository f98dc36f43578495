"""Encodes requests for OpenAI's chat completions API and the many compatible servers."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from typing import TypeAlias

import msgspec

from mainspring.capabilities.providers.content_blocks import (
    Media,
    data_url,
    resolve_source,
    to_text_or_media,
    unseal_signature,
)
from mainspring.capabilities.providers.quirks import Quirks, output_limit, supported_effort
from mainspring.capabilities.providers.tool_calls import valid_id
from mainspring.core.content import DocumentBlock, ImageBlock, TextBlock, UrlSource
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

_ID = re.compile(r"\S{1,40}")
NO_OUTPUT = "(no output)"
FAILED = "Error:\n"


def reasoning(provider: str) -> str:
    """The maker of plain `reasoning_content`."""
    return f"{provider}/reasoning"


def reasoning_details(provider: str) -> str:
    """The maker of OpenRouter's `reasoning_details`, which must be sent back unchanged."""
    return f"{provider}/details"


def call_extras(provider: str) -> str:
    """The maker of Gemini's extra data on a tool call; the block is directly before its call."""
    return f"{provider}/call"


def encode(request: Request, quirks: Quirks, provider: str) -> bytes:
    """The request's JSON; tools and messages come first, so that a prefix stays a prefix.

    Raises:
        InvalidInput: a source that was not loaded.
    """
    body: Json = {"model": request.model}
    if request.tools:
        body["tools"] = [_tool(tool) for tool in request.tools]
    body["messages"] = list(_messages(request, quirks, provider))
    body[quirks.token_limit_field] = output_limit(request, quirks)
    body["stream"] = request.stream
    if request.stream and quirks.supports_stream_usage:
        body["stream_options"] = {"include_usage": True}
    if effort := supported_effort(request.effort, quirks):
        body["reasoning_effort"] = effort
    return msgspec.json.encode(body)


def _tool(tool: ToolSpec) -> Json:
    function: Json = {
        "name": tool.name,
        "description": tool.description,
        "parameters": tool.input_schema,
    }
    return {"type": "function", "function": function}


def _messages(request: Request, quirks: Quirks, provider: str) -> Iterator[Json]:
    if system := "\n\n".join(part for part in request.system if part.strip()):
        yield {"role": "system", "content": system}
    for message in request.messages:
        if isinstance(message, User):
            yield from _user(message, quirks)
        elif encoded := _assistant(message, quirks, provider):
            yield encoded


def _user(message: User, quirks: Quirks) -> Iterator[Json]:
    """Tool results, each in its own message. They cannot contain media, which follow in a user
    message."""
    parts: list[str | Media] = []
    for block in message.content:
        if isinstance(block, ToolResultBlock):
            text, media = _result(block, quirks)
            yield {"role": "tool", "tool_call_id": _valid_id(block.tool_use_id), "content": text}
            if media:
                parts += [f"Output of tool call {_valid_id(block.tool_use_id)}:", *media]
        else:
            parts.append(to_text_or_media(block, quirks))
    if content := _content(parts):
        yield {"role": "user", "content": content}


def _result(block: ToolResultBlock, quirks: Quirks) -> tuple[str, list[Media]]:
    parts = [to_text_or_media(part, quirks) for part in block.content]
    text = "\n".join(part for part in parts if isinstance(part, str))
    media = [part for part in parts if not isinstance(part, str)]
    content = text or ("(shown below)" if media else NO_OUTPUT)
    return (FAILED + content if block.is_error else content), media


def _content(parts: Sequence[str | Media]) -> str | list[Json]:
    """Plain text if there is nothing else: not every server supports parts."""
    if all(isinstance(part, str) for part in parts):
        return "\n\n".join(part for part in parts if isinstance(part, str) and part.strip())
    return [_part(part) for part in parts if not isinstance(part, str) or part.strip()]


def _part(part: str | Media) -> Json:
    match part:
        case str():
            return {"type": "text", "text": part}
        case ImageBlock(source=source):
            return {"type": "image_url", "image_url": {"url": data_url(resolve_source(source))}}
        case DocumentBlock(source=UrlSource(url=url), title=title):
            return {"type": "text", "text": f"Document: {title or 'untitled'}, {url}"}
        case DocumentBlock(source=source, title=title):
            file: Json = {
                "filename": title or "document.pdf",
                "file_data": data_url(resolve_source(source)),
            }
            return {"type": "file", "file": file}


def _assistant(message: Assistant, quirks: Quirks, provider: str) -> Json | None:
    texts = [block.text for block in message.content if isinstance(block, TextBlock)]
    calls = list(_calls(message.content, provider))
    thoughts = [block for block in message.content if isinstance(block, Thinking)]
    text = "".join(texts)
    if not text.strip() and not calls:
        return None
    encoded: Json = {"role": "assistant", "content": text or None}
    encoded |= _reasoning_fields(thoughts, quirks, provider)
    if calls:
        encoded["tool_calls"] = calls
    return encoded


def _calls(content: Iterable[TextBlock | Thinking | ToolUse], provider: str) -> Iterator[Json]:
    extras: str | None = None
    for block in content:
        if isinstance(block, ToolUse):
            function: Json = {
                "name": block.name,
                "arguments": msgspec.json.encode(block.input).decode(),
            }
            call: Json = {"id": _valid_id(block.id), "type": "function", "function": function}
            if extras is not None:
                call["extra_content"] = msgspec.Raw(extras.encode())
            yield call
        extras = (
            unseal_signature(call_extras(provider), block.signature)
            if isinstance(block, Thinking)
            else None
        )


def _reasoning_fields(thoughts: Iterable[Thinking], quirks: Quirks, provider: str) -> Json:
    returned: Json = {}
    own: list[str] = []
    for thought in thoughts:
        if unseal_signature(reasoning(provider), thought.signature) is not None:
            own.append(thought.text)
        if (
            details := unseal_signature(reasoning_details(provider), thought.signature)
        ) is not None:
            returned["reasoning_details"] = msgspec.Raw(details.encode())
    if own and quirks.returns_reasoning:
        returned["reasoning_content"] = "".join(own)
    return returned


def _valid_id(id_: str) -> str:
    return valid_id(id_, pattern=_ID)
