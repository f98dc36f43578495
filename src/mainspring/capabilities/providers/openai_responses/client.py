"""A model behind the OpenAI Responses API: sends requests and parses responses, streamed or
whole."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

import msgspec
from msgspec import UNSET, Struct

from mainspring.capabilities.providers.adapter import WireFormat
from mainspring.capabilities.providers.content_blocks import seal_signature
from mainspring.capabilities.providers.http_call import bearer_headers
from mainspring.capabilities.providers.openai_responses.request import MAKER, Reasoning, encode
from mainspring.capabilities.providers.provider_errors import stream_failure
from mainspring.capabilities.providers.tool_calls import CallIds, parse_input
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
    "max_output_tokens": "max_tokens",
    "content_filter": "refusal",
}


class _Part(Struct, frozen=True):
    type: str = ""
    text: str = ""
    refusal: str = ""


class _Item(Struct, frozen=True):
    type: str = ""
    id: str = ""
    call_id: str | None = None
    name: str = ""
    arguments: str = ""
    content: tuple[_Part, ...] | None = None
    summary: tuple[_Part, ...] | None = None
    encrypted_content: str | None = None


class _InputDetails(Struct, frozen=True):
    cached_tokens: int = 0


class _OutputDetails(Struct, frozen=True):
    reasoning_tokens: int | None = None


class _WireUsage(Struct, frozen=True):
    input_tokens: int = 0
    output_tokens: int = 0
    output_tokens_details: _OutputDetails | None = None
    input_tokens_details: _InputDetails | None = None


class _Incomplete(Struct, frozen=True):
    reason: str | None = None


class _Response(Struct, frozen=True):
    status: str | None = None
    model: str = ""
    output: tuple[_Item, ...] = ()
    usage: _WireUsage | None = None
    incomplete_details: _Incomplete | None = None
    error: object = None


class _Event(Struct, frozen=True):
    type: str = ""
    output_index: int = 0
    delta: object = None
    item: _Item | None = None
    response: _Response | None = None
    error: object = None
    code: object = None
    message: object = None


_EVENTS = msgspec.json.Decoder(_Event)
_RESPONSES = msgspec.json.Decoder(_Response)


class ResponseParser:
    """Parses one response. An item is complete at its end; until then its pieces are only passed
    on."""

    def __init__(self, request: Request, provider: str, secret: str = "") -> None:
        self._model = request.model
        self._provider = provider
        self._secret = secret
        self._ids = CallIds(request)
        self._calls: dict[int, tuple[str, str]] = {}
        """Id and name of each call that has begun."""
        self._content: dict[int, list[TextBlock | Thinking | ToolUse]] = {}
        self._response: _Response | None = None
        self._is_refused = False
        self.has_begun = False
        self.is_over = False

    @property
    def is_complete(self) -> bool:
        return self._response is not None

    def feed(self, data: bytes) -> Sequence[Delta]:
        if data.strip() == b"[DONE]":
            return ()
        event = _EVENTS.decode(data)
        self.has_begun = True
        match event.type:
            case "response.output_text.delta" | "response.refusal.delta":
                return _deltas(TextDelta, event.delta)
            case "response.reasoning_summary_text.delta" | "response.reasoning_text.delta":
                return _deltas(ThinkingDelta, event.delta)
            case "response.function_call_arguments.delta":
                if not isinstance(event.delta, str) or event.output_index not in self._calls:
                    return ()
                id_, name = self._calls[event.output_index]
                return (ToolInputDelta(id=id_, name=name, json=event.delta),)
            case "response.output_item.added" if event.item is not None:
                return self._start(event.output_index, event.item)
            case "response.output_item.done" if event.item is not None:
                return self._stop(event.output_index, event.item)
            case _:
                self._conclude(event)
                return ()

    def _conclude(self, event: _Event) -> None:
        match event.type:
            case "response.completed" | "response.incomplete" | "response.done":
                self._end(event.response or _Response())
            case "response.failed":
                raise stream_failure(
                    self._provider, (event.response or _Response()).error, secret=self._secret
                )
            case "error":
                reported = {"code": event.code, "message": event.message}
                raise stream_failure(self._provider, event.error or reported, secret=self._secret)
            case _:
                pass  # begin and end of parts, and future events

    def _start(self, index: int, item: _Item) -> Sequence[Delta]:
        if item.type != "function_call":
            return ()
        id_ = self._ids.unique(item.call_id or item.id)
        self._calls[index] = (id_, item.name)
        return (ToolInputDelta(id=id_, name=item.name, json=""),)

    def _stop(self, index: int, item: _Item) -> Sequence[Delta]:
        if item.type == "function_call" and index not in self._calls:
            self._start(index, item)
        self._content[index] = list(self._blocks(index, item))
        return [
            ToolUseReady(block)
            for block in self._content[index]
            if isinstance(block, ToolUse) and block.input and block.invalid_json is None
        ]

    def _blocks(self, index: int, item: _Item) -> Iterator[TextBlock | Thinking | ToolUse]:
        match item.type:
            case "message":
                parts = item.content or ()
                self._is_refused = self._is_refused or any(part.refusal for part in parts)
                if text := "".join(part.text or part.refusal for part in parts):
                    yield TextBlock(text)
            case "function_call":
                id_, name = self._calls[index]
                yield ToolUse(id=id_, name=name, input=parse_input([item.arguments]))
            case "reasoning":
                yield _thought(item)
            case _:
                pass  # items of hosted tools, which we never use

    def _end(self, response: _Response) -> None:
        self.is_over = True
        if response.error:
            raise stream_failure(self._provider, response.error, secret=self._secret)
        for index, item in enumerate(response.output):
            if index not in self._content:
                self._stop(index, item)
        self._response = response

    def take(self, body: bytes) -> None:
        response = _RESPONSES.decode(body)
        self.has_begun = bool(response.output or response.status)
        if self.has_begun or response.error:
            self._end(response)

    def reply(self) -> Reply:
        response = self._response or _Response()
        content = tuple(block for index in sorted(self._content) for block in self._content[index])
        reason = self._reason(response, content)
        if reason == "max_tokens":
            content = _without_unwritten_call(content)
        usage = _parse_usage(response.usage or _WireUsage())
        return Reply(
            content=content,
            usage=usage or Usage(),
            reason=reason,
            model=response.model or self._model,
            usage_is_estimated=usage is None,
        )

    def _reason(
        self, response: _Response, content: Sequence[TextBlock | Thinking | ToolUse]
    ) -> ReplyReason:
        why = (response.incomplete_details or _Incomplete()).reason
        if why is not None:
            return _REASONS.get(why, "max_tokens")
        if self._is_refused:
            return "refusal"
        has_calls = any(isinstance(block, ToolUse) for block in content)
        return "tool_use" if has_calls else "end_turn"


def _deltas(kind: type[TextDelta | ThinkingDelta], delta: object) -> Sequence[Delta]:
    return (kind(delta),) if isinstance(delta, str) and delta else ()


def _thought(item: _Item) -> Thinking:
    parts = item.summary or item.content or ()
    signature = None
    if item.encrypted_content:
        own = Reasoning(id=item.id, encrypted_content=item.encrypted_content)
        signature = seal_signature(MAKER, msgspec.json.encode(own).decode())
    return Thinking(text="\n\n".join(part.text for part in parts), signature=signature)


def _without_unwritten_call(
    content: tuple[TextBlock | Thinking | ToolUse, ...],
) -> tuple[TextBlock | Thinking | ToolUse, ...]:
    """Mark a last call without input as invalid: it was cut off before its input began."""
    if not content or not isinstance(last := content[-1], ToolUse) or last.input:
        return content
    return (*content[:-1], msgspec.structs.replace(last, input={INVALID_JSON: ""}))


def _parse_usage(usage: _WireUsage) -> Usage | None:
    if not usage.input_tokens and not usage.output_tokens:
        return None
    details = usage.input_tokens_details or _InputDetails()
    cache_read = min(usage.input_tokens, details.cached_tokens)
    output = usage.output_tokens_details or _OutputDetails()
    return Usage(
        input_tokens=usage.input_tokens - cache_read,
        cache_read_input_tokens=cache_read,
        output_tokens=usage.output_tokens,
        thinking_tokens=output.reasoning_tokens or UNSET,
    )


RESPONSES = WireFormat(
    provider="openai",
    path="responses",
    encode=lambda request, quirks, _provider: encode(request, quirks),
    parser=ResponseParser,
    key_headers=bearer_headers,
)
