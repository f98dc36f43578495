"""Tokens of a reply: how soon the first one comes, with and without a sandbox to be made, and what
each of many costs the session when each arrives in a network read of its own.
"""

from __future__ import annotations

import tempfile
import time
from pathlib import Path

from report import Measure, median, percentile
from turns import cpu_seconds, runtime_at, serving

from mainspring import Agent, Delta, Runtime
from mainspring.core.model import TextDelta

SESSIONS = 40
WORDS, ROUNDS = 1500, 5


async def measure() -> list[Measure]:
    with tempfile.TemporaryDirectory() as folder:
        store = str(Path(folder, "bench.db"))
        async with serving() as url, runtime_at(url, store) as runtime:
            await _first_token_seconds(runtime, Agent(model="vllm:text-2"))  # warm
            return [*await _first_tokens(runtime), await _delta(runtime)]


async def _first_tokens(runtime: Runtime) -> list[Measure]:
    agents = {
        "without a sandbox": Agent(name="bare", model="vllm:text-2"),
        "with a sandbox to be made": Agent(name="hands", model="vllm:text-2", built_ins=["bash"]),
    }
    seconds: dict[str, list[float]] = {name: [] for name in agents}
    for _ in range(SESSIONS):  # interleaved: both see the same machine
        for name, agent in agents.items():
            seconds[name].append(await _first_token_seconds(runtime, agent))
    return [
        Measure(
            name=f"first token of a session {name}, p50",
            value=median(times) * 1000,
            unit="ms",
            detail=f"p95 {percentile(times, 95) * 1000:.1f} ms",
        )
        for name, times in seconds.items()
    ]


async def _first_token_seconds(runtime: Runtime, agent: Agent) -> float:
    """From the message to the first word, the session's start included."""
    arrived: list[float] = []

    def emit(delta: Delta) -> None:
        if isinstance(delta, TextDelta):
            arrived.append(time.perf_counter())

    begun = time.perf_counter()
    session = await runtime.start(agent, "go")
    await session.run(emit)
    return arrived[0] - begun


async def _delta(runtime: Runtime) -> Measure:
    agent = Agent(name="talker", model=f"vllm:text-{WORDS}")
    spent: list[float] = []
    for _ in range(ROUNDS):
        session = await runtime.start(agent, "go")
        spent.append(await cpu_seconds(session.run) / WORDS)
    return Measure(
        name="a delta through client, router and harness, CPU",
        value=median(spent) * 1e6,
        unit="us",
        detail=f"least {min(spent) * 1e6:.0f}, in {ROUNDS} replies of {WORDS:,} deltas",
    )
