"""Builds the model request from a thread. Pure and byte-stable: the prompt prefix never changes
within a session unless tools are loaded.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from functools import cached_property

import msgspec
from msgspec import Struct

from mainspring.core.model import Effort, Request, ToolSpec
from mainspring.harness.state.thread import Thread
from mainspring.log.blobs import digest_of

_ENCODER = msgspec.json.Encoder(order="deterministic")
_SPECS = msgspec.json.Decoder(ToolSpec)


class PromptPrefix(Struct, frozen=True, kw_only=True, dict=True):
    """The part of a request before the messages, the same for a whole session."""

    model: str
    system: tuple[str, ...]
    """The static part, then the part that may differ between sessions."""
    tools: tuple[ToolSpec, ...]
    effort: Effort = "none"

    @cached_property
    def encoded(self) -> bytes:
        """Stored as a blob, so that every request can be rebuilt from the log alone."""
        return _ENCODER.encode(self)

    @cached_property
    def digest(self) -> str:
        return digest_of(self.encoded)


def redact_prefix(prefix: PromptPrefix, scrub: Callable[[str], str]) -> PromptPrefix:
    """Scrub secrets, so that the hashed, sent and stored bytes are the same."""
    encoded = prefix.encoded.decode()
    clean = scrub(encoded)
    return prefix if clean == encoded else msgspec.json.decode(clean, type=PromptPrefix)


def sorted_specs(tools: Iterable[ToolSpec]) -> tuple[ToolSpec, ...]:
    """Definitions in a fixed order: built-in tools sorted, then MCP tools sorted.

    Adding a server never moves the bytes of earlier definitions.
    """
    ordered = sorted(tools, key=lambda spec: (spec.name.startswith("mcp__"), spec.name))
    return tuple(map(_canonical_spec, ordered))


def extend_prefix(prefix: PromptPrefix, more: Iterable[ToolSpec]) -> PromptPrefix:
    """Append definitions that were loaded later; no earlier byte moves."""
    known_names = {spec.name for spec in prefix.tools}
    new = tuple(_canonical_spec(spec) for spec in more if spec.name not in known_names)
    return msgspec.structs.replace(prefix, tools=prefix.tools + new) if new else prefix


def _canonical_spec(spec: ToolSpec) -> ToolSpec:
    """The tool with the keys of its schema in the order of the log, so that the request can be
    rebuilt byte for byte."""
    return _SPECS.decode(_ENCODER.encode(spec))


def build_request(
    thread: Thread, prefix: PromptPrefix, *, max_tokens: int, request_id: str = ""
) -> Request:
    """The next request. Cache breakpoints: the end of settled history, and the newest turn."""
    messages = tuple(thread.transcript.messages)
    newest = len(messages) - 1
    return Request(
        model=prefix.model,
        system=prefix.system,
        tools=prefix.tools,
        messages=messages,
        max_tokens=max_tokens,
        effort=prefix.effort,
        cache_messages=tuple(index for index in (newest - 2, newest) if index >= 0),
        request_id=request_id,
    )


def cache_break(thread: Thread, prefix: PromptPrefix) -> str | None:
    """Why the next request will not extend the last one; `None` when it will."""
    if thread.model is None:
        return None  # the first one
    if thread.model != prefix.model:
        return "model changed"
    if thread.prefix != prefix.digest:
        return "system or tools changed"
    if thread.compacted:
        return "compaction"
    return None
