"""A model that follows a script: for demonstrations, tests and offline work.

model = Scripted(
    says("Let me look.") + calls("bash", command="ls"),
    lambda request: says(f"I was asked {len(request.messages)} things."),
    fails("overloaded"),
    otherwise=says("That is all I know."),
)
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, Callable, Iterator, Sequence
from contextlib import aclosing
from hashlib import blake2b
from typing import TypeAlias

import anyio
import msgspec
from msgspec import Struct

from mainspring.capabilities.providers.anthropic.request import MAX_BREAKPOINTS
from mainspring.capabilities.providers.token_estimate import (
    message_tokens,
    reply_tokens,
    text_tokens,
    with_thinking,
)
from mainspring.capabilities.providers.tool_calls import CallIds
from mainspring.core.content import TextBlock
from mainspring.core.errors import ProviderFailed, ProviderFailure
from mainspring.core.events import Usage
from mainspring.core.model import (
    Delta,
    Model,
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

_LOOKBACK = 20
"""How many blocks before a breakpoint are searched for a hit."""


class SimulatedPromptCache:
    """Caches prefixes like Anthropic's cache: per model, up to breakpoints; entries never
    expire."""

    def __init__(self, *, min_tokens: int = 0) -> None:
        self._min_tokens = min_tokens
        self._cached_keys: set[bytes] = set()

    def usage(self, request: Request, *, output_tokens: int) -> Usage:
        """The usage of a request; the prefixes that it writes are cached for later requests."""
        steps = list(_cache_steps(request))
        marks = [index for index, step in enumerate(steps) if step.is_breakpoint]
        marks = marks[-MAX_BREAKPOINTS:]
        total = steps[-1].tokens if steps else 0
        cache_read = max((self._cached_tokens(steps, mark) for mark in marks), default=0)
        cache_written = steps[marks[-1]].tokens if marks else 0
        if cache_written < self._min_tokens:
            cache_written = 0
        self._cached_keys |= {
            steps[mark].key for mark in marks if steps[mark].tokens >= self._min_tokens
        }
        return Usage(
            input_tokens=total - max(cache_written, cache_read),
            cache_creation_input_tokens=max(0, cache_written - cache_read),
            cache_read_input_tokens=cache_read,
            output_tokens=output_tokens,
        )

    def _cached_tokens(self, steps: list[_CacheStep], mark: int) -> int:
        """Tokens of the longest known prefix that ends at the breakpoint or shortly before it."""
        for index in range(mark, max(-1, mark - _LOOKBACK), -1):
            if steps[index].key in self._cached_keys:
                return steps[index].tokens
        return 0


class _CacheStep(msgspec.Struct, frozen=True):
    """The prompt up to some point: its hash and its length."""

    key: bytes
    tokens: int
    is_breakpoint: bool


def _cache_steps(request: Request) -> Iterator[_CacheStep]:
    pieces: list[tuple[object, int, bool]] = []
    if request.tools:
        tools = msgspec.json.encode(request.tools).decode()
        pieces.append((request.tools, text_tokens(tools), True))
    pieces += [(part, text_tokens(part), not index) for index, part in enumerate(request.system)]
    pieces += [
        (message, message_tokens(message), index in request.cache_messages)
        for index, message in enumerate(request.messages)
    ]
    digest = blake2b(request.model.encode(), digest_size=16)
    tokens = 0
    for content, size, is_breakpoint in pieces:
        digest.update(msgspec.json.encode(content))
        tokens += size
        yield _CacheStep(digest.digest(), tokens, is_breakpoint)


def reply_deltas(reply: Reply, *, chunk_chars: int = 24) -> Iterator[Delta]:
    for block in reply.content:
        match block:
            case TextBlock(text=text):
                yield from map(TextDelta, _chunks(text, chunk_chars))
            case Thinking(text=text):
                yield from map(ThinkingDelta, _chunks(text, chunk_chars))
            case ToolUse(id=id_, name=name):
                yield ToolInputDelta(id=id_, name=name, json="")
                raw_input = block.invalid_json
                if raw_input is None:
                    raw_input = msgspec.json.encode(block.input).decode()
                for piece in _chunks(raw_input, chunk_chars):
                    yield ToolInputDelta(id=id_, name=name, json=piece)
                if block.invalid_json is None:
                    yield ToolUseReady(block)


def _chunks(text: str, size: int) -> Iterator[str]:
    return (text[start : start + size] for start in range(0, len(text), size))


class ScriptLine(Struct, frozen=True):
    """The content of one turn. Lines are joined with `+`; ids and usage are added later."""

    content: tuple[TextBlock | Thinking | ToolUse, ...]
    reason: ReplyReason | None = None
    usage: Usage | None = None

    def __add__(self, other: ScriptLine) -> ScriptLine:
        return ScriptLine(
            self.content + other.content, other.reason or self.reason, other.usage or self.usage
        )


class ScriptFailure(Struct, frozen=True):
    """A call that fails, perhaps after some deltas."""

    kind: ProviderFailure
    what: str
    after: ScriptLine | None = None
    retry_after_seconds: float | None = None


ScriptAnswer: TypeAlias = ScriptLine | Reply | ScriptFailure
ScriptStep: TypeAlias = ScriptAnswer | Callable[[Request], ScriptAnswer]


def says(text: str, *, reason: ReplyReason | None = None, usage: Usage | None = None) -> ScriptLine:
    return ScriptLine((TextBlock(text),), reason, usage)


def thinks(text: str, *, signature: str | None = None) -> ScriptLine:
    return ScriptLine((Thinking(text=text, signature=signature),))


def calls(tool: str, /, **args: object) -> ScriptLine:
    return ScriptLine((ToolUse(id="", name=tool, input=args),))


def fails(
    kind: ProviderFailure,
    what: str = "as the script says",
    *,
    after: ScriptLine | None = None,
    retry_after_seconds: float | None = None,
) -> ScriptFailure:
    return ScriptFailure(kind, what, after, retry_after_seconds)


class Scripted:
    """Answers each request with the next step, then always with `otherwise`."""

    def __init__(
        self,
        *steps: ScriptStep,
        otherwise: ScriptStep | None = None,
        latency_seconds: float = 0,
        delta_seconds: float = 0,
        chunk_chars: int = 24,
        cache: SimulatedPromptCache | None = None,
    ) -> None:
        """Waits `latency_seconds` before the first delta, and `delta_seconds` after each."""
        self.requests: list[Request] = []
        """All requests so far, in order."""
        self._steps = list(steps)
        self._otherwise = otherwise
        self._latency_seconds = latency_seconds
        self._delta_seconds = delta_seconds
        self._chunk_chars = chunk_chars
        self._cache = cache or SimulatedPromptCache()

    @property
    def steps_left(self) -> int:
        return len(self._steps)

    async def stream(self, request: Request) -> AsyncGenerator[Delta | Reply, None]:
        self.requests.append(request)
        step = self._steps.pop(0) if self._steps else self._otherwise
        if step is None:
            number = len(self.requests)
            what = f"the script has no answer to request {number}; it ended before"
            raise ProviderFailed("scripted", "exhausted", what)
        answer = step if isinstance(step, ScriptLine | Reply | ScriptFailure) else step(request)
        failure = answer if isinstance(answer, ScriptFailure) else None
        spoken = answer if not isinstance(answer, ScriptFailure) else answer.after or ScriptLine(())
        reply = self._reply(spoken, request)
        await anyio.sleep(self._latency_seconds)
        if request.stream:
            for delta in reply_deltas(reply, chunk_chars=self._chunk_chars):
                yield delta
                await anyio.sleep(self._delta_seconds)
        if failure is not None:
            raise ProviderFailed(
                "scripted",
                failure.kind,
                failure.what,
                retry_after_seconds=failure.retry_after_seconds,
            )
        yield reply

    def _reply(self, spoken: ScriptLine | Reply, request: Request) -> Reply:
        if isinstance(spoken, Reply):
            return spoken
        ids = CallIds(request)
        content = tuple(
            ToolUse(id=ids.unique(block.id), name=block.name, input=block.input)
            if isinstance(block, ToolUse)
            else block
            for block in spoken.content
        )
        has_calls = any(isinstance(block, ToolUse) for block in content)
        output = reply_tokens(content)
        return Reply(
            content=content,
            usage=spoken.usage
            or with_thinking(self._cache.usage(request, output_tokens=output), content),
            reason=spoken.reason or ("tool_use" if has_calls else "end_turn"),
            model=request.model,
        )


Compare: TypeAlias = Callable[[str, Request], str | None]
"""Compares a recorded fingerprint with a request; describes the difference, or None if there is
none."""


def request_fingerprint(request: Request) -> str:
    """A hash of the request's content and options, independent of how it is sent."""
    comparable = msgspec.structs.replace(request, request_id="", stream=True, cache_messages=())
    return blake2b(msgspec.json.encode(comparable), digest_size=16).hexdigest()


def compare_fingerprint(recorded: str, request: Request) -> str | None:
    actual = request_fingerprint(request)
    return None if actual == recorded else f"{actual} is asked, {recorded} was recorded"


class ReplayModel:
    """Serves recorded replies; at the first difference it fails, or hands over to `live`."""

    def __init__(
        self,
        recorded: Sequence[tuple[str, Reply]],
        *,
        compare: Compare = compare_fingerprint,
        live: Model | None = None,
    ) -> None:
        """`recorded`: fingerprints of requests and the replies to them, in order."""
        self._recorded = tuple(recorded)
        self._compare = compare
        self._live = live
        self._served = 0
        self.diverged: str | None = None
        """Where and how the run differs from the recording; None if it does not."""

    @property
    def replies_left(self) -> int:
        return len(self._recorded) - self._served

    async def stream(self, request: Request) -> AsyncGenerator[Delta | Reply, None]:
        if self.diverged is None:
            self.diverged = self._difference(request)
        if self.diverged is None:
            _, reply = self._recorded[self._served]
            self._served += 1
            if request.stream:
                for delta in reply_deltas(reply):
                    yield delta
            yield reply
        elif self._live is None:
            raise ProviderFailed("replay", "exhausted", self.diverged)
        else:
            async with aclosing(self._live.stream(request)) as answer:
                async for part in answer:
                    yield part

    def _difference(self, request: Request) -> str | None:
        number = self._served + 1
        if number > len(self._recorded):
            return f"request {number} was never made: the recording has {len(self._recorded)}"
        differs = self._compare(self._recorded[self._served][0], request)
        return None if differs is None else f"request {number} is not the recorded one: {differs}"
