"""Reads that begin while the reply streams: a second of stream, three reads of 100 ms in it."""

from __future__ import annotations

import tempfile
import time
from collections.abc import AsyncGenerator, Mapping
from dataclasses import replace
from pathlib import Path

import anyio
from report import Measure, as_table, median

from mainspring import Agent, Delta, TextBlock, Tool, open_runtime, tool
from mainspring.config import read_settings
from mainspring.core.events import Usage
from mainspring.core.model import ToolUse, ToolUseReady
from mainspring.testing import Reply, Request
from mainspring.tools import Traits

STREAM_SECONDS = 1.0
READ_SECONDS = 0.1
READS = 3
ROUNDS = 7


@tool(read_only=True, concurrent=True)
async def look(x: int) -> str:
    """Read something that takes a while."""
    await anyio.sleep(READ_SECONDS)
    return f"seen {x}"


class Streaming:
    """Asks for the reads early in a reply that takes a second, then says something short."""

    def __init__(self, *, reads: int) -> None:
        self._uses = [ToolUse(id=f"u{x}", name="look", input={"x": x}) for x in range(reads)]

    async def stream(self, request: Request) -> AsyncGenerator[Delta | Reply, None]:
        is_first = len(request.messages) == 1
        content: tuple[ToolUse | TextBlock, ...] = (TextBlock("done"),)
        if is_first:
            for use in self._uses:
                yield ToolUseReady(use)
            await anyio.sleep(STREAM_SECONDS)
            content = tuple(self._uses) or content
        reason = "tool_use" if is_first and self._uses else "end_turn"
        yield Reply(content=content, usage=Usage(), reason=reason, model="bench")


async def measure() -> list[Measure]:
    serial = replace(look, traits=one_by_one)
    alone, early, late = (
        await _seconds(look, reads=0),
        await _seconds(look, reads=READS),
        await _seconds(serial, reads=READS),
    )
    return [
        Measure(
            name="3 reads that begin early / the stream alone",
            value=early / alone,
            unit="x",
            target="<= 1.15",
            detail=f"{early:.3f} / {alone:.3f} s",
        ),
        Measure(
            name="3 reads one by one afterwards / the stream alone",
            value=late / alone,
            unit="x",
            detail=f"{late:.3f} s",
        ),
    ]


def one_by_one(_: Mapping[str, object]) -> Traits:
    return Traits(read_only=True)


async def _seconds(reading: Tool, *, reads: int) -> float:
    """From the message to the end of the session's run, the median of a few."""
    found: list[float] = []
    with tempfile.TemporaryDirectory() as folder:
        async with open_runtime(read_settings(folder=Path(folder))) as runtime:
            runtime.models.put("bench", Streaming(reads=reads))
            agent = Agent(model="bench", tools=[reading])
            for _ in range(ROUNDS):
                session = await runtime.start(agent, "go")
                begun = time.perf_counter()
                result = await session.run()
                found.append(time.perf_counter() - begun)
                assert result is not None
                assert result.ok
    return median(found)


if __name__ == "__main__":
    print(as_table(anyio.run(measure)))
