"""What a past request is made of: tokens of each part, and what changed since the one before."""

from __future__ import annotations

from dataclasses import dataclass
from difflib import unified_diff

import msgspec

from mainspring.core.content import Block, TextBlock, plain_text
from mainspring.core.events import Usage
from mainspring.core.model import Assistant, Message, Request, Thinking, ToolResult, ToolUse
from mainspring.harness.context.xray import Shot
from mainspring.harness.limits import prompt_tokens

_DIFF_LINES = 40


@dataclass(frozen=True, slots=True, kw_only=True)
class Parts:
    """Tokens. Bytes are known exactly; tokens are their share of what was counted."""

    tools: int
    system_static: int
    system_dynamic: int
    history: int
    """All messages but the newest turn."""
    newest: int
    """What came after the model last spoke."""
    is_measured: bool
    """Scaled to the provider's count; else to our estimate before the call."""

    @property
    def total(self) -> int:
        return self.tools + self.system_static + self.system_dynamic + self.history + self.newest


@dataclass(frozen=True, slots=True, kw_only=True)
class Change:
    """A request against the one before it."""

    cache_break: str | None
    kept_messages: int
    """So many of the earlier request's messages stand unchanged at the beginning."""
    gone: tuple[Message, ...]
    """Messages of the earlier one that are not there any more, or not as they were."""
    added: tuple[Message, ...]
    prefix: tuple[str, ...]
    """Lines of a diff of what stands before the messages, if that has changed."""


def parts(shot: Shot) -> Parts:
    request = shot.request
    newest = _newest(request.messages)
    sizes = [
        sum(len(msgspec.json.encode(tool)) for tool in request.tools),
        len(request.system[0].encode()) if request.system else 0,
        sum(len(part.encode()) for part in request.system[1:]),
        sum(map(_size, request.messages[:newest])),
        sum(map(_size, request.messages[newest:])),
    ]
    counted = prompt_tokens(shot.end.model_usage) if shot.end is not None else 0
    is_measured = counted > 0
    tokens = _shares(sizes, counted or shot.start.estimated_input_tokens or 0)
    return Parts(
        tools=tokens[0],
        system_static=tokens[1],
        system_dynamic=tokens[2],
        history=tokens[3],
        newest=tokens[4],
        is_measured=is_measured,
    )


def cached_share(usage: Usage) -> float | None:
    """Of the prompt's tokens, how many were read from the provider's cache; `None` of nothing."""
    whole = prompt_tokens(usage)
    return usage.cache_read_input_tokens / whole if whole else None


def change(shot: Shot, before: Shot | None) -> Change:
    ours = shot.request.messages
    theirs = before.request.messages if before is not None else ()
    kept = 0
    for one, other in zip(ours, theirs, strict=False):
        if one != other:
            break
        kept += 1
    return Change(
        cache_break=shot.start.cache_break,
        kept_messages=kept,
        gone=theirs[kept:],
        added=ours[kept:],
        prefix=() if before is None else _prefix_diff(before.request, shot.request),
    )


def told(message: Message) -> str:
    """A message as text, part by part."""
    return "\n".join(filter(None, map(_told, message.content)))


def _told(part: Block | ToolResult | ToolUse | Thinking) -> str:
    match part:
        case TextBlock(text=text):
            return text
        case Thinking(text=text):
            return f"[thinking] {text}"
        case ToolUse(name=name, input=given):
            return f"[calls {name}] {msgspec.json.encode(given).decode()}"
        case ToolResult(content=content, is_error=is_error):
            return f"[{'failed' if is_error else 'result'}] {plain_text(content)}"
        case _:
            return plain_text((part,)) or f"[{type(part).__name__}]"


def _newest(messages: tuple[Message, ...]) -> int:
    """Index of the first message after the model's last."""
    for index in range(len(messages) - 1, -1, -1):
        if isinstance(messages[index], Assistant):
            return index + 1
    return 0


def _size(message: Message) -> int:
    return len(msgspec.json.encode(message))


def _shares(sizes: list[int], tokens: int) -> list[int]:
    """Whole tokens that add up exactly: what rounding leaves over goes to the largest."""
    whole = sum(sizes)
    if not whole:
        return [0 for _ in sizes]
    shares = [tokens * size // whole for size in sizes]
    shares[sizes.index(max(sizes))] += tokens - sum(shares)
    return shares


def _prefix_diff(before: Request, now: Request) -> tuple[str, ...]:
    lines = unified_diff(
        _prefix_lines(before), _prefix_lines(now), "before", "now", lineterm="", n=1
    )
    return tuple(lines)[:_DIFF_LINES]


def request_lines(request: Request) -> list[str]:
    """A request as lines to compare, call ids left out."""
    lines = [*_prefix_lines(request), f"max_tokens {request.max_tokens}"]
    for message in request.messages:
        role = "assistant" if isinstance(message, Assistant) else "user"
        lines += [f"{role}: {line}" for line in told(message).splitlines()]
    return lines


def _prefix_lines(request: Request) -> list[str]:
    lines = [f"model {request.model}", f"effort {request.effort}"]
    lines += [f"tool {msgspec.json.encode(tool).decode()}" for tool in request.tools]
    for part in request.system:
        lines += part.splitlines()
    return lines
