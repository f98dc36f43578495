"""Processor time of a delta, when each arrives in a network read of its own: in the provider's
client, through the router too, through the harness too, and all the way to a client that streams
a session of `mainspring serve`.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
import tempfile
from collections.abc import AsyncGenerator, Awaitable, Callable, Generator
from contextlib import aclosing, asynccontextmanager, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TypeAlias

import aiohttp
import anyio
from report import Measure, median
from turns import cpu_seconds, runtime_at, serving

from mainspring import Agent
from mainspring.capabilities.providers.http_client import HttpClient
from mainspring.capabilities.providers.openai_chat import client as openai_chat
from mainspring.core.content import TextBlock
from mainspring.core.model import Model, Request, TextDelta, User

WORDS, ROUNDS = 1500, 5
_MODEL = f"text-{WORDS}"
_TICK = os.sysconf("SC_CLK_TCK")


async def measure() -> list[Measure]:
    async with serving() as url, delta_costs(url) as cost:
        rounds = [await cost() for _ in range(ROUNDS)]
    return [
        Measure(
            name=f"a delta through {depth}, CPU",
            value=median([costs[depth] for costs in rounds]),
            unit="us",
            detail=f"{ROUNDS} replies of {WORDS:,} deltas",
        )
        for depth in rounds[0]
    ]


Costs: TypeAlias = Callable[[], Awaitable[dict[str, float]]]
"""Microseconds of a reply's deltas, by what they go through."""


@asynccontextmanager
async def delta_costs(url: str) -> AsyncGenerator[Costs, None]:
    """`url` is the model's."""
    with tempfile.TemporaryDirectory() as folder:
        store = str(Path(folder, "bench.db"))
        async with (
            HttpClient() as http,
            runtime_at(url, store) as runtime,
            _service(url) as service,
        ):
            client = _chat_client(http, url)
            router = runtime.models.open(f"vllm:{_MODEL}")
            agent = Agent(name="talker", model=f"vllm:{_MODEL}")

            async def session() -> None:
                await (await runtime.start(agent, "go")).run()

            async def costs() -> dict[str, float]:
                return {
                    "the client": await _microseconds(lambda: _read(client)),
                    "client and router": await _microseconds(lambda: _read(router)),
                    "client, router and harness": await _microseconds(session),
                    "all of these and the API": await service.reply() * 1e6,
                }

            await costs()  # warm
            yield costs


def _chat_client(http: HttpClient, url: str) -> Model:
    """Also of commits from before `HttpModel`, with which `compare.py` compares."""
    if not hasattr(openai_chat, "CHAT"):
        return getattr(openai_chat, "ChatModel")(http, url=url, provider="vllm")  # noqa: B009
    from mainspring.capabilities.providers.adapter import HttpModel  # noqa: PLC0415

    return HttpModel(http, openai_chat.CHAT, url=url, provider="vllm")


async def _microseconds(work: Callable[[], Awaitable[object]]) -> float:
    return await cpu_seconds(work) / WORDS * 1e6


async def _read(model: Model) -> None:
    request = Request(
        model=_MODEL, system=("s",), tools=(), messages=(User((TextBlock("go"),)),), max_tokens=1000
    )
    count = 0
    async with aclosing(model.stream(request)) as parts:
        async for part in parts:
            count += isinstance(part, TextDelta)
    assert count == WORDS, count


@dataclass(frozen=True, slots=True)
class _Service:
    pid: int
    http: aiohttp.ClientSession
    agent_id: str
    environment_id: str

    async def reply(self) -> float:
        """Seconds that the service spends on a delta, in a session with one reader."""
        place = {"agent": self.agent_id, "environment_id": self.environment_id}
        session_id = await _created(self.http, "sessions", place)
        path = f"/v1/sessions/{session_id}/events"
        message = {"type": "user.message", "content": [{"type": "text", "text": "go"}]}
        before = _cpu_seconds(self.pid)
        with anyio.fail_after(120):
            async with self.http.get(f"{path}/stream?event_deltas=agent.message") as stream:
                async with self.http.post(path, json={"events": [message]}) as sent:
                    sent.raise_for_status()
                characters = await _preview_characters(stream.content)
        assert characters >= WORDS * len("word ") * 0.9, (
            characters
        )  # the end may only be in the log
        return (_cpu_seconds(self.pid) - before) / WORDS


async def _preview_characters(lines: aiohttp.StreamReader) -> int:
    """How much text came in previews, until the session was idle."""
    characters = 0
    async for line in lines:
        if line.startswith(b"event: session.status_idle"):
            break
        if line.startswith(b"data:") and b'"content_delta"' in line:
            characters += line.count(b"word ") * len("word ")
    return characters


@asynccontextmanager
async def _service(model_url: str) -> AsyncGenerator[_Service, None]:
    """`mainspring serve` of the same code as this process has imported."""
    with tempfile.TemporaryDirectory() as folder, _serve(model_url, folder) as process:
        url, key = await anyio.to_thread.run_sync(_address_and_key, process)
        async with aiohttp.ClientSession(url, headers={"x-api-key": key}) as http:
            agent = {"name": "talker", "model": f"vllm:{_MODEL}"}
            agent_id = await _created(http, "agents", agent)
            environment_id = await _created(http, "environments", {"name": "bench"})
            yield _Service(process.pid, http, agent_id, environment_id)


@contextmanager
def _serve(model_url: str, folder: str) -> Generator[subprocess.Popen[str]]:
    process = subprocess.Popen(
        [sys.executable, "-m", "mainspring", "serve", "--port", "0", "--allow-root"],
        cwd=folder,
        env={**os.environ, "HOME": folder, "VLLM_BASE_URL": model_url},
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
    )
    try:
        yield process
    finally:
        process.kill()
        process.communicate()


def _address_and_key(process: subprocess.Popen[str]) -> tuple[str, str]:
    assert process.stdout is not None
    words: list[str] = []
    for line in process.stdout:
        words += re.findall(r"http://\S+|msk_\S+", line)
        if len(words) == 2:
            return words[0], words[1]
    raise SystemExit("mainspring serve did not start")


async def _created(http: aiohttp.ClientSession, kind: str, body: dict[str, str]) -> str:
    async with http.post(f"/v1/{kind}", json=body) as answer:
        content = await answer.json()
        assert answer.ok, content
        return content["id"]


def _cpu_seconds(pid: int) -> float:
    fields = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8").rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / _TICK
