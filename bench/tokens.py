"""How soon the first token of a reply comes, with and without a sandbox to be made."""

from __future__ import annotations

import tempfile
import time
from pathlib import Path

from report import Measure, median, percentile
from turns import runtime_at, serving

from mainspring import Agent, Delta, Runtime
from mainspring.core.model import TextDelta

SESSIONS = 40


async def measure() -> list[Measure]:
    with tempfile.TemporaryDirectory() as folder:
        store = str(Path(folder, "bench.db"))
        async with serving() as url, runtime_at(url, store) as runtime:
            await _first_token_seconds(runtime, Agent(model="vllm:text-2"))  # warm
            return await _first_tokens(runtime)


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
