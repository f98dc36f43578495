"""What a model takes and what it rejects, as far as its adapter must know."""

from __future__ import annotations

from typing import Literal, TypeAlias

from msgspec import Struct

from mainspring.core.model import Effort, Request

ThinkingStyle: TypeAlias = Literal["none", "budget", "adaptive"]

_RISING: tuple[Effort, ...] = ("none", "low", "medium", "high", "xhigh", "max")


class Quirks(Struct, frozen=True, kw_only=True):
    """The defaults send only what every server of the protocol understands."""

    efforts: tuple[Effort, ...] = ()
    """Levels the model takes by name; empty if it knows no such parameter."""
    thinking: ThinkingStyle = "none"
    """Anthropic: how thinking is asked for."""
    can_disable_thinking: bool = False
    """Anthropic: thinks unless told not to, and may be told."""
    thinking_display: Literal["summarized", "omitted"] | None = None
    """Anthropic: what is shown of the thoughts; the model's own default if not set."""
    max_output: int | None = None
    """No request asks for more tokens than this."""
    supports_images: bool = True
    supports_documents: bool = True
    """PDFs; a document that is text is sent as text to any model."""
    supports_cache_control: bool = True
    cache_ttl: Literal["5m", "1h"] = "5m"
    token_limit_field: Literal["max_tokens", "max_completion_tokens"] = "max_tokens"
    """Chat completions: OpenAI's own models want the longer name, most others know the shorter."""
    supports_stream_usage: bool = True
    """Chat completions: knows `stream_options.include_usage`."""
    returns_reasoning: bool = False
    """Chat completions: wants its `reasoning_content` back in the next request."""


def output_limit(request: Request, quirks: Quirks) -> int:
    if quirks.max_output is None:
        return request.max_tokens
    return min(request.max_tokens, quirks.max_output)


def supported_effort(wanted: Effort, quirks: Quirks) -> Effort | None:
    """The nearest level that the model takes, rather lower than higher; None: say nothing."""
    if wanted in quirks.efforts:
        return wanted
    real: list[Effort] = [level for level in _RISING[1:] if level in quirks.efforts]
    if wanted == "none" or not real:
        return None
    lower: list[Effort] = [level for level in real if _RISING.index(level) < _RISING.index(wanted)]
    return lower[-1] if lower else real[0]
