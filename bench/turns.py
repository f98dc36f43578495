"""What a turn costs: a model call and a trivial tool call, durable, over plain HTTP without a log.

A turn's time is that between two runs of the tool. Its processor time is that of the whole
process, model server excluded, over all requests. Everything stands in one process and one run.
"""

from __future__ import annotations

import gc
import json
import resource
import sys
import tempfile
import time
from collections import Counter
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import replace
from itertools import pairwise
from pathlib import Path

import aiohttp
import anyio
from counts import KINDS, counted_store, counted_tasks
from report import Measure, median, note
from server import postgres

from mainspring import Agent, Runtime, Session, open_runtime, tool
from mainspring.config import read_settings

HERE = Path(__file__).parent
SESSIONS, TURNS = 64, 10
STAMPS: list[float] = []


@tool(read_only=False)
async def echo(x: str) -> str:
    """Say it again."""
    STAMPS.append(time.perf_counter())
    return f"echo:{x} {len(STAMPS)}"  # never the same twice: that would be a loop


def agent(turns: int) -> Agent:
    return Agent(name="bench", model=f"vllm:fake-{turns}", tools=[echo])


@asynccontextmanager
async def serving() -> AsyncGenerator[str, None]:
    async with await anyio.open_process(
        [sys.executable, str(HERE / "model_server.py"), "0"], stderr=None
    ) as server:
        assert server.stdout is not None
        port = (await server.stdout.receive()).decode().strip()
        try:
            yield f"http://127.0.0.1:{port}/v1"
        finally:
            server.terminate()


@asynccontextmanager
async def runtime_at(url: str, store: str) -> AsyncGenerator[Runtime, None]:
    with tempfile.TemporaryDirectory() as folder:
        settings = read_settings(store=store, environ={"VLLM_BASE_URL": url}, folder=Path(folder))
        async with open_runtime(settings) as runtime:
            yield runtime


async def plain(http: aiohttp.ClientSession, url: str, turns: int) -> None:
    """The same conversation by hand: no log, no limits, no view."""
    tools = [{"type": "function", "function": {"name": "echo", "parameters": {"type": "object"}}}]
    messages: list[dict[str, object]] = [{"role": "user", "content": "go"}]
    while True:
        body = {"model": f"fake-{turns}", "stream": True, "messages": messages, "tools": tools}
        call = None
        async with http.post(f"{url}/chat/completions", json=body) as answer:
            async for line in answer.content:
                if line.startswith(b"data: {"):
                    for choice in json.loads(line[6:])["choices"]:
                        call = (choice["delta"].get("tool_calls") or [call])[0]
        if call is None:
            return
        STAMPS.append(time.perf_counter())
        messages.append({"role": "assistant", "content": None, "tool_calls": [call]})
        messages.append({"role": "tool", "tool_call_id": call["id"], "content": "echo:hi"})


def gaps() -> list[float]:
    found = [(after - before) * 1e3 for before, after in pairwise(STAMPS)]
    STAMPS.clear()
    return found


async def one(runtime: Runtime, turns: int) -> Session:
    session = await runtime.start(agent(turns), "go")
    result = await session.run()
    assert result is not None
    assert result.reason == "completed", result
    return session


async def latency(runtime: Runtime, url: str) -> list[Measure]:
    ours: list[float] = []
    bare: list[float] = []
    spent = 0.0
    async with aiohttp.ClientSession() as http:
        for _ in range(25):  # interleaved: both see the same machine
            spent += await cpu_seconds(lambda: one(runtime, TURNS))
            ours += gaps()
            await plain(http, url, TURNS)
            bare += gaps()
    return [
        Measure(name="turn, durable, p50", value=median(ours), unit="ms"),
        Measure(name="turn, plain HTTP without a log, p50", value=median(bare), unit="ms"),
        Measure(
            name="overhead of a turn over plain HTTP", value=median(ours) - median(bare), unit="ms"
        ),
        Measure(name="CPU of a turn", value=spent * 1e3 / 25 / (TURNS + 1), unit="ms"),
    ]


async def cpu_seconds(work: Callable[[], Awaitable[object]]) -> float:
    """The processor time that the process spends, in user code and in the system."""
    before = time.process_time()
    await work()
    return time.process_time() - before


async def crowd(runtime: Runtime) -> None:
    async with anyio.create_task_group() as group:
        for _ in range(SESSIONS):
            group.start_soon(one, runtime, TURNS)
    STAMPS.clear()


async def together(runtime: Runtime) -> list[Measure]:
    begun = time.perf_counter()
    spent = await cpu_seconds(lambda: crowd(runtime))
    seconds, requests = time.perf_counter() - begun, SESSIONS * (TURNS + 1)
    return [
        Measure(
            name=f"turns/s, {SESSIONS} sessions at once",
            value=SESSIONS * TURNS / seconds,
            unit="/s",
        ),
        Measure(
            name=f"CPU of a turn, {SESSIONS} sessions at once",
            value=spent * 1e3 / requests,
            unit="ms",
        ),
    ]


async def asked_for(url: str, store: str) -> list[Measure]:
    """What a turn of a session in progress asks for: the cost of 40 turns over that of 20."""
    counts: Counter[str] = Counter()
    with counted_store(counts):
        async with runtime_at(url, store) as runtime:
            await one(runtime, TURNS)
            with counted_tasks(counts):
                counts.clear()
                await one(runtime, 20)
                short = counts.copy()
                counts.clear()
                await one(runtime, 40)
    STAMPS.clear()
    return [
        Measure(name=f"{kind} a turn", value=(counts[kind] - short[kind]) / 20, unit="")
        for kind in KINDS
    ]


async def history(runtime: Runtime) -> list[Measure]:
    await one(runtime, 500)
    times = gaps()
    early, late = median(times[5:25]), median(times[-25:-5])
    return [
        Measure(name="turn 10 of a long session, p50", value=early, unit="ms"),
        Measure(
            name="turn 490, p50 (its request is 50x as long)",
            value=late,
            unit="ms",
            detail=f"{late / early:.1f}x",
        ),
    ]


def resident() -> int:
    pages = int(Path("/proc/self/statm").read_text(encoding="ascii").split()[1])
    return pages * resource.getpagesize()


async def memory(runtime: Runtime) -> list[Measure]:
    many = 5000
    gc.collect()
    before = resident()
    sessions = [await runtime.start(agent(0)) for _ in range(many)]
    gc.collect()
    idle = (resident() - before) / many
    note(f"{len(sessions)} sessions are open")
    return [
        Measure(name="memory of an idle session", value=idle / 1e3, unit="kB", target="<= 20"),
        *await in_flight(runtime, 500),
    ]


async def in_flight(runtime: Runtime, many: int) -> list[Measure]:
    """Sessions that all stand in the middle of a tool call."""
    release, everybody = anyio.Event(), anyio.Event()
    inside = 0

    @tool(name="echo", concurrent=True)
    async def hold(x: str) -> str:
        """Wait until everybody is here."""
        nonlocal inside
        inside += 1
        if inside == many:
            everybody.set()
        await release.wait()
        return x

    held = Agent(name="held", model="vllm:fake-1", tools=[hold])
    sessions = [await runtime.start(held, "go") for _ in range(many)]
    gc.collect()
    before = resident()
    used = 0.0
    async with anyio.create_task_group() as group:
        for session in sessions:
            group.start_soon(session.run)
        with anyio.fail_after(120):
            await everybody.wait()
        gc.collect()
        used = (resident() - before) / many
        release.set()
    return [
        Measure(name="memory of a session in flight", value=used / 1e3, unit="kB", target="<= 200")
    ]


async def measure() -> list[Measure]:
    with tempfile.TemporaryDirectory() as folder:
        store = str(Path(folder) / "bench.db")
        async with serving() as url, runtime_at(url, store) as runtime:
            await one(runtime, 3)  # warm
            STAMPS.clear()
            found = [
                *await latency(runtime, url),
                *await together(runtime),
                *await history(runtime),
                *await memory(runtime),
                *await asked_for(url, str(Path(folder) / "counted.db")),
            ]
    return [*found, *await on_postgres()]


async def on_postgres() -> list[Measure]:
    with postgres() as store:
        async with serving() as url, runtime_at(url, store) as runtime:
            await one(runtime, 3)
            STAMPS.clear()
            timed = [await latency(runtime, url), await together(runtime)]
            found = [*timed[0][::3], *timed[1], *await asked_for(url, store)]
    return [replace(item, name=f"PostgreSQL: {item.name}") for item in found]


async def beside_peers(mode: str) -> dict[str, float]:
    """The peers' figures, measured as they measure them, on the server that they use."""
    with tempfile.TemporaryDirectory() as folder:
        store = str(Path(folder) / "bench.db")
        async with runtime_at("http://127.0.0.1:8901/v1", store) as runtime:
            await one(runtime, TURNS)
            STAMPS.clear()
            if mode == "conc":
                rate, cpu = await together(runtime)
                return {"turns_s": rate.value, "cpu_ms_turn": cpu.value}
            times: list[float] = []
            spent = 0.0
            for _ in range(30):
                spent += await cpu_seconds(lambda: one(runtime, TURNS))
                times += gaps()
            return {"p50_ms": median(times), "cpu_ms_turn": spent * 1e3 / 30 / (TURNS + 1)}


if __name__ == "__main__":  # bench/peers.py calls it so
    print(json.dumps(anyio.run(beside_peers, sys.argv[1])))
