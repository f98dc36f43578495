"""Subagents: how much longer twenty take than one, and what forks read from the prompt cache."""

from __future__ import annotations

import tempfile
import time
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path

import anyio
from report import Measure, as_table, median

from mainspring import Agent, Runtime, open_runtime, tool
from mainspring.capabilities.providers.scripted import ScriptAnswer, Scripted, SimulatedPromptCache
from mainspring.config import read_settings
from mainspring.core.content import TextBlock
from mainspring.core.events import ModelRequestEnded, ThreadCreated, Usage
from mainspring.core.model import Assistant, User
from mainspring.runtime.run_options import RunOptions
from mainspring.runtime.subagent import BUILT_IN_SUBAGENTS
from mainspring.testing import Request, calls, says

CALL_SECONDS = 0.3
MANY, ROUNDS, FORKS = 20, 3, 5
READ = 12
"""Turns of the parent before it forks, each with something that it has read."""


WORK = {
    "look": calls("look", at="it"),
    "read": calls("read", file_path="notes.txt"),
    "bash": calls("bash", command="cat notes.txt"),
}


def _turns(request: Request) -> int:
    return sum(isinstance(message, Assistant) for message in request.messages)


def _task(request: Request) -> str:
    first = request.messages[0]
    assert isinstance(first, User)
    return " ".join(part.text for part in first.content if isinstance(part, TextBlock))


@tool(read_only=True, concurrent=True)
def look(at: str) -> str:
    """Look at something."""
    return f"This is {at}."


def lead(request: Request) -> ScriptAnswer:
    """Calls as many as it was told to; each of them does one thing and answers."""
    first, number, work = _task(request).split()
    if _turns(request):
        return says("Done.")
    if first == "Piece":
        return WORK[work]
    line = calls("agent", description="work", prompt=f"Piece 0 {work}")
    for piece in range(1, int(number)):
        line += calls("agent", description="work", prompt=f"Piece {piece} {work}")
    return line


async def measure() -> list[Measure]:
    bare = Agent(name="lead", model="bench", tools=[look], subagents=BUILT_IN_SUBAGENTS)
    handy = replace(bare, built_ins=("*",))
    return [
        await _ratio("bare", bare, "look", target="<= 1.25"),
        await _ratio("with built-in tools", handy, "read", target="<= 1.25"),
        await _ratio("each with a program in a sandbox", handy, "bash"),
        await _forks(),
    ]


@asynccontextmanager
async def _runtime(model: Scripted) -> AsyncGenerator[Runtime, None]:
    with tempfile.TemporaryDirectory() as folder, tempfile.TemporaryDirectory() as workspace:
        home = Path(folder)
        await anyio.Path(workspace, "notes.txt").write_text("Some notes.\n")
        settings = replace(
            read_settings(store=str(home / "log.db"), environ={}, folder=home), home=str(home)
        )
        options = RunOptions(workspace=Path(workspace), mode="bypassPermissions")
        async with open_runtime(settings, options=options) as runtime:
            runtime.models.put("bench", model)
            yield runtime


async def _ratio(name: str, agent: Agent, work: str, target: str = "") -> Measure:
    """Interleaved: both see the same machine."""
    one: list[float] = []
    many: list[float] = []
    async with _runtime(Scripted(otherwise=lead, latency_seconds=CALL_SECONDS)) as runtime:
        await _seconds(runtime, agent, 1, work)
        for _ in range(ROUNDS):
            one.append(await _seconds(runtime, agent, 1, work))
            many.append(await _seconds(runtime, agent, MANY, work))
    ratios = [spent / alone for spent, alone in zip(many, one, strict=True)]
    detail = f"{median(many):.2f} / {median(one):.2f} s; the best {min(ratios):.2f}x"
    return Measure(
        name=f"{MANY} subagents at once / one, {name}",
        value=median(ratios),
        unit="x",
        target=target,
        detail=detail,
    )


async def _seconds(runtime: Runtime, agent: Agent, many: int, work: str) -> float:
    session = await runtime.start(agent, f"Call {many} {work}")
    begun = time.perf_counter()
    result = await session.run()
    spent = time.perf_counter() - begun
    assert result is not None
    assert result.ok, result
    return spent


def forking(request: Request) -> ScriptAnswer:
    """Reads for a while, then goes on as five."""
    turns = _turns(request)
    last = request.messages[-1]
    if any("part" in getattr(part, "text", "") for part in last.content):
        return says("My part is done.")
    if turns < READ:
        return calls("read_chapter", number=turns)
    if turns > READ:
        return says("Joined.")
    line = calls("agent", description="a", prompt="Do part 0.", subagent_type="fork")
    for number in range(1, FORKS):
        prompt = f"Do part {number}."
        line += calls("agent", description="a", prompt=prompt, subagent_type="fork")
    return line


@tool(read_only=True)
def read_chapter(number: int) -> str:
    """Read a chapter."""
    return f"Chapter {number}. " + "It was a long day, and nobody knew how it would end. " * 60


def _share(usage: Usage) -> float:
    read = usage.cache_read_input_tokens
    return read / (read + usage.input_tokens + usage.cache_creation_input_tokens)


async def _forks() -> Measure:
    """What each fork after the first reads from the cache, of all that it is sent."""
    agent = Agent(name="lead", model="bench", tools=[read_chapter], subagents=BUILT_IN_SUBAGENTS)
    async with _runtime(Scripted(otherwise=forking, cache=SimulatedPromptCache())) as runtime:
        session = await runtime.start(agent, "Read the book, then share the work.")
        result = await session.run()
        assert result is not None
        assert result.ok, result
        events = await session.events()
    born = [
        event.payload.session_thread_id
        for event in events
        if isinstance(event.payload, ThreadCreated)
    ]
    shares = [
        _share(event.payload.model_usage)
        for event in events
        if event.thread_id in born and isinstance(event.payload, ModelRequestEnded)
    ]
    assert len(shares) == FORKS, shares
    return Measure(
        name=f"read from the prompt cache by forks 2 to {FORKS}, the least",
        value=100 * min(shares[1:]),
        unit="%",
        target=">= 90",
        detail=f"the first {100 * shares[0]:.1f} %; simulated",
    )


if __name__ == "__main__":
    print(as_table(anyio.run(measure)))
