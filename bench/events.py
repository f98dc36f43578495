"""How long a page of 1,000 events of a session takes, over HTTP with the real door."""

from __future__ import annotations

import tempfile
import time
from pathlib import Path
from typing import Any

import aiohttp
from report import Measure, percentile

from mainspring.config import read_settings
from mainspring.core.content import TextBlock
from mainspring.core.events import (
    AgentMessage,
    AgentToolResult,
    AgentToolUse,
    ModelRequestEnded,
    ModelRequestStarted,
    StatusIdle,
    StatusRunning,
    StopReason,
    ToolCallAuthorized,
    ToolCallStarted,
    Usage,
)
from mainspring.edges.api.app import Api, http_server
from mainspring.edges.api.route_table import all_routes
from mainspring.log.session_log import SessionLog
from mainspring.service.access.api_keys import ensure_first_key
from mainspring.service.authorization.authentication import Authenticator
from mainspring.wiring.service_assembly import open_service

_EVENTS = 1000
_REQUESTS = 30
_TEXT = "A line that a program prints, about as long as lines are.\n" * 30


async def measure() -> list[Measure]:
    with tempfile.TemporaryDirectory() as folder:
        place = Path(folder)
        settings = read_settings(
            store=str(place / "mainspring.db"), environ={"MAINSPRING_VAULT": str(place / "vault")}
        )
        async with open_service(settings) as service:
            records = service.infrastructure.store.records
            key = await ensure_first_key(records)
            api = Api(all_routes(service), access_control=Authenticator(records))
            async with (
                http_server(api.application()) as url,
                aiohttp.ClientSession(url, headers={"x-api-key": key or ""}) as http,
            ):
                session_id = await _session(http)
                await _fill(service.infrastructure.log, session_id)
                return await _pages(http, session_id)


async def _session(http: aiohttp.ClientSession) -> str:
    async def make(path: str, **body: object) -> Any:  # noqa: ANN401 (JSON)
        async with http.post(path, json=body) as response:
            return (await response.json())["id"]

    agent = await make("/v1/agents", name="clerk", model="claude-opus-5-5")
    environment = await make("/v1/environments", name="here")
    return await make("/v1/sessions", agent=agent, environment_id=environment)


async def _fill(log: SessionLog, session_id: str) -> None:
    """As a session at work writes: a call with its result in each turn."""
    writer = await log.hold(session_id, owner="bench")
    await writer.append(StatusRunning())
    for number in range(_EVENTS // 5 + 1):
        [started] = await writer.append(ModelRequestStarted(model="claude-opus-5-5"))
        _, _, use = await writer.append(
            ModelRequestEnded(model_request_start_id=started.id, model_usage=Usage()),
            AgentMessage(content=(TextBlock(f"Step {number}."),)),
            AgentToolUse(name="bash", input={"command": f"make step-{number}"}),
        )
        await writer.append(
            ToolCallAuthorized(tool_use_id=use.id, decision="allow", gate="mode"),
            ToolCallStarted(tool_use_id=use.id, idempotency_key=use.id),
            AgentToolResult(tool_use_id=use.id, content=(TextBlock(_TEXT),)),
        )
    await writer.append(StatusIdle(stop_reason=StopReason(type="end_turn"), reason="completed"))
    await writer.release()


async def _pages(http: aiohttp.ClientSession, session_id: str) -> list[Measure]:
    seconds: list[float] = []
    size = count = 0
    for _ in range(_REQUESTS):
        begun = time.perf_counter()
        async with http.get(f"/v1/sessions/{session_id}/events?limit={_EVENTS}") as response:
            body = await response.read()
        seconds.append(time.perf_counter() - begun)
        size, count = len(body), body.count(b'"processed_at"')
    assert count == _EVENTS, count
    detail = f"{_EVENTS} events, {size / 1e6:.1f} MB, {_REQUESTS} requests"
    return [
        Measure(
            name="page of 1,000 events, p50",
            value=percentile(seconds, 50) * 1000,
            unit="ms",
            target="<= 100",
            detail=detail,
        ),
        Measure(
            name="page of 1,000 events, p95",
            value=percentile(seconds, 95) * 1000,
            unit="ms",
            detail=detail,
        ),
    ]
