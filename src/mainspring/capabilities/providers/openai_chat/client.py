"""A model behind OpenAI's chat completions API or a compatible server: sends requests and parses
responses, streamed or whole."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import groupby

import msgspec
from msgspec import UNSET, Struct, field

from mainspring.capabilities.providers.adapter import WireFormat
from mainspring.capabilities.providers.content_blocks import seal_signature
from mainspring.capabilities.providers.http_call import bearer_headers
from mainspring.capabilities.providers.openai_chat.request import (
    call_extras,
    encode,
    reasoning,
    reasoning_details,
)
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

DONE = b"[DONE]"

_REASONS: Mapping[str, ReplyReason] = {
    "length": "max_tokens",
    "content_filter": "refusal",
    "refusal": "refusal",
}


class _Function(Struct, frozen=True):
    name: str | None = None
    arguments: object = None
    """A string of JSON; some servers send the object itself."""


class _Call(Struct, frozen=True):
    index: int | None = None
    id: str | None = None
    function: _Function | None = None
    extra_content: object = None


class _Message(Struct, frozen=True):
    content: str | None = None
    reasoning_content: str | None = None
    reasoning: str | None = None
    reasoning_details: list[dict[str, object]] | None = None
    refusal: str | None = None
    tool_calls: tuple[_Call, ...] | None = None


class _Choice(Struct, frozen=True):
    delta: _Message | None = None
    message: _Message | None = None
    finish_reason: str | None = None


class _PromptDetails(Struct, frozen=True):
    cached_tokens: int | None = None
    cache_write_tokens: int | None = None


class _CompletionDetails(Struct, frozen=True):
    reasoning_tokens: int | None = None


class _WireUsage(Struct, frozen=True):
    prompt_tokens: int | None = None
    completion_tokens: int | None = None
    total_tokens: int | None = None
    prompt_tokens_details: _PromptDetails | None = None
    completion_tokens_details: _CompletionDetails | None = None
    prompt_cache_hit_tokens: int | None = None
    """DeepSeek's name for tokens read from its cache."""


class _Chunk(Struct, frozen=True):
    model: str | None = None
    choices: tuple[_Choice, ...] | None = None
    usage: _WireUsage | None = None
    error: object = None


_CHUNKS = msgspec.json.Decoder(_Chunk)


class _OpenCall(Struct):
    id: str
    name: str
    provider_id: str | None
    pieces: list[str] = field(default_factory=list[str])
    extras: object = None


class ChatParser:
    """Parses one response. Calls end with the reply: until then any of them may still grow."""

    def __init__(self, request: Request, provider: str, secret: str = "") -> None:
        self._provider = provider
        self._secret = secret
        self._ids = CallIds(request)
        self._model = request.model
        self._text: list[str] = []
        self._thoughts: list[str] = []
        self._details: list[dict[str, object]] = []
        self._calls: list[_OpenCall] = []
        self._at_index: dict[int, _OpenCall] = {}
        self._uses: tuple[ToolUse, ...] | None = None
        self._usage: _WireUsage | None = None
        self._finish_reason = ""
        self._is_refused = False
        self.has_begun = False
        self.is_complete = False
        self.is_over = False

    def feed(self, data: bytes) -> Sequence[Delta]:
        if data.strip() == DONE:
            self.is_over = True
            return self._finish(self._finish_reason) if self.has_begun else ()
        chunk = _CHUNKS.decode(data)
        if chunk.error:
            raise stream_failure(self._provider, chunk.error, secret=self._secret)
        self._model = chunk.model or self._model
        self._usage = chunk.usage or self._usage
        self.has_begun = self.has_begun or bool(chunk.choices)
        if not chunk.choices:
            return ()
        choice = chunk.choices[0]
        message = choice.delta or choice.message
        deltas = [] if message is None else self._hear(message)
        if choice.finish_reason:
            deltas += self._finish(choice.finish_reason)
        return deltas

    def take(self, body: bytes) -> None:
        self.feed(body)
        self.is_over = True
        if self.has_begun:
            self._finish(self._finish_reason)

    def _hear(self, message: _Message) -> list[Delta]:
        deltas: list[Delta] = []
        if thought := message.reasoning_content or message.reasoning:
            self._thoughts.append(thought)
            deltas.append(ThinkingDelta(thought))
        if message.reasoning_details:
            self._details += message.reasoning_details
        if text := message.content or message.refusal:
            self._text.append(text)
            deltas.append(TextDelta(text))
        self._is_refused = self._is_refused or bool(message.refusal)
        for call in message.tool_calls or ():
            deltas += self._call(call)
        return deltas

    def _call(self, call: _Call) -> list[Delta]:
        function = call.function or _Function()
        index = len(self._calls) if call.index is None else call.index
        open_call = self._at_index.get(index)
        deltas: list[Delta] = []
        if open_call is None or _is_new_call(open_call, call, function):
            name = function.name or ""
            open_call = _OpenCall(self._ids.unique(call.id), name, call.id)
            self._calls.append(open_call)
            self._at_index[index] = open_call
            deltas.append(ToolInputDelta(id=open_call.id, name=name, json=""))
        open_call.extras = call.extra_content or open_call.extras
        if piece := _json(function.arguments):
            open_call.pieces.append(piece)
            deltas.append(ToolInputDelta(id=open_call.id, name=open_call.name, json=piece))
        return deltas

    def _finish(self, reason: str) -> list[Delta]:
        self._finish_reason = reason
        self.is_complete = True
        if self._uses is not None:
            return []
        self._uses = tuple(
            ToolUse(id=call.id, name=call.name, input=parse_input(call.pieces))
            for call in self._calls
        )
        if self._uses and not self._uses[-1].input and reason == "length":
            cut_off = msgspec.structs.replace(self._uses[-1], input={INVALID_JSON: ""})
            self._uses = (*self._uses[:-1], cut_off)
        return [ToolUseReady(use) for use in self._uses if use.invalid_json is None]

    def reply(self) -> Reply:
        usage = None if self._usage is None else _parse_usage(self._usage)
        return Reply(
            content=self._content(),
            usage=usage or Usage(),
            reason=self._reason(),
            model=self._model,
            usage_is_estimated=usage is None,
        )

    def _content(self) -> tuple[TextBlock | Thinking | ToolUse, ...]:
        content: list[TextBlock | Thinking | ToolUse] = []
        if self._thoughts or self._details:
            content.append(Thinking(text="".join(self._thoughts), signature=self._signature()))
        if text := "".join(self._text):
            content.append(TextBlock(text))
        for call, use in zip(self._calls, self._uses or (), strict=True):
            if call.extras is not None:
                sealed = seal_signature(call_extras(self._provider), _json(call.extras))
                content.append(Thinking(text="", signature=sealed))
            content.append(use)
        return tuple(content)

    def _signature(self) -> str:
        if self._details:
            details = msgspec.json.encode(_merge_details(self._details)).decode()
            return seal_signature(reasoning_details(self._provider), details)
        return seal_signature(reasoning(self._provider), "")

    def _reason(self) -> ReplyReason:
        if reason := _REASONS.get(self._finish_reason):
            return reason
        if self._is_refused:
            return "refusal"
        return "tool_use" if self._calls else "end_turn"


def _is_new_call(open_call: _OpenCall, call: _Call, function: _Function) -> bool:
    """Whether a server has begun a new call under an index that it had already used."""
    if not function.name:
        return False
    if call.id:
        return call.id != open_call.provider_id
    return bool(open_call.pieces)


def _merge_details(fragments: Sequence[dict[str, object]]) -> list[dict[str, object]]:
    """Join consecutive fragments of the same block."""
    whole: list[dict[str, object]] = []
    for _, run in groupby(fragments, key=lambda part: (part.get("type"), part.get("index"))):
        parts = list(run)
        merged = {key: value for part in parts for key, value in part.items() if value is not None}
        for key in ("text", "summary", "data"):
            if key in merged:
                merged[key] = "".join(str(part.get(key) or "") for part in parts)
        whole.append(merged)
    return whole


def _json(value: object) -> str:
    """The value as JSON; a string is already JSON."""
    if isinstance(value, str):
        return value
    return "" if value is None else msgspec.json.encode(value).decode()


def _parse_usage(usage: _WireUsage) -> Usage | None:
    prompt = usage.prompt_tokens or 0
    details = usage.prompt_tokens_details or _PromptDetails()
    cache_read = min(prompt, details.cached_tokens or usage.prompt_cache_hit_tokens or 0)
    cache_written = min(prompt - cache_read, details.cache_write_tokens or 0)
    # Some servers leave reasoning out of `completion_tokens`; the total includes it.
    output = max(usage.completion_tokens or 0, (usage.total_tokens or 0) - prompt)
    if not prompt and not output:
        return None
    return Usage(
        input_tokens=prompt - cache_read - cache_written,
        cache_creation_input_tokens=cache_written,
        cache_read_input_tokens=cache_read,
        output_tokens=output,
        thinking_tokens=(usage.completion_tokens_details or _CompletionDetails()).reasoning_tokens
        or UNSET,
    )


CHAT = WireFormat(
    provider="openai",
    path="chat/completions",
    encode=encode,
    parser=ChatParser,
    key_headers=bearer_headers,
)
"""OpenAI, Gemini's compatible endpoint, Ollama, vLLM, llama.cpp, LM Studio, OpenRouter..."""
