"""A run as a stream: its deltas and events in one order, then its result."""

from __future__ import annotations

from collections import deque
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Generic, TypeAlias, cast

import anyio
from anyio.abc import TaskGroup

from mainspring.core.envelope import Event
from mainspring.core.model import Delta, ToolInputDelta
from mainspring.function_tools.output_types import OutputType
from mainspring.function_tools.partial_json import read_partial
from mainspring.harness.state.thread import OUTPUT_TOOL
from mainspring.runtime.agent import Output
from mainspring.runtime.session.run_result import RunResult


@dataclass(frozen=True, slots=True)
class PartialOutput:
    """The agent's typed output while the model is still writing it."""

    output_type: OutputType
    json: str
    """The JSON that has arrived so far."""

    @property
    def value(self) -> object:
        """The values that have arrived so far, as plain JSON: incomplete and not validated."""
        value = read_partial(self.json)
        if not isinstance(value, dict):
            return None
        return self.output_type.partial(cast("dict[str, object]", value))


StreamEvent: TypeAlias = Delta | Event | PartialOutput | RunResult[Output]
"""What a stream yields: pieces of a reply as they arrive, events once they are in the log, the
output while it is written, and last the result."""

RunFunction: TypeAlias = Callable[
    [Callable[[Delta], None], Callable[[Event], None]], Awaitable[RunResult[Output]]
]


class EventStream(Generic[Output]):
    """`async for event in session.stream("...")`. The run begins with the first event.

    If you leave the loop early, the run continues until the runtime is closed. To end it with the
    loop, write `async with session.stream("...") as stream` around it.
    """

    def __init__(
        self, run: RunFunction[Output], background: TaskGroup, output_type: OutputType | None
    ) -> None:
        self._run = run
        self._background = background
        self._output_type = output_type
        self._output_json: dict[str, str] = {}
        self._items: deque[StreamEvent[Output]] = deque()
        self._changed = anyio.Event()
        self._scope = anyio.CancelScope()
        self._has_begun = self._has_ended = False
        self._error: Exception | None = None
        self._ended = anyio.Event()

    def __aiter__(self) -> EventStream[Output]:
        return self

    async def __anext__(self) -> StreamEvent[Output]:
        if not self._has_begun:
            self._has_begun = True
            self._background.start_soon(self._run_to_end)
        while not self._items:
            if self._error is not None:
                error, self._error = self._error, None
                raise error
            if self._has_ended:
                raise StopAsyncIteration
            self._changed = anyio.Event()
            await self._changed.wait()
        return self._items.popleft()

    async def __aenter__(self) -> EventStream[Output]:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.aclose()

    async def aclose(self) -> None:
        """Stop the run, if it has not ended. The session can be continued later."""
        if self._has_begun and not self._has_ended:
            self._scope.cancel()
            with anyio.CancelScope(shield=True):
                await self._ended.wait()
        self._has_begun = self._has_ended = True

    async def _run_to_end(self) -> None:
        try:
            with self._scope:
                result = await self._run(self._on_delta, self._put)
                self._put(result)
        # The reader of the stream gets the error, not the task group that the runs share.
        except Exception as error:  # noqa: BLE001
            self._error = error
        finally:
            self._has_ended = True
            self._ended.set()
            self._changed.set()

    def _on_delta(self, delta: Delta) -> None:
        self._put(delta)
        if (
            self._output_type is not None
            and isinstance(delta, ToolInputDelta)
            and delta.name == OUTPUT_TOOL
        ):
            json = self._output_json.get(delta.id, "") + delta.json
            self._output_json = {delta.id: json}
            self._put(PartialOutput(self._output_type, json))

    def _put(self, item: StreamEvent[Output]) -> None:
        self._items.append(item)
        self._changed.set()
