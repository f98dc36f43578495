"""Streams of one API process: how soon a reader hears, what a thousand idle ones cost, and what
the API adds to sending an event. The server is a process of its own; the clients are this one.
"""

from __future__ import annotations

import os
import re
import sys
import time
from collections.abc import AsyncGenerator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import aiohttp
import anyio
from msgspec import Struct
from report import Measure, median, percentile

from mainspring.core.content import TextBlock
from mainspring.core.events import AgentMessage, UserMessage
from mainspring.core.sender import Origin, Sender
from mainspring.edges.api.app import Api, http_server
from mainspring.edges.api.route import ApiCall, Empty, Route, routes_of
from mainspring.edges.api.routes.run.events import EventRoutes, StreamRoutes
from mainspring.log.session_log import SessionLog
from mainspring.log.sqlite import open_sqlite
from mainspring.service.access.principal import Principal
from mainspring.service.approvals.approval_policy import AnswerPermission
from mainspring.service.authorization.authentication import AuthenticationResult, RequestCredentials
from mainspring.service.resources.agents import Agents, CreateAgent
from mainspring.service.resources.environments import CreateEnvironment, Environments
from mainspring.service.sessions.dependencies import SessionDependencies
from mainspring.service.sessions.event_sender import EventSender
from mainspring.service.sessions.events.event_pages import EventPages
from mainspring.service.sessions.events.event_streams import EventStreams
from mainspring.service.sessions.events.preview_deltas import LocalDeltas
from mainspring.service.sessions.resource_types import ResourceLookups
from mainspring.service.sessions.session_params import CreateSession
from mainspring.service.sessions.session_record import SessionRecord
from mainspring.service.sessions.sessions import Sessions

BUSY, APPENDS, APPEND_SECONDS = 200, 15, 1.0
IDLE, IDLE_SECONDS = 1000, 10.0
SENDS = 300
_TESTER = Sender(kind="person", id="tester")
_WHO = Principal(tenant="bench", key_id="key_bench", role="admin")
_STAMP = re.compile(rb'"text":"([0-9.]+)"')


def now() -> float:
    """By the clock that all processes share."""
    return time.clock_gettime(time.CLOCK_MONOTONIC)


async def measure() -> list[Measure]:
    async with _server() as server:
        found = [await _latency(server)]
    async with _server() as server:
        found += await _idle(server)
    async with _server() as server:
        found.append(await _added(server))
    return found


# --- the clients


@dataclass(frozen=True, slots=True)
class Server:
    url: str
    pid: int
    folder: Path
    http: aiohttp.ClientSession

    async def make(self, count: int) -> list[str]:
        async with self.http.post(f"{self.url}/bench/sessions", json={"count": count}) as made:
            return await made.json()

    async def stream(self, session_id: str, each: Callable[[bytes], bool]) -> None:
        """Read until `each` line has said that it is enough."""
        async with self.http.get(f"{self.url}/v1/sessions/{session_id}/events/stream") as stream:
            each(b"")
            async for line in stream.content:
                if each(line):
                    return

    @property
    def rss_mb(self) -> float:
        status = Path(f"/proc/{self.pid}/status").read_text()
        return int(re.findall(r"VmRSS:\s+(\d+)", status)[0]) / 1024

    @property
    def cpu_seconds(self) -> float:
        fields = Path(f"/proc/{self.pid}/stat").read_text().rpartition(")")[2].split()
        return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


@asynccontextmanager
async def _server() -> AsyncGenerator[Server, None]:
    with TemporaryDirectory() as folder:
        command = [sys.executable, __file__, folder]
        process = await anyio.open_process(command, stderr=None)
        assert process.stdout is not None
        try:
            url = (await process.stdout.receive()).decode().strip()
            connector = aiohttp.TCPConnector(limit=0)
            patience = aiohttp.ClientTimeout(total=None)
            async with aiohttp.ClientSession(connector=connector, timeout=patience) as http:
                yield Server(url, process.pid, Path(folder), http)
        finally:
            with anyio.CancelScope(shield=True):
                process.kill()
                await process.aclose()


async def _latency(server: Server) -> Measure:
    sessions = await server.make(BUSY)
    seconds: list[float] = []
    opened, all_open = 0, anyio.Event()
    begun, cpu = now(), server.cpu_seconds

    async def read(session_id: str) -> None:
        heard = 0

        def line(text: bytes) -> bool:
            nonlocal opened, heard
            if not text:
                opened += 1
                if opened == BUSY:
                    all_open.set()
            elif stamp := _STAMP.search(text):
                seconds.append(now() - float(stamp[1]))
                heard += 1
            return heard == APPENDS

        await server.stream(session_id, line)

    async with anyio.create_task_group() as group:
        for session_id in sessions:
            group.start_soon(read, session_id)
        await all_open.wait()
        begun, cpu = now(), server.cpu_seconds
        async with server.http.post(f"{server.url}/bench/appends") as answer:
            answer.raise_for_status()
    share = (server.cpu_seconds - cpu) / (now() - begun)
    rate = BUSY * APPENDS / (now() - begun)
    detail = (
        f"p99 {percentile(seconds, 99) * 1000:.1f} ms; {rate:.0f} events/s, {share:.0%} of a core"
    )
    return Measure(
        name=f"append to SSE client, {BUSY} sessions with a stream each",
        value=median(seconds) * 1000,
        unit="ms",
        target="<= 20",
        detail=detail,
    )


async def _idle(server: Server) -> list[Measure]:
    sessions = await server.make(IDLE)
    before = rss = server.rss_mb
    share = 0.0
    opened, all_open = 0, anyio.Event()

    def line(text: bytes) -> bool:
        nonlocal opened
        opened += not text
        if opened == IDLE:
            all_open.set()
        return False

    async with anyio.create_task_group() as group:
        for session_id in sessions:
            group.start_soon(server.stream, session_id, line)
        await all_open.wait()
        await anyio.sleep(1)
        cpu = server.cpu_seconds
        await anyio.sleep(IDLE_SECONDS)
        share = (server.cpu_seconds - cpu) / IDLE_SECONDS
        rss = server.rss_mb
        group.cancel_scope.cancel()
    each = (rss - before) * 1024 / IDLE
    return [
        Measure(
            name=f"{IDLE:,} idle streams, the server's memory",
            value=rss,
            unit="MB",
            target="<= 300",
            detail=f"{before:.0f} MB before; {each:.0f} kB a stream",
        ),
        Measure(
            name=f"{IDLE:,} idle streams, the server's processor",
            value=share * 100,
            unit="% core",
        ),
    ]


async def _added(server: Server) -> Measure:
    [session_id] = await server.make(1)
    body = {"events": [{"type": "user.message", "content": [{"type": "text", "text": "hello"}]}]}
    url = f"{server.url}/v1/sessions/{session_id}/events"

    async def through_the_api() -> None:
        async with server.http.post(url, json=body) as answer:
            answer.raise_for_status()
            await answer.read()

    async with open_sqlite(server.folder / "straight.db") as store:
        log = SessionLog(store)
        straight_id = (await log.create()).id
        payload = UserMessage(content=(TextBlock("hello"),))

        async def straight() -> None:
            await log.submit(straight_id, payload, sender=_TESTER)

        one, other = await _alternating(through_the_api, straight)
    added = (median(one) - median(other)) * 1000
    detail = f"p50 {median(one) * 1000:.1f} ms, straight into the log {median(other) * 1000:.1f} ms"
    return Measure(
        name="sending an event, added by the API",
        value=added,
        unit="ms",
        target="<= 5",
        detail=f"{detail}; p99 {percentile(one, 99) * 1000:.1f} ms",
    )


async def _alternating(
    *acts: Callable[[], Awaitable[None]],
) -> tuple[Sequence[float], ...]:
    seconds: tuple[list[float], ...] = tuple([] for _ in acts)
    for _ in range(SENDS):
        for act, spent in zip(acts, seconds, strict=True):
            begun = now()
            await act()
            spent.append(now() - begun)
    return seconds


# --- the server


class _Everybody:
    async def admit(self, credentials: RequestCredentials, route: Route) -> AuthenticationResult:
        return AuthenticationResult(who=_WHO)

    async def check_named(self, *_named: object) -> None:
        """Everybody may name everything."""


class _Unsealed:
    def seal(self, plain: bytes, context: str) -> bytes:
        raise NotImplementedError

    def unseal(self, sealed: bytes, context: str) -> bytes:
        raise NotImplementedError


class _Count(Struct, frozen=True):
    count: int


@dataclass(slots=True)
class _Hosted:
    sessions: Sessions
    agent_id: str
    environment_id: str

    def routes(self) -> tuple[Route, ...]:
        return (
            Route(
                method="POST",
                path="/bench/sessions",
                handle=self.make,
                summary="Make sessions",
                body=_Count,
                response_type=list[str],
            ),
            Route(
                method="POST",
                path="/bench/appends",
                handle=self.append,
                summary="Append to all of them, now and then",
                response_type=int,
            ),
        )

    async def make(self, call: ApiCall[Empty, _Count]) -> list[str]:
        asked = CreateSession(agent=self.agent_id, environment_id=self.environment_id)
        origin = Origin(type="api")
        return [
            (await self.sessions.create(_WHO, asked, origin=origin)).id
            for _ in range(call.body.count)
        ]

    async def append(self, _call: ApiCall[Any, Any]) -> int:
        rows = await self.sessions.log.sessions(limit=BUSY)
        async with anyio.create_task_group() as group:
            for place, row in enumerate(rows):
                group.start_soon(self._talk, row.id, place / len(rows) * APPEND_SECONDS)
        return len(rows)

    async def _talk(self, session_id: str, later: float) -> None:
        writer = await self.sessions.log.hold(session_id, owner="bench", seconds=60)
        await anyio.sleep(later)
        for _ in range(APPENDS):
            await writer.append(AgentMessage(content=(TextBlock(f"{now():.6f}"),)))
            await anyio.sleep(APPEND_SECONDS)


async def _unwoken(_tenant: str, _session: SessionRecord) -> None:
    pass


async def _serve(folder: Path) -> None:
    async with open_sqlite(folder / "log.db") as store:
        log = SessionLog(store)
        agents, environments = Agents(store.records), Environments(store.records)
        dependencies = SessionDependencies(
            agents=agents,
            environments=environments,
            lookups=ResourceLookups(seal=_Unsealed()),
            wake_session=_unwoken,
        )
        sessions = Sessions(log, dependencies)
        agent = await agents.create(_WHO.tenant, CreateAgent(name="bench", model="bench:model"))
        place = await environments.create(_WHO.tenant, CreateEnvironment(name="bench"))
        routes = (
            *routes_of(_Hosted(sessions, agent.id, place.id)),
            *routes_of(StreamRoutes(EventStreams(log, LocalDeltas()), sessions.record)),
            *routes_of(
                EventRoutes(
                    sessions,
                    EventSender(sessions, AnswerPermission(store.records)),
                    EventPages(log),
                )
            ),
        )
        async with http_server(Api(routes, access_control=_Everybody()).application()) as url:
            print(url, flush=True)
            await anyio.sleep_forever()


if __name__ == "__main__":
    anyio.run(_serve, Path(sys.argv[1]))
