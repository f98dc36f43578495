"""A model that says what it was told to: for demonstrations, tests and offline work.

model = Scripted(
    says("Let me look.") + calls("bash", command="ls"),
    lambda request: says(f"I was asked {len(request.messages)} things."),
    fails("overloaded"),
    otherwise=says("That is all I know."),
)
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, Callable
from dataclasses import dataclass
from typing import TypeAlias

import anyio

from mainspring.capabilities.providers.estimate import estimated_usage
from mainspring.capabilities.providers.playback import deltas_of
from mainspring.capabilities.providers.prompt_cache import PromptCache
from mainspring.capabilities.providers.tool_calls import CallIds
from mainspring.core.content import TextBlock
from mainspring.core.errors import ProviderFailed, ProviderFailure
from mainspring.core.events import Usage
from mainspring.core.model import Delta, Reply, ReplyReason, Request, Thinking, ToolUse


@dataclass(frozen=True, slots=True)
class Line:
    """What to say at one turn. Lines are put together with `+`; ids and usage come later."""

    content: tuple[TextBlock | Thinking | ToolUse, ...]
    reason: ReplyReason | None = None
    usage: Usage | None = None

    def __add__(self, other: Line) -> Line:
        return Line(
            self.content + other.content, other.reason or self.reason, other.usage or self.usage
        )


@dataclass(frozen=True, slots=True)
class Failure:
    """A call that does not succeed, after some deltas perhaps."""

    kind: ProviderFailure
    what: str
    after: Line | None = None
    retry_after_seconds: float | None = None


Answer: TypeAlias = Line | Reply | Failure
Step: TypeAlias = Answer | Callable[[Request], Answer]


def says(text: str, *, reason: ReplyReason | None = None, usage: Usage | None = None) -> Line:
    return Line((TextBlock(text),), reason, usage)


def thinks(text: str, *, signature: str | None = None) -> Line:
    return Line((Thinking(text=text, signature=signature),))


def calls(tool: str, /, **given: object) -> Line:
    return Line((ToolUse(id="", name=tool, input=given),))


def fails(
    kind: ProviderFailure,
    what: str = "as the script says",
    *,
    after: Line | None = None,
    retry_after_seconds: float | None = None,
) -> Failure:
    return Failure(kind, what, after, retry_after_seconds)


class Scripted:
    """Answers request after request with the next step, then with `otherwise` for ever."""

    def __init__(
        self,
        *steps: Step,
        otherwise: Step | None = None,
        latency_seconds: float = 0,
        delta_seconds: float = 0,
        chunk_chars: int = 24,
        cache: PromptCache | None = None,
    ) -> None:
        """`latency_seconds` pass before the first delta, `delta_seconds` before each other one."""
        self.requests: list[Request] = []
        """Everything that was asked, in order."""
        self._steps = list(steps)
        self._otherwise = otherwise
        self._latency_seconds = latency_seconds
        self._delta_seconds = delta_seconds
        self._chunk_chars = chunk_chars
        self._cache = cache or PromptCache()

    @property
    def steps_left(self) -> int:
        return len(self._steps)

    async def stream(self, request: Request) -> AsyncGenerator[Delta | Reply, None]:
        self.requests.append(request)
        answer = self._next(request)
        failure = answer if isinstance(answer, Failure) else None
        said = answer if not isinstance(answer, Failure) else answer.after or Line(())
        reply = self._reply(said, request)
        await anyio.sleep(self._latency_seconds)
        if request.stream:
            for delta in deltas_of(reply, chunk_chars=self._chunk_chars):
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

    def _next(self, request: Request) -> Answer:
        step = self._steps.pop(0) if self._steps else self._otherwise
        if step is None:
            asked = len(self.requests)
            what = f"the script has no answer to request {asked}; it ended before"
            raise ProviderFailed("scripted", "exhausted", what)
        return step if isinstance(step, Line | Reply | Failure) else step(request)

    def _reply(self, said: Line | Reply, request: Request) -> Reply:
        if isinstance(said, Reply):
            return said
        ids = CallIds(request)
        content = tuple(
            ToolUse(id=ids.unique(block.id), name=block.name, input=block.input)
            if isinstance(block, ToolUse)
            else block
            for block in said.content
        )
        has_calls = any(isinstance(block, ToolUse) for block in content)
        output = estimated_usage(request, content).output_tokens
        return Reply(
            content=content,
            usage=said.usage or self._cache.usage(request, output_tokens=output),
            reason=said.reason or ("tool_use" if has_calls else "end_turn"),
            model=request.model,
        )
