"""The provenance of each part of a past request. Part of the X-ray: a pure function of the request
and the log.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Iterator

import msgspec
from msgspec import Struct

from mainspring.core import events
from mainspring.core.content import Block, TextBlock, plain_text
from mainspring.core.envelope import Event
from mainspring.core.model import (
    Assistant,
    Message,
    Request,
    Thinking,
    ToolResultBlock,
    ToolSpec,
    ToolUse,
)
from mainspring.harness.context.transcript import PINNED_NOTE, SNIPPED_NOTE, note_block
from mainspring.harness.context.xray import ModelCall, scaled_tokens
from mainspring.harness.permissions.tool_names import BUILTIN_TOOL_NAMES, INTERNAL_TOOLS
from mainspring.harness.state.thread import workflow_report

_SECTION = re.compile(r"<(instructions|rules|skills|environment)\b([^>]*)>.*?</\1>", re.DOTALL)
_SOURCE = re.compile(r'source="([^"]*)" scope="([^"]*)"')
_REASONS = {
    "rules": "rules of the agent, kept through every compaction",
    "skills": "skills that it can load",
    "environment": "where its tools run",
}


class ContextOrigin(Struct, frozen=True, order=True):
    source: str
    """Who put it there."""
    reason: str


class RequestPart(Struct, frozen=True, kw_only=True):
    """All blocks of a request with the same source."""

    place: str
    """`tools`, `system` or `messages`."""
    source: str
    reason: str
    blocks: int
    tokens: int


class ToolPart(Struct, frozen=True, kw_only=True):
    name: str
    source: str
    tokens: int
    calls: int
    """The number of its calls in the sessions that were counted."""


def request_parts(call: ModelCall, log: Iterable[Event]) -> list[RequestPart]:
    """The largest first within each place. The tokens add up to those of the request."""
    origins = _origins(log)
    sizes: Counter[tuple[str, ContextOrigin]] = Counter()
    blocks: Counter[tuple[str, ContextOrigin]] = Counter()
    for place, origin, size in _blocks(call.request, origins):
        sizes[place, origin] += size
        blocks[place, origin] += 1
    keys = sorted(sizes, key=lambda key: (_PLACES.index(key[0]), -sizes[key], key[1]))
    tokens = scaled_tokens(call, [sizes[key] for key in keys])
    return [
        RequestPart(
            place=place,
            source=origin.source,
            reason=origin.reason,
            blocks=blocks[place, origin],
            tokens=count,
        )
        for (place, origin), count in zip(keys, tokens, strict=True)
    ]


_PLACES = ("tools", "system", "messages")


def tool_parts(call: ModelCall, calls: Counter[str]) -> list[ToolPart]:
    """Each tool of a request, the most expensive first, with its calls in other sessions."""
    specs = call.request.tools
    sizes = [size for _, _, size in _blocks(call.request, {})]
    tokens = scaled_tokens(call, sizes)[: len(specs)]
    parts = [
        ToolPart(
            name=spec.name,
            source=_tool_origin(spec).source,
            tokens=count,
            calls=calls[spec.name],
        )
        for spec, count in zip(specs, tokens, strict=True)
    ]
    return sorted(parts, key=lambda part: (-part.tokens, part.name))


def _blocks(
    request: Request, origins: dict[str, ContextOrigin]
) -> Iterator[tuple[str, ContextOrigin, int]]:
    for spec in request.tools:
        yield "tools", _tool_origin(spec), len(msgspec.json.encode(spec))
    for text in request.system:
        for origin, section in _sections(text):
            yield "system", origin, len(section.encode())
    tools: dict[str, str] = {}
    for message in request.messages:
        for part in message.content:
            if isinstance(part, ToolUse):
                tools[part.id] = part.name
            yield (
                "messages",
                _part_origin(message, part, tools, origins),
                len(msgspec.json.encode(part)),
            )


def _tool_origin(spec: ToolSpec) -> ContextOrigin:
    if spec.name.startswith("mcp__"):
        server = spec.name.removeprefix("mcp__").partition("__")[0]
        return ContextOrigin(f"MCP server {server}", "definitions of its tools")
    if spec.name in BUILTIN_TOOL_NAMES | INTERNAL_TOOLS:
        return ContextOrigin("Mainspring", "definitions of built-in tools")
    return ContextOrigin("agent", "definitions of its own tools")


def _sections(text: str) -> Iterator[tuple[ContextOrigin, str]]:
    """The tagged parts of a system prompt. Files are nested in the agent's instructions."""
    other_text, position = "", 0
    for match in _SECTION.finditer(text):
        other_text += text[position : match.start()]
        position = match.end()
        yield from _tagged(match[1], match[0])
    other_text = (other_text + text[position:]).strip()
    if other_text:
        yield ContextOrigin("Mainspring", "how to work with tools"), other_text


def _tagged(tag: str, text: str) -> Iterator[tuple[ContextOrigin, str]]:
    if tag != "instructions":
        yield ContextOrigin("agent" if tag != "environment" else "Mainspring", _REASONS[tag]), text
        return
    inner = text
    for match in _SOURCE.finditer(text):
        end = text.find("</instructions>", match.end())
        section = text[match.start() : end if end >= 0 else len(text)]
        inner = inner.replace(section, "", 1)
        yield ContextOrigin(match[1], f"instructions, scope {match[2]}"), section
    if inner.strip():
        yield ContextOrigin("agent", "its instructions"), inner


def _part_origin(
    message: Message,
    part: Block | ToolResultBlock | ToolUse | Thinking,
    tools: dict[str, str],
    origins: dict[str, ContextOrigin],
) -> ContextOrigin:
    match part:
        case ToolResultBlock(tool_use_id=call_id):
            return ContextOrigin(f"tool {tools.get(call_id, 'unknown')}", "results")
        case Thinking():
            return ContextOrigin("model", "thinking")
        case ToolUse():
            return ContextOrigin("model", "tool calls")
        case _:
            if isinstance(message, Assistant):
                return ContextOrigin("model", "replies")
            return origins.get(plain_text((part,)), ContextOrigin("user", "messages"))


def _origins(log: Iterable[Event]) -> dict[str, ContextOrigin]:
    """The sources of texts in user turns, by text."""
    origins = {
        PINNED_NOTE.text: ContextOrigin("compaction", "heading of text that it kept word for word"),
        SNIPPED_NOTE: ContextOrigin("compaction", "placeholder for text that it removed"),
    }
    for event in log:
        if isinstance(event.payload, events.WorkflowRunEnded):
            report = plain_text(workflow_report(event.payload))
            origins.setdefault(report, ContextOrigin("a workflow", "reports"))
        for block, origin in _texts(event):
            origins.setdefault(plain_text((block,)), origin)
    return origins


def _texts(event: Event) -> Iterator[tuple[Block, ContextOrigin]]:
    match event.payload:
        case events.UserMessage(content=content):
            sender = event.sender
            source = "user" if sender is None else f"{sender.kind} {sender.id}"
            yield from ((block, ContextOrigin(source, "messages")) for block in content)
        case events.ThreadMessageReceived(content=content):
            yield from ((block, ContextOrigin("another thread", "messages")) for block in content)
        case events.SystemMessage(content=content):
            yield note_block(plain_text(content)), ContextOrigin("operator", "system messages")
        case events.ContextAdded(text=text, source=source):
            yield note_block(text), ContextOrigin(source, "added context")
        case events.ContextStatus(text=text):
            yield note_block(text), ContextOrigin("Mainspring", "status blocks")
        case events.LoopContinued(detail=str(text), reason=reason):
            yield note_block(text), ContextOrigin("Mainspring", f"continued: {reason}")
        case events.ContextCompacted(summary=str(text), layer=layer):
            yield (
                TextBlock(text),
                ContextOrigin("compaction", f"summary of older messages ({layer})"),
            )
        case _:
            return
