"""A worker in one process, the API in another: what they share is a PostgreSQL database."""

from functools import partial
from typing import Any

import anyio
from tests.api.streaming import CLERK, Held, frames, thread_workspace, until_idle
from tests.fixtures_postgres import Postgres
from tests.log.sample_sessions import says as says_it
from tests.log.sample_sessions import told

from mainspring import open_runtime
from mainspring.log.postgres import open_postgres
from mainspring.log.postgres.broadcast import open_broadcast
from mainspring.log.session_log import SessionLog
from mainspring.log.task_groups import retry_unavailable
from mainspring.service.sessions.events.preview_deltas import PreviewPublisher, SharedDeltas
from mainspring.testing import Scripted, says


async def test_deltas_of_a_worker_reach_a_stream_of_the_api(postgres_url: str):
    words = "Once upon a time there was a delta that crossed a border."
    model = Held(Scripted(says(words), chunk_chars=5))
    seen: list[Any] = []
    async with (
        open_runtime(store=postgres_url) as runtime,
        open_broadcast(postgres_url) as broadcast,
        open_postgres(postgres_url) as store,
        open_broadcast(postgres_url) as other,
        thread_workspace(SessionLog(store), deltas=SharedDeltas(other)) as there,
        there.client() as client,
    ):
        runtime.models.put(CLERK.model, model)
        session = await runtime.start(CLERK)
        deltas = SharedDeltas(broadcast)
        async with (
            await client.beta.sessions.events.stream(
                session.id, event_deltas=["agent.message"]
            ) as stream,
            anyio.create_task_group() as group,
        ):
            with anyio.fail_after(60):
                await other.wait_until_listening()
            await session.send("go")
            row = await runtime.log.session(session.id)
            previews = PreviewPublisher(deltas, row, scrub=runtime.log.scrub)
            group.start_soon(partial(session.run, previews.emit, tell=previews.on_event))
            seen += await until_idle(stream, held=model)
    kinds = [event.type for event in seen]
    [start] = [event.event.id for event in seen if event.type == "event_start"]
    [said] = [event for event in seen if event.type == "agent.message"]
    assert (said.id, said.content[0].text) == (start, words)
    grown = "".join(event.delta.content.text for event in seen if event.type == "event_delta")
    assert grown
    assert words.startswith(grown)
    assert kinds.index("span.model_request_start") < kinds.index("event_start")
    assert "event_delta" not in kinds[kinds.index("agent.message") :]


async def test_a_stream_survives_lost_database_connections(postgres: Postgres, postgres_url: str):
    async with (
        open_postgres(postgres_url) as worker,
        open_postgres(postgres_url) as store,
        thread_workspace(SessionLog(store)) as there,
    ):
        log = SessionLog(worker)
        session_id = await told(log, "one")
        async with there.raw(session_id, after="0") as response:
            shown = frames(response)
            with anyio.fail_after(60):
                first = await anext(shown)
                postgres.disconnect()
                writer = await retry_unavailable(partial(log.hold, session_id, owner="other"))
                await writer.append(says_it("two"))
                second = await anext(shown)
        assert [first.seq, second.seq] == [2, 3]


async def test_a_stream_ends_with_an_error_if_the_database_stays_down(
    postgres: Postgres, postgres_url: str
):
    async with open_postgres(postgres_url) as store, thread_workspace(SessionLog(store)) as there:
        session_id = await told(SessionLog(store), "one")
        async with there.raw(session_id, after="0") as response:
            shown = frames(response)
            with anyio.fail_after(60):
                assert (await anext(shown)).name == "agent.message"
                postgres.stop()
                try:
                    store.signals.notify([session_id])
                    last = [item async for item in shown][-1]
                finally:
                    postgres.start()
        assert (last.name, last.data["error"]["type"]) == ("error", "overloaded_error")
        assert "Last-Event-ID" in last.data["error"]["message"]
        assert "postgres" not in last.data["error"]["message"]
