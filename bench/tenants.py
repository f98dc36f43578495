"""What another tenant feels of hostile texts: the latency of its requests at a served API, alone
and while a neighbour sends 32 MB of the texts that are the worst for redaction, in alternated
rounds. The server is a process of its own; its model repeats what it is told.
"""

from __future__ import annotations

import json
import sys
import time
from itertools import cycle, islice
from pathlib import Path
from tempfile import TemporaryDirectory

import anyio
from anthropic import AsyncAnthropic
from report import Measure, median, note, percentile

sys.path.insert(0, str(Path(__file__).parent.parent))

from tests.service_e2e.service_processes import TOOLS, staged
from tests.vault.test_hostile_texts import SHAPES, text_of

ROUNDS, REQUESTS = 5, 300
MESSAGES, MESSAGE_BYTES = 32, 1_000_000
MAX_P95_RATIO, MAX_SECONDS = 2.5, 1.0


async def measure() -> list[Measure]:
    quiet: list[list[float]] = []
    flooded: list[list[float]] = []
    with TemporaryDirectory(prefix="ms-") as folder:
        async with staged(Path(folder)) as stage:
            await stage.command("tenants", "create", "rival")
            shown = await stage.command(
                *("keys", "create", "theirs", "--tenant", "rival", "--role", "admin", "--json")
            )
            key = json.loads(shown)["key"]
            async with stage.serve() as server, server.client() as us, server.client(key) as rival:
                for number in range(ROUNDS):
                    note(f"round {number + 1} of {ROUNDS} ...")
                    quiet.append(await _latencies(us))
                    async with anyio.create_task_group() as group:
                        group.start_soon(_flood, rival)
                        flooded.append(await _latencies(us))
    ratios = [
        percentile(after, 95) / percentile(before, 95)
        for before, after in zip(quiet, flooded, strict=True)
    ]
    slowest = median([max(latencies) for latencies in flooded])
    alone = median([percentile(latencies, 95) for latencies in quiet])
    return [
        Measure(
            name=f"p95 of {REQUESTS} requests while a neighbour sends 32 MB, times p95 alone",
            value=median(ratios),
            unit="x",
            target=f"<= {MAX_P95_RATIO}",
            detail=f"alone {alone * 1e3:.1f} ms; " + ", ".join(f"{item:.2f}" for item in ratios),
        ),
        Measure(
            name="the slowest of these requests",
            value=slowest,
            unit="s",
            target=f"<= {MAX_SECONDS}",
            detail=f"median of {ROUNDS} rounds",
        ),
    ]


async def _latencies(client: AsyncAnthropic) -> list[float]:
    """Of requests that list, create and read."""
    latencies: list[float] = []
    for number in range(REQUESTS):
        begun = time.perf_counter()
        if number % 3 == 0:
            await client.beta.environments.create(name=f"of-{time.monotonic_ns()}")
        elif number % 3 == 1:
            await client.beta.sessions.list(limit=5)
        else:
            await client.beta.agents.list(limit=5)
        latencies.append(time.perf_counter() - begun)
    return latencies


async def _flood(client: AsyncAnthropic) -> None:
    agent = await client.beta.agents.create(name="clerk", model="claude-sonnet-4-5", tools=TOOLS)
    environment = await client.beta.environments.create(name=f"of-{agent.id}")
    session = await client.beta.sessions.create(agent=agent.id, environment_id=environment.id)
    for shape in islice(cycle(SHAPES.values()), MESSAGES):
        text = text_of(shape, MESSAGE_BYTES)
        await client.beta.sessions.events.send(
            session.id,
            events=[{"type": "user.message", "content": [{"type": "text", "text": text}]}],
        )
