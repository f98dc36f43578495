"""Streams on loopback: a log, the routes over it, and a client that reads frames."""

import json
from collections.abc import AsyncGenerator, Callable, Iterable, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType
from typing import Any

import aiohttp
import anyio
from anthropic import AsyncAnthropic, AsyncStream
from tests.api.api_server import Tags, official_client

from mainspring import Agent, Runtime, open_runtime
from mainspring.capabilities.vault.redaction import Scrubber, multi_word_secrets
from mainspring.core.errors import NotFound
from mainspring.core.model import Delta, Reply, TextDelta
from mainspring.edges.api.app import Api, http_server
from mainspring.edges.api.route import routes_of
from mainspring.edges.api.routes.run.events import StreamRoutes
from mainspring.edges.api.sse import StreamTiming
from mainspring.log.session_log import SessionLog
from mainspring.runtime.session.streaming_redactor import BOUNDARIES
from mainspring.service.access.principal import Principal
from mainspring.service.sessions.events.event_streams import EventStreams, StreamLimits
from mainspring.service.sessions.events.preview_deltas import (
    Deltas,
    LocalDeltas,
    PreviewPiece,
    PreviewPublisher,
    PreviewText,
)
from mainspring.testing import Model, Request

CLERK = Agent(name="clerk")
BRISK = StreamTiming(heartbeat_seconds=15, patience_seconds=5)


@dataclass(frozen=True, slots=True)
class Frame:
    name: str
    data: dict[str, Any]
    seq: int | None = None


@dataclass(frozen=True, slots=True)
class Station:
    """A server of streams and what it serves."""

    url: str
    log: SessionLog
    deltas: Deltas
    streams: EventStreams

    def client(self, key: str = "acme:admin") -> AsyncAnthropic:
        return official_client(self.url, key)

    @asynccontextmanager
    async def raw(
        self, session_id: str, *, last: int | str | None = None, **query: str
    ) -> AsyncGenerator[aiohttp.ClientResponse]:
        headers = {"x-api-key": "acme:viewer"}
        if last is not None:
            headers["last-event-id"] = str(last)
        url = f"{self.url}/v1/sessions/{session_id}/events/stream"
        async with (
            aiohttp.ClientSession() as http,
            http.get(url, headers=headers, params=query) as response,
        ):
            yield response


async def frames(response: aiohttp.ClientResponse) -> AsyncGenerator[Frame]:
    """What comes, without pings; a half frame at the end is not one."""
    name, data, seq = "", "", None
    async for line in response.content:
        label, _, value = line.decode().rstrip("\n").partition(": ")
        match label:
            case "id":
                seq = int(value)
            case "event":
                name = value
            case "data":
                data = value
            case _:
                if name != "ping":
                    yield Frame(name, json.loads(data), seq)
                name, data, seq = "", "", None


def grown(pieces: Iterable[PreviewPiece], event_id: str | None = None) -> str:
    return "".join(
        p.text for p in pieces if isinstance(p, PreviewText) and event_id in (None, p.event_id)
    )


async def eventually(is_so: Callable[[], bool]) -> None:
    while not is_so():  # noqa: ASYNC110 (what it waits for has no event, and needs none)
        await anyio.sleep(0.01)


@asynccontextmanager
async def thread_workspace(
    log: SessionLog,
    *,
    deltas: Deltas | None = None,
    pace: StreamTiming = BRISK,
    limits: StreamLimits | None = None,
) -> AsyncGenerator[Station]:
    """Its sessions are all acme's."""
    deltas = deltas or LocalDeltas()
    streams = EventStreams(log, deltas, limits=limits or StreamLimits())

    async def find(principal: Principal, session_id: str) -> None:
        if principal.tenant != "acme":
            raise NotFound("session", session_id)
        await log.session(session_id)

    api = Api(routes_of(StreamRoutes(streams, find, pace)), access_control=Tags())
    async with http_server(api.application()) as url:
        try:
            yield Station(url, log, deltas, streams)
        finally:
            streams.close()


@dataclass(frozen=True, slots=True)
class Studio:
    """A station, and a runtime whose sessions it shows."""

    thread_workspace: Station
    runtime: Runtime
    secrets: Mapping[str, str]

    async def start(self) -> str:
        return (await self.runtime.start(CLERK)).id

    async def run(self, session_id: str, message: str) -> None:
        session = await self.runtime.resume(CLERK, session_id)
        await session.send(message)
        previews = PreviewPublisher(
            self.thread_workspace.deltas,
            await self.runtime.log.session(session_id),
            scrub=self.runtime.log.scrub,
            passages=multi_word_secrets(self.secrets, BOUNDARIES),
        )
        await session.run(previews.emit, tell=previews.on_event)

    async def side_events(self, session_id: str, message: str) -> list[PreviewPiece]:
        """Run, and all that was published meanwhile."""
        with self.thread_workspace.deltas.listen(session_id, lambda: None) as subscription:
            await self.run(session_id, message)
            return subscription.take()


@asynccontextmanager
async def studio(
    folder: Path, model: Model, *, secrets: Mapping[str, str] = MappingProxyType({})
) -> AsyncGenerator[Studio]:
    async with open_runtime(store=str(folder / "log.db")) as runtime:
        runtime.models.put(CLERK.model, model)
        runtime.log = SessionLog(runtime.log.store, scrub=Scrubber(secrets))
        async with thread_workspace(runtime.log) as there:
            yield Studio(there, runtime, secrets)


class Held:
    """Says what another model says, but ends no reply until it is told to."""

    def __init__(self, model: Model, *, at: str = "") -> None:
        self.has_begun = anyio.Event()
        self.may_end = anyio.Event()
        self._model = model
        self._at = at
        """Of the text, the piece to stop before; the reply itself if there is none such."""

    async def stream(self, request: Request) -> AsyncGenerator[Delta | Reply]:
        async for item in self._model.stream(request):
            if isinstance(item, Reply) or (isinstance(item, TextDelta) and item.text == self._at):
                self.has_begun.set()
                await self.may_end.wait()
            yield item


async def until_idle(stream: AsyncStream[Any], *, held: Held | None = None) -> list[Any]:
    """`Any`: the client's union of all events. A held reply ends once its text was seen to grow."""
    seen: list[Any] = []
    with anyio.fail_after(60):
        async for event in stream:
            seen.append(event)
            if held is not None and event.type == "event_delta":
                held.may_end.set()
            if event.type == "session.status_idle":
                break
    return seen
