"""One process that serves and two that work, over PostgreSQL; one of them dies at work."""

from __future__ import annotations

import signal
import threading
from typing import Any

import anyio
from anthropic import AsyncAnthropic
from anyio.abc import Process
from tests.service_e2e.staging import (
    SECONDS,
    Stage,
    bash,
    begun,
    eventually,
    results,
    said,
    told,
    upto_idle,
    waiting,
)


async def test_a_worker_takes_over_from_one_that_was_killed(shared_stage: Stage):
    stage = shared_stage
    async with (
        stage.serve("--no-worker") as api,
        api.client() as client,
        stage.worker("--concurrency", "1") as doomed,
    ):
        long = await begun(client, waiting(), bash("cat effects"), "say survived")
        workspace = stage.workspaces / long
        await eventually(workspace / "effects", "began")
        async with stage.worker() as other:
            await _words_reach_streams_of_another_process(stage, client)  # the first worker is full
            doomed.send_signal(signal.SIGKILL)
            await doomed.wait()
            (workspace / "go").touch()
            events = await upto_idle(client, long)
            assert results(events) == ["went on", "began\nended"]
            assert said(events) == ["survived"]
            await _work_is_finished_before_a_worker_ends(stage, client, other)


async def _words_reach_streams_of_another_process(stage: Stage, client: AsyncAnthropic) -> None:
    session_id = await begun(client)
    stream = await client.beta.sessions.events.stream(session_id, event_deltas=["agent.message"])
    heard = threading.Event()
    stage.model.says("one two\n", heard, "three four")
    events: list[Any] = []
    with anyio.fail_after(SECONDS):
        async with stream:
            await told(client, session_id, "speak slowly")
            async for event in stream:
                events.append(event)
                if event.type == "event_delta":
                    heard.set()
                if event.type == "session.status_idle":
                    break
    kinds = [event.type for event in events]
    assert kinds.index("event_start") < kinds.index("event_delta") < kinds.index("agent.message")


async def _work_is_finished_before_a_worker_ends(
    stage: Stage, client: AsyncAnthropic, last: Process
) -> None:
    session_id = await begun(client, waiting(), "say rested")
    workspace = stage.workspaces / session_id
    await eventually(workspace / "effects", "began")
    last.terminate()
    unheard = await begun(client, "say nobody is there")
    (workspace / "go").touch()
    assert said(await upto_idle(client, session_id)) == ["rested"]
    with anyio.fail_after(SECONDS):
        assert await last.wait() == 0
    kinds = [event.type async for event in client.beta.sessions.events.list(unheard)]
    assert kinds == ["user.message"]
