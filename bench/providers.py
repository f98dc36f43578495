"""Answers of models, streamed from a server in another process: what reading them costs us."""

from __future__ import annotations

import json
import sys
import time
from collections.abc import AsyncGenerator, Iterator
from contextlib import aclosing, asynccontextmanager
from itertools import pairwise

import anyio
from aiohttp import web
from anyio.streams.text import TextReceiveStream
from report import Measure, median

from mainspring.capabilities.providers.adapter import HttpModel
from mainspring.capabilities.providers.anthropic.client import ANTHROPIC
from mainspring.capabilities.providers.http_client import HttpClient
from mainspring.core.content import TextBlock
from mainspring.core.model import Model, Reply, Request, User

ROUNDS = 5
INPUT_BYTES = (250_000, 500_000, 1_000_000)
TEXT_DELTAS = 200_000
CALLS = 300


async def measure() -> list[Measure]:
    async with _serving() as url, HttpClient() as http:
        await _read(http, f"{url}/text/100")  # imports and first connections are not the question
        return [*await _tool_input(http, url), await _text(http, url), await _calls(http, url)]


async def _tool_input(http: HttpClient, url: str) -> list[Measure]:
    seconds = {
        size: min([await _cpu(http, f"{url}/input/{size}") for _ in range(ROUNDS)])
        for size in INPUT_BYTES
    }
    found: list[Measure] = []
    for smaller, larger in pairwise(INPUT_BYTES):
        detail = f"{seconds[smaller] * 1000:.0f} and {seconds[larger] * 1000:.0f} ms of CPU"
        name = f"tool input, {larger / 1e6:g} MB against {smaller / 1e6:g} MB in 16-byte deltas"
        ratio = seconds[larger] / seconds[smaller]
        found.append(Measure(name=name, value=ratio, unit="times", target="<= 2.4", detail=detail))
    return found


async def _text(http: HttpClient, url: str) -> Measure:
    rates: list[float] = []
    busy: list[float] = []
    for _ in range(ROUNDS):
        begun, cpu = time.perf_counter(), time.process_time()
        count = await _read(http, f"{url}/text/{TEXT_DELTAS}")
        rates.append(count / (time.perf_counter() - begun))
        busy.append((time.process_time() - cpu) / count)
    detail = f"{median(busy) * 1e6:.1f} µs of CPU a delta"
    return Measure(
        name="text deltas through one stream",
        value=median(rates),
        unit="/s",
        target=">= 50000",
        detail=detail,
    )


async def _calls(http: HttpClient, url: str) -> Measure:
    begun, cpu = time.perf_counter(), time.process_time()
    for _ in range(CALLS):
        await _read(http, f"{url}/text/5")
    wall = (time.perf_counter() - begun) / CALLS * 1000
    spent = (time.process_time() - cpu) / CALLS * 1000
    return Measure(name="a short call", value=spent, unit="ms CPU", detail=f"{wall:.2f} ms in all")


async def _cpu(http: HttpClient, url: str) -> float:
    begun = time.process_time()
    await _read(http, url)
    return time.process_time() - begun


async def _read(http: HttpClient, url: str) -> int:
    model: Model = HttpModel(http, ANTHROPIC, key="k", url=url)
    request = Request(
        model="m", system=("s",), tools=(), messages=(User((TextBlock("q"),)),), max_tokens=1000
    )
    count = 0
    async with aclosing(model.stream(request)) as stream:
        async for part in stream:
            count += not isinstance(part, Reply)
    return count


@asynccontextmanager
async def _serving() -> AsyncGenerator[str, None]:
    async with await anyio.open_process([sys.executable, __file__], stderr=None) as process:
        assert process.stdout is not None
        port = await TextReceiveStream(process.stdout).receive()
        try:
            yield f"http://127.0.0.1:{int(port)}"
        finally:
            process.terminate()


async def _serve() -> None:
    ready: dict[str, bytes] = {}

    async def answer(request: web.Request) -> web.StreamResponse:
        path = request.match_info["kind"], request.match_info["size"]
        if request.path not in ready:
            ready[request.path] = b"".join(_events(path[0], int(path[1])))
        response = web.StreamResponse(headers={"content-type": "text/event-stream"})
        await response.prepare(request)
        stream = ready[request.path]
        for start in range(0, len(stream), 32_768):
            await response.write(stream[start : start + 32_768])
        return response

    app = web.Application()
    app.router.add_post("/{kind}/{size}/messages", answer)
    runner = web.AppRunner(app, access_log=None)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    print(runner.addresses[0][1], flush=True)
    await anyio.sleep_forever()


def _events(kind: str, size: int) -> Iterator[bytes]:
    usage = {"input_tokens": 10, "output_tokens": 10}
    yield _event({"type": "message_start", "message": {"model": "m", "usage": usage}})
    if kind == "input":
        block: dict[str, object] = {"type": "tool_use", "id": "t", "name": "write", "input": {}}
        written = json.dumps({"text": "x" * size})
        deltas = [
            {"type": "input_json_delta", "partial_json": written[at : at + 16]}
            for at in range(0, len(written), 16)
        ]
    else:
        block = {"type": "text", "text": ""}
        deltas = [{"type": "text_delta", "text": "word "}] * size
    yield _event({"type": "content_block_start", "index": 0, "content_block": block})
    for delta in deltas:
        yield _event({"type": "content_block_delta", "index": 0, "delta": delta})
    yield _event({"type": "content_block_stop", "index": 0})
    yield _event({"type": "message_delta", "delta": {"stop_reason": "end_turn"}, "usage": usage})
    yield _event({"type": "message_stop"})


def _event(data: dict[str, object]) -> bytes:
    return f"event: {data['type']}\ndata: {json.dumps(data)}\n\n".encode()


if __name__ == "__main__":
    anyio.run(_serve)
