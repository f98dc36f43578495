"""One process that serves and two that work, over PostgreSQL; one of them dies at work."""

from __future__ import annotations

import signal

import anyio
from tests.service_e2e.staging import (
    SECONDS,
    Stage,
    bash,
    begun,
    ended,
    eventually,
    message,
    results,
    said,
    upto_idle,
)


async def test_a_worker_takes_over_from_one_that_was_killed(shared_stage: Stage):
    stage = shared_stage
    async with (
        stage.serve("--no-worker") as api,
        api.client() as client,
        stage.worker("--concurrency", "1") as doomed,
    ):
        long = await begun(
            client,
            bash("echo once >> effects; sleep 50; echo late >> effects"),
            bash("cat effects; echo twice >> effects"),
            "say survived",
        )
        effects = stage.workspaces / long / "effects"
        await eventually(effects, "once")
        async with stage.worker() as other:
            short = await begun(client, bash("echo here"), "say done")  # the first one is full
            assert said(await upto_idle(client, short)) == ["done"]
            doomed.send_signal(signal.SIGKILL)
            events = await upto_idle(client, long)
            assert said(events) == ["survived"]
            assert effects.read_text() == "once\ntwice\n"
            cut_off, after = results(events)
            assert "once" not in cut_off
            assert after.startswith("once")
            assert await ended(other) == 0


async def test_words_reach_streams_of_another_process_as_they_are_spoken(shared_stage: Stage):
    async with (
        shared_stage.serve("--no-worker") as api,
        api.client() as client,
        shared_stage.worker(),
    ):
        session_id = await begun(client)
        stream = await client.beta.sessions.events.stream(
            session_id, event_deltas=["agent.message"]
        )
        events = []
        with anyio.fail_after(SECONDS):
            async with stream:
                await client.beta.sessions.events.send(
                    session_id, events=[message("say one two three four")]
                )
                async for event in stream:
                    events.append(event)
                    if event.type == "session.status_idle":
                        break
    kinds = [event.type for event in events]
    assert kinds.index("event_start") < kinds.index("event_delta") < kinds.index("agent.message")


async def test_a_worker_that_is_told_to_end_finishes_what_it_does_first(shared_stage: Stage):
    async with (
        shared_stage.serve("--no-worker") as api,
        api.client() as client,
        shared_stage.worker() as worker,
    ):
        session_id = await begun(client, bash("touch began; sleep 2; echo slept"), "say rested")
        await eventually(shared_stage.workspaces / session_id / "began", "")
        later = None
        assert await ended(worker) == 0
        events = await upto_idle(client, session_id)
        assert results(events) == ["slept"]
        later = await begun(client, "say hello")
        assert (await client.beta.sessions.retrieve(later)).status != "terminated"
        async with shared_stage.worker():
            assert said(await upto_idle(client, later)) == ["hello"]
