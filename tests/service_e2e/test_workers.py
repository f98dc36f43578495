"""One process that serves and two that work, over PostgreSQL; one of them dies at work."""

import signal
import threading
from typing import Any

import anyio
from anthropic import AsyncAnthropic, AsyncStream
from anyio.abc import Process
from tests.service_e2e.service_processes import (
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


async def test_a_worker_takes_over_from_a_killed_one(shared_stage: Stage):
    stage = shared_stage
    async with (
        stage.serve("--no-worker") as api,
        api.client() as client,
        stage.worker("--concurrency", "1") as doomed,
    ):
        long = await begun(client, waiting(), bash("cat effects"), "say survived")
        workspace = stage.workspaces / long
        await eventually(workspace / "effects", "began")
        speaker = await begun(client)
        async with (
            await client.beta.sessions.events.stream(
                speaker, event_deltas=["agent.message"]
            ) as stream,
            stage.worker() as other,
        ):
            heard = threading.Event()
            stage.model.says("one two\n", heard, "three four")
            await told(client, speaker, "speak slowly")  # to the other: the first worker is full
            await _check_that_deltas_stream(stream, heard)
            doomed.send_signal(signal.SIGKILL)
            await doomed.wait()
            (workspace / "go").touch()
            events = await upto_idle(client, long)
            assert results(events) == ["went on", "began\nended"]
            assert said(events) == ["survived"]
            await _check_that_a_closing_worker_finishes_its_work(stage, client, other)


async def _check_that_deltas_stream(stream: AsyncStream[Any], heard: threading.Event) -> None:
    kinds: list[str] = []
    with anyio.fail_after(SECONDS):
        async for event in stream:
            kinds.append(event.type)
            if event.type == "event_delta":
                heard.set()
            if event.type == "session.status_idle":
                break
    assert kinds.index("event_start") < kinds.index("event_delta") < kinds.index("agent.message")


async def _check_that_a_closing_worker_finishes_its_work(
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
