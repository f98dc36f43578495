"""Request options that a model accepts or rejects, as far as its adapter needs them."""

from __future__ import annotations

from typing import Literal, TypeAlias

from msgspec import Struct

from mainspring.core.model import Effort, Request

ThinkingStyle: TypeAlias = Literal["none", "budget", "adaptive"]

_RISING: tuple[Effort, ...] = ("none", "low", "medium", "high", "xhigh", "max")


class Quirks(Struct, frozen=True, kw_only=True):
    """The defaults send only what every server of the protocol supports."""

    efforts: tuple[Effort, ...] = ()
    """Effort levels that the model accepts; empty if it has no such parameter."""
    thinking: ThinkingStyle = "none"
    """Anthropic: how thinking is requested."""
    can_disable_thinking: bool = False
    """Anthropic: thinking is on by default, and can be disabled."""
    thinking_display: Literal["summarized", "omitted"] | None = None
    """Anthropic: how the thinking is displayed; the model's default if not set."""
    max_output: int | None = None
    """The upper limit for the tokens of any request."""
    supports_images: bool = True
    supports_documents: bool = True
    """PDFs; a document that is text is sent as text to any model."""
    supports_cache_control: bool = True
    cache_ttl: Literal["5m", "1h"] = "5m"
    token_limit_field: Literal["max_tokens", "max_completion_tokens"] = "max_tokens"
    """Chat completions: OpenAI's own models need the longer name, most others the shorter."""
    supports_stream_usage: bool = True
    """Chat completions: whether it supports `stream_options.include_usage`."""
    returns_reasoning: bool = False
    """Chat completions: whether `reasoning_content` must be sent back in the next request."""


def output_limit(request: Request, quirks: Quirks) -> int:
    if quirks.max_output is None:
        return request.max_tokens
    return min(request.max_tokens, quirks.max_output)


def supported_effort(effort: Effort, quirks: Quirks) -> Effort | None:
    """The nearest level that the model accepts, lower rather than higher; None: send no level."""
    if effort in quirks.efforts:
        return effort
    real: list[Effort] = [level for level in _RISING[1:] if level in quirks.efforts]
    if effort == "none" or not real:
        return None
    lower: list[Effort] = [level for level in real if _RISING.index(level) < _RISING.index(effort)]
    return lower[-1] if lower else real[0]
