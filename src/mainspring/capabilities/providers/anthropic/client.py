"""A model behind the Anthropic Messages API: sends requests and parses responses, streamed or
whole, into deltas and a reply."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import msgspec
from msgspec import Struct, field

from mainspring.capabilities.providers.adapter import WireFormat
from mainspring.capabilities.providers.anthropic.request import REDACTED_THINKING, THINKING, encode
from mainspring.capabilities.providers.content_blocks import seal_signature
from mainspring.capabilities.providers.http_call import bearer_headers
from mainspring.capabilities.providers.provider_errors import stream_failure
from mainspring.capabilities.providers.tool_calls import CallIds, as_input, parse_input
from mainspring.core.content import TextBlock
from mainspring.core.events import Usage
from mainspring.core.model import (
    INVALID_JSON,
    Delta,
    Reply,
    ReplyReason,
    Request,
    TextDelta,
    Thinking,
    ThinkingDelta,
    ToolInputDelta,
    ToolUse,
    ToolUseReady,
)

_REASONS: Mapping[str, ReplyReason] = {
    "max_tokens": "max_tokens",
    "model_context_window_exceeded": "max_tokens",
    "refusal": "refusal",
    "pause_turn": "pause_turn",
}


class _WireUsage(Struct, frozen=True):
    input_tokens: int | None = None
    cache_creation_input_tokens: int | None = None
    cache_read_input_tokens: int | None = None
    output_tokens: int | None = None


class _WireBlock(Struct, frozen=True):
    type: str
    id: str | None = None
    name: str = ""
    input: object = None
    text: str = ""
    thinking: str = ""
    signature: str = ""
    data: str = ""


class _WireDelta(Struct, frozen=True):
    """The deltas of all events in one struct: decoding it dominates the time of a stream."""

    type: str = ""
    text: str = ""
    partial_json: str = ""
    thinking: str = ""
    signature: str = ""
    stop_reason: str | None = None


class _WireMessage(Struct, frozen=True):
    type: str = ""
    model: str = ""
    content: tuple[_WireBlock, ...] = ()
    stop_reason: str | None = None
    usage: _WireUsage | None = None
    error: object = None


class _WireEvent(Struct, frozen=True):
    type: str = ""
    index: int = 0
    delta: _WireDelta | None = None
    content_block: _WireBlock | None = None
    message: _WireMessage | None = None
    usage: _WireUsage | None = None
    error: object = None


_EVENTS = msgspec.json.Decoder(_WireEvent)
_MESSAGES = msgspec.json.Decoder(_WireMessage)


class _OpenBlock(Struct):
    """A block that has not ended."""

    type: str
    id: str = ""
    name: str = ""
    data: str = ""
    pieces: list[str] = field(default_factory=list[str])
    signature: list[str] = field(default_factory=list[str])


class MessageParser:
    """Parses one response. Input of tools is collected in pieces and parsed once, when its block
    ends."""

    def __init__(self, request: Request, provider: str, secret: str = "") -> None:
        self._provider = provider
        self._secret = secret
        self._ids = CallIds(request)
        self._open: dict[int, _OpenBlock] = {}
        self._content: dict[int, TextBlock | Thinking | ToolUse] = {}
        self._pending_uses: dict[int, ToolUse] = {}
        """Calls without input: none needed, or cut off? The stop reason tells."""
        self._usage: dict[str, int] = {}
        self._model = request.model
        self._stop_reason: str | None = None
        self.has_begun = False
        self.is_over = False

    @property
    def is_complete(self) -> bool:
        return self._stop_reason is not None

    def feed(self, data: bytes) -> Sequence[Delta]:
        event = _EVENTS.decode(data)
        if event.delta is not None and event.type == "content_block_delta":
            return self._grow(event.index, event.delta)
        if event.type == "error" or event.error:
            raise stream_failure(self._provider, event.error, secret=self._secret)
        if event.content_block is not None:
            return self._start(event.index, event.content_block)
        match event.type:
            case "content_block_stop":
                return self._stop(event.index)
            case "message_start":
                self._begin(event.message or _WireMessage())
            case "message_delta":
                return self._end(event)
            case "message_stop":
                self.is_over = True
                self._stop_reason = self._stop_reason or "end_turn"
            case _:
                pass  # ping, and future events
        return ()

    def _begin(self, message: _WireMessage) -> None:
        self.has_begun = True
        self._model = message.model or self._model
        self._count(message.usage)

    def _start(self, index: int, block: _WireBlock) -> Sequence[Delta]:
        self.has_begun = True
        open_block = self._open[index] = _OpenBlock(block.type, name=block.name, data=block.data)
        match block.type:
            case "tool_use":
                open_block.id = self._ids.unique(block.id)
                if block.input:  # the whole input at once, without deltas
                    open_block.pieces.append(msgspec.json.encode(block.input).decode())
                return (ToolInputDelta(id=open_block.id, name=block.name, json=""),)
            case "text" if block.text:
                open_block.pieces.append(block.text)
                return (TextDelta(block.text),)
            case "thinking":
                open_block.signature.append(block.signature)
                if block.thinking:
                    open_block.pieces.append(block.thinking)
                    return (ThinkingDelta(block.thinking),)
            case _:
                pass
        return ()

    def _grow(self, index: int, delta: _WireDelta) -> Sequence[Delta]:
        block = self._open.get(index)
        if block is None:
            return ()
        match delta.type:
            case "text_delta":
                block.pieces.append(delta.text)
                return (TextDelta(delta.text),) if delta.text else ()
            case "input_json_delta":
                block.pieces.append(delta.partial_json)
                if not delta.partial_json or block.type != "tool_use":
                    return ()
                return (ToolInputDelta(id=block.id, name=block.name, json=delta.partial_json),)
            case "thinking_delta":
                block.pieces.append(delta.thinking)
                return (ThinkingDelta(delta.thinking),) if delta.thinking else ()
            case "signature_delta":
                block.signature.append(delta.signature)
            case _:
                pass  # citations
        return ()

    def _stop(self, index: int) -> Sequence[Delta]:
        block = self._open.pop(index, None)
        if block is None:
            return ()
        match block.type:
            case "tool_use":
                use = ToolUse(id=block.id, name=block.name, input=parse_input(block.pieces))
                self._content[index] = use
                if not use.input:
                    self._pending_uses[index] = use
                    return ()
                return () if use.invalid_json is not None else (ToolUseReady(use),)
            case "text":
                if text := "".join(block.pieces):
                    self._content[index] = TextBlock(text)
            case "thinking" | "redacted_thinking":
                signature = "".join(block.signature)
                self._content[index] = _thinking_block("".join(block.pieces), signature, block)
            case _:
                pass  # blocks of server tools, which we never use
        return ()

    def _end(self, event: _WireEvent) -> Sequence[Delta]:
        self._count(event.usage)
        if event.delta is None or event.delta.stop_reason is None:
            return ()
        self._stop_reason = event.delta.stop_reason
        deltas = [delta for index in sorted(self._open) for delta in self._stop(index)]
        if self._stop_reason == "max_tokens":
            for index, use in self._pending_uses.items():
                if index == max(self._content):
                    self._content[index] = msgspec.structs.replace(use, input={INVALID_JSON: ""})
        else:
            deltas += [ToolUseReady(use) for use in self._pending_uses.values()]
        self._pending_uses.clear()
        return deltas

    def _count(self, usage: _WireUsage | None) -> None:
        for name, tokens in msgspec.structs.asdict(usage or _WireUsage()).items():
            if tokens is not None:
                self._usage[name] = tokens

    def take(self, body: bytes) -> None:
        message = _MESSAGES.decode(body)
        if message.error or message.type == "error":
            raise stream_failure(self._provider, message.error, secret=self._secret)
        if message.type != "message":
            return
        self._begin(message)
        for index, block in enumerate(message.content):
            match block.type:
                case "tool_use":
                    self._content[index] = ToolUse(
                        id=self._ids.unique(block.id), name=block.name, input=as_input(block.input)
                    )
                case "text" if block.text:
                    self._content[index] = TextBlock(block.text)
                case "thinking" | "redacted_thinking":
                    self._content[index] = _thinking_block(block.thinking, block.signature, block)
                case _:
                    pass
        self._stop_reason = message.stop_reason or "end_turn"
        self.is_over = True

    def reply(self) -> Reply:
        content = tuple(self._content[index] for index in sorted(self._content))
        return Reply(
            content=content,
            usage=msgspec.convert(self._usage, Usage),
            reason=self._reason(content),
            model=self._model,
            usage_is_estimated=not any(self._usage.values()),
        )

    def _reason(self, content: Sequence[TextBlock | Thinking | ToolUse]) -> ReplyReason:
        if reason := _REASONS.get(self._stop_reason or ""):
            return reason
        has_calls = any(isinstance(block, ToolUse) for block in content)
        return "tool_use" if has_calls else "end_turn"


def _thinking_block(text: str, signature: str, block: _OpenBlock | _WireBlock) -> Thinking:
    if block.type == "redacted_thinking":
        return Thinking(text="", signature=seal_signature(REDACTED_THINKING, block.data))
    return Thinking(text=text, signature=seal_signature(THINKING, signature) if signature else None)


def _key_headers(key: str) -> Mapping[str, str]:
    return {**({"x-api-key": key} if key else {}), "anthropic-version": "2023-06-01"}


def _helper_key_headers(key: str) -> Mapping[str, str]:
    return {**_key_headers(key), **bearer_headers(key)}


ANTHROPIC = WireFormat(
    provider="anthropic",
    path="messages",
    encode=lambda request, quirks, _provider: encode(request, quirks),
    parser=MessageParser,
    key_headers=_key_headers,
)
ANTHROPIC_BEARER = msgspec.structs.replace(ANTHROPIC, key_headers=_helper_key_headers)
"""For the key of a helper, which may be either kind."""
