"""A provider's prompt cache, simulated: what a request would write to it and read from it."""

from __future__ import annotations

from collections.abc import Iterator
from hashlib import blake2b

import msgspec

from mainspring.capabilities.providers.anthropic.request import MAX_BREAKPOINTS
from mainspring.capabilities.providers.estimate import message_tokens, text_tokens
from mainspring.core.events import Usage
from mainspring.core.model import Request

_LOOKBACK = 20
"""How many blocks before a breakpoint a hit is looked for."""


class PromptCache:
    """Keeps prefixes as Anthropic's does: per model, up to breakpoints, and never forgets."""

    def __init__(self, *, min_tokens: int = 0) -> None:
        self._min_tokens = min_tokens
        self._known: set[bytes] = set()

    def usage(self, request: Request, *, output_tokens: int) -> Usage:
        """What the request costs now; what it wrote is there for the next one."""
        steps = list(_steps(request))
        marks = [index for index, step in enumerate(steps) if step.is_breakpoint]
        marks = marks[-MAX_BREAKPOINTS:]
        total = steps[-1].tokens if steps else 0
        read = max((self._found(steps, mark) for mark in marks), default=0)
        written = steps[marks[-1]].tokens if marks else 0
        if written < self._min_tokens:
            written = 0
        self._known |= {steps[mark].key for mark in marks if steps[mark].tokens >= self._min_tokens}
        return Usage(
            input_tokens=total - max(written, read),
            cache_creation_input_tokens=max(0, written - read),
            cache_read_input_tokens=read,
            output_tokens=output_tokens,
        )

    def _found(self, steps: list[_Step], mark: int) -> int:
        """Tokens of the longest known prefix that ends at the breakpoint or shortly before it."""
        for index in range(mark, max(-1, mark - _LOOKBACK), -1):
            if steps[index].key in self._known:
                return steps[index].tokens
        return 0


class _Step(msgspec.Struct, frozen=True):
    """The prompt up to some point: its hash and its length."""

    key: bytes
    tokens: int
    is_breakpoint: bool


def _steps(request: Request) -> Iterator[_Step]:
    digest = blake2b(request.model.encode(), digest_size=16)
    tokens = 0
    for content, size, is_breakpoint in _pieces(request):
        digest.update(content)
        tokens += size
        yield _Step(digest.digest(), tokens, is_breakpoint)


def _pieces(request: Request) -> Iterator[tuple[bytes, int, bool]]:
    if request.tools:
        tools = msgspec.json.encode(request.tools)
        yield tools, text_tokens(tools.decode()), True
    for index, part in enumerate(request.system):
        yield msgspec.json.encode(part), text_tokens(part), index == 0
    marked = frozenset(request.cache_messages)
    for index, message in enumerate(request.messages):
        yield msgspec.json.encode(message), message_tokens(message), index in marked
