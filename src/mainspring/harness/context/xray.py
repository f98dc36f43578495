"""X-ray: past model requests rebuilt from the log byte for byte, their token breakdown, and the
difference to the request before.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from difflib import unified_diff

import msgspec
from msgspec import Struct

from mainspring.core import events
from mainspring.core.content import Block, TextBlock, plain_text
from mainspring.core.envelope import Event
from mainspring.core.errors import InvalidInput
from mainspring.core.model import (
    Assistant,
    Message,
    Reply,
    ReplyReason,
    Request,
    Thinking,
    ToolResultBlock,
    ToolUse,
)
from mainspring.harness.context.request_builder import PromptPrefix, build_request
from mainspring.harness.limits import prompt_tokens
from mainspring.harness.state.thread import Thread
from mainspring.harness.state.thread_tree import ThreadTree

_REASONS: dict[str | None, ReplyReason] = {
    "tool_use": "tool_use",
    "max_tokens": "max_tokens",
    "refusal": "refusal",
    "pause_turn": "pause_turn",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelCall:
    """One call of the model: the request and the reply."""

    number: int
    """From 1, in the order of the thread."""
    started: Event
    start: events.ModelRequestStarted
    request: Request
    reply: Reply | None
    """`None` if there was none, or it was discarded."""
    end: events.ModelRequestEnded | None


def prefix_digests(log: Iterable[Event]) -> set[str]:
    """Blobs that are needed to rebuild the requests of a log."""
    return {
        event.payload.prefix
        for event in log
        if isinstance(event.payload, events.ModelRequestStarted) and event.payload.prefix
    }


def decode_prefix(content: bytes) -> PromptPrefix:
    try:
        return msgspec.json.decode(content, type=PromptPrefix)
    except (msgspec.DecodeError, RecursionError) as error:
        raise InvalidInput(f"this is not a prompt prefix: {error}") from error


def model_calls(
    log: Iterable[Event], *, thread_id: str, prefixes: Mapping[str, PromptPrefix]
) -> list[ModelCall]:
    """The calls of all turns in order, without side requests."""
    fold = ModelCallFold(thread_id)
    for event in log:
        fold.apply(event, prefixes)
    return fold.calls


class ModelCallFold:
    """The model calls of a thread with the numbers `first` to `last`, folded event by event. All
    threads are folded, since a fork starts with the state of its parent."""

    def __init__(self, thread_id: str, *, first: int = 1, last: int | None = None) -> None:
        self.count = 0
        """Calls so far, including those that are not kept."""
        self.calls: list[ModelCall] = []
        self._thread_id = thread_id
        self._first, self._last = first, last
        self._thread_tree: ThreadTree | None = None
        self._parts: list[TextBlock | Thinking | ToolUse] = []

    @property
    def is_complete(self) -> bool:
        """Whether later events change nothing: a call after the last one has begun."""
        return self._last is not None and self.count > self._last

    def apply(self, event: Event, prefixes: Mapping[str, PromptPrefix]) -> None:
        # the first event always belongs to the main thread
        self._thread_tree = self._thread_tree or ThreadTree(event.thread_id)
        self._thread_tree.apply(event)
        if event.thread_id != self._thread_id or self._thread_id not in self._thread_tree.nodes:
            return
        thread = self._thread_tree.nodes[self._thread_id].thread
        match event.payload:
            case events.ModelRequestStarted(purpose=None, prefix=str(digest)) as start:
                self.count += 1
                self._parts = []
                if self.count >= self._first and not self.is_complete:
                    self._begin(event, start, thread, prefixes[digest])
            case events.ModelRequestEnded(purpose=None) as end if self._open_call is not None:
                self.calls[-1] = _with_reply(self.calls[-1], end, self._parts)
            case _:
                self._parts += _reply_parts(event)

    @property
    def _open_call(self) -> ModelCall | None:
        last = self.calls[-1] if self.calls else None
        return last if last and last.end is None and last.number == self.count else None

    def _begin(
        self,
        event: Event,
        start: events.ModelRequestStarted,
        thread: Thread,
        prefix: PromptPrefix,
    ) -> None:
        request = build_request(
            thread,
            prefix,
            max_tokens=start.max_tokens or 0,
            request_id=start.request_id or "",
        )
        self.calls.append(
            ModelCall(
                number=self.count,
                started=event,
                start=start,
                request=request,
                reply=None,
                end=None,
            )
        )


def _with_reply(
    call: ModelCall, end: events.ModelRequestEnded, parts: list[TextBlock | Thinking | ToolUse]
) -> ModelCall:
    reply = None
    if not end.is_error:
        reply = Reply(
            content=tuple(parts),
            usage=end.model_usage,
            reason=_REASONS.get(end.stop_reason, "end_turn"),
            model=end.model or call.request.model,
        )
    return replace(call, reply=reply, end=end)


def _reply_parts(event: Event) -> list[TextBlock | Thinking | ToolUse]:
    match event.payload:
        case events.AgentMessage(content=content):
            return [block for block in content if isinstance(block, TextBlock)]
        case events.AgentThinking(text=text, signature=signature):
            return [Thinking(text=text, signature=signature)]
        case (
            events.AgentToolUse(name=name, input=args)
            | events.AgentMcpToolUse(name=name, input=args)
            | events.AgentCustomToolUse(name=name, input=args)
        ):
            return [ToolUse(id=event.id, name=name, input=args)]
        case _:
            return []


def canonical_request(request: Request) -> bytes:
    """The request with numbered call ids, equal for equal conversations."""
    encoded = msgspec.json.encode(
        msgspec.structs.replace(request, request_id="", stream=True, cache_messages=())
    )
    names: list[str] = []
    for message in request.messages:
        for part in message.content:
            if isinstance(part, ToolUse) and part.id not in names:
                names.append(part.id)
    for number, name in enumerate(names):
        encoded = encoded.replace(name.encode(), b"call_%d" % number)
    return encoded


_DIFF_LINES = 40  # between two requests


class TokenBreakdown(Struct, frozen=True, kw_only=True):
    """Tokens of each part: its share in bytes of the counted tokens."""

    tools: int
    system_static: int
    system_dynamic: int
    history: int
    """All messages but the newest turn."""
    newest: int
    """Everything after the last message of the model."""
    is_measured: bool
    """Scaled to the provider's count, or to our estimate if there is none."""

    @property
    def total(self) -> int:
        return self.tools + self.system_static + self.system_dynamic + self.history + self.newest


class RequestDiff(Struct, frozen=True, kw_only=True):
    """The difference between a request and the one before it."""

    cache_break: str | None
    kept_messages: int
    """How many messages at the beginning are unchanged."""
    gone: tuple[Message, ...]
    """Messages of the earlier request that were removed or changed."""
    added: tuple[Message, ...]
    prefix: tuple[str, ...]
    """A diff of the part before the messages, if it has changed."""


def token_breakdown(call: ModelCall) -> TokenBreakdown:
    request = call.request
    newest = _first_new_message(request.messages)
    sizes = [
        sum(len(msgspec.json.encode(tool)) for tool in request.tools),
        len(request.system[0].encode()) if request.system else 0,
        sum(len(part.encode()) for part in request.system[1:]),
        sum(map(_size, request.messages[:newest])),
        sum(map(_size, request.messages[newest:])),
    ]
    tokens = scaled_tokens(call, sizes)
    return TokenBreakdown(
        tools=tokens[0],
        system_static=tokens[1],
        system_dynamic=tokens[2],
        history=tokens[3],
        newest=tokens[4],
        is_measured=_counted_tokens(call) > 0,
    )


def scaled_tokens(call: ModelCall, sizes: list[int]) -> list[int]:
    """The tokens of the parts of a request: shares of the counted tokens, by size in bytes."""
    return _shares(sizes, _counted_tokens(call) or call.start.estimated_input_tokens or 0)


def _counted_tokens(call: ModelCall) -> int:
    return prompt_tokens(call.end.model_usage) if call.end is not None else 0


def cached_share(usage: events.Usage) -> float | None:
    """The share of the prompt that came from the provider's cache; `None` without a prompt."""
    total = prompt_tokens(usage)
    return usage.cache_read_input_tokens / total if total else None


def request_diff(call: ModelCall, before: ModelCall | None) -> RequestDiff:
    messages = call.request.messages
    earlier_messages = before.request.messages if before is not None else ()
    kept_count = 0
    for message, other in zip(messages, earlier_messages, strict=False):
        if message != other:
            break
        kept_count += 1
    return RequestDiff(
        cache_break=call.start.cache_break,
        kept_messages=kept_count,
        gone=earlier_messages[kept_count:],
        added=messages[kept_count:],
        prefix=() if before is None else _prefix_diff(before.request, call.request),
    )


def render_message(message: Message) -> str:
    """A message as text, part by part."""
    return "\n".join(filter(None, map(_render_part, message.content)))


def _render_part(part: Block | ToolResultBlock | ToolUse | Thinking) -> str:
    match part:
        case TextBlock(text=text):
            return text
        case Thinking(text=text):
            return f"[thinking] {text}"
        case ToolUse(name=name, input=args):
            return f"[calls {name}] {msgspec.json.encode(args).decode()}"
        case ToolResultBlock(content=content, is_error=is_error):
            return f"[{'failed' if is_error else 'result'}] {plain_text(content)}"
        case _:
            return plain_text((part,)) or f"[{type(part).__name__}]"


def _first_new_message(messages: tuple[Message, ...]) -> int:
    """Index of the first message after the model's last."""
    for index in range(len(messages) - 1, -1, -1):
        if isinstance(messages[index], Assistant):
            return index + 1
    return 0


def _size(message: Message) -> int:
    return len(msgspec.json.encode(message))


def _shares(sizes: list[int], tokens: int) -> list[int]:
    """Whole tokens with an exact sum: rounding remainders go to the largest parts."""
    total = sum(sizes)
    if not total:
        return [0 for _ in sizes]
    shares = [tokens * size // total for size in sizes]
    shares[sizes.index(max(sizes))] += tokens - sum(shares)
    return shares


def _prefix_diff(before: Request, now: Request) -> tuple[str, ...]:
    lines = unified_diff(
        _prefix_lines(before), _prefix_lines(now), "before", "now", lineterm="", n=1
    )
    return tuple(lines)[:_DIFF_LINES]


def request_lines(request: Request) -> list[str]:
    """A request as lines to compare, without call ids."""
    lines = [*_prefix_lines(request), f"max_tokens {request.max_tokens}"]
    for message in request.messages:
        role = "assistant" if isinstance(message, Assistant) else "user"
        lines += [f"{role}: {line}" for line in render_message(message).splitlines()]
    return lines


def _prefix_lines(request: Request) -> list[str]:
    lines = [f"model {request.model}", f"effort {request.effort}"]
    lines += [f"tool {msgspec.json.encode(tool).decode()}" for tool in request.tools]
    for part in request.system:
        lines += part.splitlines()
    return lines
