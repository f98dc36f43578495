"""Worker processes to start and kill, sessions for them, and what is true when all is over."""

import os
import signal
import subprocess
import sys
from collections import Counter
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path
from random import Random

import anyio
import msgspec
from tests.crash.stores import open_store
from tests.fleet.effects import ledger_of, steps
from tests.fleet.worker_main import Order
from tests.service.worker_setup import known_session

from mainspring.core import clock
from mainspring.core.events import SessionWoken, StatusIdle
from mainspring.log.session_log import SessionLog
from mainspring.log.verify import verify

ROOT = Path(__file__).parents[2]


@dataclass
class Fleet:
    order: Order
    log: SessionLog
    nursery: subprocess.Popen[bytes]
    sessions: list[str] = field(default_factory=list[str])
    workers: list[int] = field(default_factory=list[int])
    kills: list[tuple[datetime, list[str]]] = field(
        default_factory=list[tuple[datetime, list[str]]]
    )
    """When, and the sessions that it held."""

    def start(self) -> int:
        """Its process id."""
        assert self.nursery.stdin is not None
        assert self.nursery.stdout is not None
        self.nursery.stdin.write(msgspec.json.encode(self.order) + b"\n")
        self.nursery.stdin.flush()
        worker = int(self.nursery.stdout.readline())
        self.workers.append(worker)
        return worker

    async def submit(self, count: int) -> None:
        """Sessions with a message each, for which nobody is woken: they are to be found."""
        for number in range(count):
            tenant = f"tenant {number % 3}"
            self.sessions.append(await known_session(self.log, tenant=tenant, text="go"))

    async def held_by(self, worker: int) -> list[str]:
        rows = await self.log.sessions(limit=10_000)
        return [row.id for row in rows if row.owner and row.owner.endswith(f"/{worker}")]

    async def busy(self, worker: int, *, sessions: int = 1) -> None:
        """Until it holds so many."""
        with anyio.fail_after(60):
            while True:
                if len(await self.held_by(worker)) >= sessions:
                    return
                await anyio.sleep(0.05)  # nothing tells one process that another has begun

    async def kill(self, worker: int) -> None:
        held = await self.held_by(worker)
        self.kills.append((clock.now(), held))
        await self.end(worker, signal.SIGKILL)

    async def kill_during_a_run(self, worker: int) -> None:
        """Kill it while two sessions are unfinished; it is stopped first to make that certain."""
        with anyio.fail_after(60):
            while True:
                await self.busy(worker, sessions=2)
                os.kill(worker, signal.SIGSTOP)
                held = await self.held_by(worker)
                if sum(self._is_underway(session_id) for session_id in held) >= 2:
                    return await self.kill(worker)
                os.kill(worker, signal.SIGCONT)
                await anyio.sleep(0.05)

    def _is_underway(self, session_id: str) -> bool:
        """Some steps are done and some are not, so that the next owner writes `session.woken`."""
        deeds = ledger_of(Path(self.order.folder), session_id).deeds()
        return 0 < len({deed.step for deed in deeds}) < self.order.steps

    async def end(self, worker: int, how: signal.Signals) -> None:
        self.workers.remove(worker)
        os.kill(worker, how)
        with anyio.fail_after(60):
            while True:
                try:
                    os.kill(worker, 0)
                except ProcessLookupError:
                    return
                await anyio.sleep(0.01)

    async def kill_often(self, random: Random, *, every_seconds: float, seconds: float) -> None:
        """A random one each time, and another in its place at once.

        Not in step with leases, which would kill each taker just as it begins: of that, a session
        is given up after five times, as one that kills its workers itself.
        """
        until = anyio.current_time() + seconds
        while anyio.current_time() < until:
            await anyio.sleep(every_seconds * random.uniform(0.5, 1.5))
            await self.kill(random.choice(self.workers))
            self.start()

    async def completed(self, *, seconds: float) -> None:
        with anyio.fail_after(seconds):
            async with anyio.create_task_group() as group:
                for session_id in self.sessions:
                    group.start_soon(self._idle, session_id)

    async def _idle(self, session_id: str) -> None:
        async for event in self.log.follow(session_id):
            if isinstance(event.payload, StatusIdle):
                assert event.payload.reason == "completed", event.payload
                return

    async def check(self) -> None:
        """Every effect of every session once, every chain whole."""
        plan = steps(self.order.steps, is_gentle=self.order.is_gentle)
        for session_id in self.sessions:
            deeds = ledger_of(Path(self.order.folder), session_id).deeds()
            assert Counter(deed.step for deed in deeds) == Counter(list(plan)), session_id
            assert not (await verify(self.log, session_id)).problems

    async def takeovers(self) -> list[float]:
        """Seconds from each kill to the first that another did for a session of the killed."""
        found: list[float] = []
        for killed_at, sessions in self.kills:
            for session_id in sessions:
                woken = [
                    event.time
                    for event in await self.log.read(session_id)
                    if isinstance(event.payload, SessionWoken) and event.time > killed_at
                ]
                found += [(time - killed_at).total_seconds() for time in woken[:1]]
        return sorted(found)


@asynccontextmanager
async def fleet(order: Order) -> AsyncGenerator[Fleet]:
    nursery = subprocess.Popen(
        [sys.executable, "-m", "tests.fleet.worker_main"],
        cwd=ROOT,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
    )
    async with open_store(order.url) as store:
        made = Fleet(order, SessionLog(store), nursery)
        try:
            yield made
        finally:
            for worker in made.workers:
                os.kill(worker, signal.SIGKILL)
            nursery.communicate(timeout=60)
