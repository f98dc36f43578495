"""Detects wasted tokens: repeated calls, huge results, cache misses, and what fills the context."""

from __future__ import annotations

import hashlib
from collections import Counter
from dataclasses import dataclass, field
from datetime import datetime, timedelta

import msgspec

from mainspring.core.content import Block, plain_text
from mainspring.core.envelope import Event
from mainspring.core.events import ContextCompacted, ModelRequestEnded, ModelRequestStarted, Usage
from mainspring.harness.context.messages import blocks_bytes
from mainspring.harness.limits import prompt_tokens
from mainspring.runtime.insights.insight import (
    BYTES_PER_TOKEN,
    Insight,
    InsightGroups,
    ObservedCall,
)

_HUGE_TOKENS = 5_000  # of one result
_MIN_PROMPT = 5_000
"""For shorter prompts, a cache miss costs almost nothing."""
_MISSED_SHARE = 0.1  # of a prompt; if less comes from the cache, it is a miss
_CACHE_LIFETIME = timedelta(minutes=5)
"""How long providers keep a cache entry by default."""
_MIN_REPEATS = 2  # of a call with the same result
_MIN_SENT = 50_000
"""With fewer tokens sent, the shares mean nothing."""
_MIN_SHARE = 0.05  # of all tokens, below which nothing is worth a finding
_encode = msgspec.json.Encoder(order="sorted").encode


@dataclass(slots=True)
class _ThreadCosts:
    """A thread of the current session."""

    context_tokens: Counter[str] = field(default_factory=Counter[str])
    """The tokens in its context, by kind."""
    requests: int = 0
    has_cache: bool = False
    last: datetime | None = None
    model: str | None = None
    cache_break: str | None = None
    is_compacted: bool = False
    """Whether the thread was compacted since its last request."""


@dataclass(slots=True)
class WasteDetector:
    repeats: InsightGroups = field(default_factory=InsightGroups)
    huge: InsightGroups = field(default_factory=InsightGroups)
    misses: InsightGroups = field(default_factory=InsightGroups)
    filling: InsightGroups = field(default_factory=InsightGroups)
    sent: int = 0
    """The tokens in the conversations of all requests."""
    _threads: dict[str, _ThreadCosts] = field(default_factory=dict[str, _ThreadCosts])
    _results: dict[bytes, bytes] = field(default_factory=dict[bytes, bytes])
    """The hashes of this session's results, by the hashes of their calls."""

    def end_session(self) -> None:
        self._threads, self._results = {}, {}

    def result(self, call: ObservedCall, event: Event, content: tuple[Block, ...]) -> None:
        tokens = blocks_bytes(content) // BYTES_PER_TOKEN
        self.text(event, f"results of {call.tool}", tokens)
        if tokens >= _HUGE_TOKENS:
            self.huge.group(call.subject).add(event.session_id, event.seq, tokens=tokens)
        call_hash = hashlib.sha256(_encode((event.thread_id, call.tool, call.input))).digest()
        result_hash = hashlib.sha256(plain_text(content).encode("utf-8", "replace")).digest()
        if self._results.get(call_hash) == result_hash:
            self.repeats.group(call.subject).add(event.session_id, event.seq, tokens=tokens)
        self._results[call_hash] = result_hash

    def text(self, event: Event, kind: str, tokens: int) -> None:
        self._thread(event).context_tokens[kind] += tokens

    def compacted(self, event: Event, payload: ContextCompacted) -> None:
        if payload.first_seq is not None and payload.layer != "media":
            thread = self._thread(event)
            thread.context_tokens.clear()
            thread.is_compacted = True

    def request(self, event: Event, payload: ModelRequestStarted) -> None:
        if payload.purpose is not None:
            return
        thread = self._thread(event)
        thread.requests += 1
        thread.cache_break = payload.cache_break or ("compaction" * thread.is_compacted)
        thread.is_compacted = False
        for kind, tokens in thread.context_tokens.items():
            self.sent += tokens
            self.filling.group(kind).add(event.session_id, event.seq, tokens=tokens)

    def reply(self, event: Event, payload: ModelRequestEnded) -> None:
        if payload.purpose is not None or payload.is_error:
            return
        thread, usage = self._thread(event), payload.model_usage
        if thread.has_cache and thread.requests > 1 and _is_miss(usage):
            uncached = prompt_tokens(usage) - usage.cache_read_input_tokens
            has_changed = payload.model is not None and thread.model not in (None, payload.model)
            changed = "model changed" if has_changed else None
            reason = thread.cache_break or changed or _pause(thread.last, event.time)
            self.misses.group(reason).add(event.session_id, event.seq, tokens=uncached)
        thread.has_cache |= bool(usage.cache_read_input_tokens or usage.cache_creation_input_tokens)
        thread.last, thread.model = event.time, payload.model or thread.model

    def _thread(self, event: Event) -> _ThreadCosts:
        return self._threads.setdefault(event.thread_id, _ThreadCosts())

    def insights(self) -> list[Insight]:
        return [*self._repeats(), *self._huge(), *self._misses(), *self._filling()]

    def _repeats(self) -> list[Insight]:
        return [
            group.insight(
                "waste",
                "repeated_call",
                title=f"the same call repeated with the same result: {key}",
                action="describe it in AGENTS.md, or have a subagent look it up, so that"
                " the agent need not look again",
            )
            for key, group in self.repeats.by_key.items()
            if group.count >= _MIN_REPEATS
        ]

    def _huge(self) -> list[Insight]:
        return [
            group.insight(
                "waste",
                "huge_result",
                title=f"results of more than {_HUGE_TOKENS} tokens: {key}",
                action="ask for less: a quiet flag, a filter such as `| tail -50`, or a range of"
                " lines; a line in AGENTS.md makes it a habit",
            )
            for key, group in self.huge.by_key.items()
        ]

    def _misses(self) -> list[Insight]:
        return [
            group.insight(
                "waste",
                "cache_miss",
                title=f"the prompt cache was missed: {reason}",
                action=_MISS_ACTIONS.get(reason, _DEFAULT_ACTION),
            )
            for reason, group in self.misses.by_key.items()
        ]

    def _filling(self) -> list[Insight]:
        """The largest parts of the conversations, counted each time they were sent."""
        return [
            group.insight(
                "waste",
                "context_filled",
                title=f"{group.tokens / self.sent:.0%} of the conversation tokens sent: {kind}",
                action="give work with much output to a subagent, or ask for less output"
                if kind.startswith("results of")
                else "begin a new session for a new task, or compact earlier",
            )
            for kind, group in self.filling.by_key.items()
            if self.sent >= _MIN_SENT and group.tokens / self.sent >= _MIN_SHARE
        ]


_PAUSE_REASON = "more than 5 minutes since the previous request"
_UNKNOWN_REASON = "no reason is recorded"
_DEFAULT_ACTION = "`mainspring context show SESSION` shows what changed between the requests"
_MISS_ACTIONS = {
    "model changed": "use one model in a session; another one must read everything again",
    "system or tools changed": "load tools and skills at the beginning of a session: a change"
    " before the messages makes the model read all of them again",
    "compaction": "compact less often: begin a new session for a new task",
    _PAUSE_REASON: (
        "continue sooner, or begin a new session with a summary instead of resuming a long one"
    ),
}


def _is_miss(usage: Usage) -> bool:
    prompt = prompt_tokens(usage)
    return prompt >= _MIN_PROMPT and usage.cache_read_input_tokens < prompt * _MISSED_SHARE


def _pause(last: datetime | None, now: datetime) -> str:
    return _PAUSE_REASON if last is not None and now - last > _CACHE_LIFETIME else _UNKNOWN_REASON
