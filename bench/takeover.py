"""How long sessions of a killed worker wait for another: on the same machine, where the other sees
that its process is gone, and on another machine, where the lease has to run out.
"""

from __future__ import annotations

import sys
from pathlib import Path
from random import Random
from tempfile import TemporaryDirectory

from msgspec.structs import replace
from report import Measure, median, percentile
from server import postgres

sys.path.insert(0, str(Path(__file__).parent.parent))

from tests.fleet.fleet import fleet
from tests.fleet.worker_main import Order

SESSIONS, KILL_SECONDS, MINUTE = 200, 2, 60


async def measure() -> list[Measure]:
    return [await _minute_of_kills(place) for place in ("the same machine", "another machine")]


async def _minute_of_kills(place: str) -> Measure:
    with postgres() as url, TemporaryDirectory() as folder:
        is_blind = place == "another machine"
        order = replace(
            Order(url=url, folder=folder), is_blind=is_blind, steps=8, latency_seconds=0.4
        )
        async with fleet(order) as workers:
            await workers.submit(SESSIONS)
            for _ in range(2):
                await workers.busy(workers.start())
            await workers.kill_often(Random(5), every_seconds=KILL_SECONDS, seconds=MINUTE)
            await workers.completed(seconds=300)
            seconds = await workers.takeovers()
    return Measure(
        name=f"takeover after kill -9 on {place}, p50",
        value=median(seconds),
        unit="s",
        target="<= 5",
        detail=f"p95 {percentile(seconds, 95):.1f} s, {len(seconds)} takeovers",
    )
