"""The service killed in the middle of its work, and the database gone under it."""

import json
import shutil
import signal
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from typing import Any

import aiohttp
import anthropic
import anyio
import pytest
from anthropic import AsyncAnthropic
from tests.abilities import require_bubblewrap
from tests.fixtures_postgres import Postgres
from tests.keys import KEY
from tests.service_e2e.service_processes import (
    SECONDS,
    Served,
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

from mainspring.harness.state.projection_cache import Projections
from mainspring.log.session_log import SessionLog
from mainspring.log.sqlite import open_sqlite
from mainspring.service.sessions.workspaces.workspace_expiry import WorkspaceExpiry


@asynccontextmanager
async def raw_stream(
    served: Served, session_id: str, *, last: int
) -> AsyncGenerator[AsyncGenerator[tuple[int, dict[str, Any]]]]:
    """Events with their places in the log, behind `last`, as any HTTP client reads them."""
    headers = {"x-api-key": served.key, "last-event-id": str(last)}
    url = f"{served.url}/v1/sessions/{session_id}/events/stream"
    async with aiohttp.ClientSession() as http, http.get(url, headers=headers) as response:
        assert response.status == 200
        yield _numbered_events(response)


async def _numbered_events(
    response: aiohttp.ClientResponse,
) -> AsyncGenerator[tuple[int, dict[str, Any]]]:
    place = 0
    async for line in response.content:
        label, _, value = line.decode().rstrip("\n").partition(": ")
        if label == "id":
            place = int(value)
        if label == "data" and place:
            yield place, json.loads(value)
            place = 0


async def test_a_killed_service_continues_where_it_was(stage: Stage):
    require_bubblewrap("other sandboxes change the owners of files, which are then read again")
    got: list[tuple[int, dict[str, Any]]] = []
    async with stage.serve(key=None) as first, first.client() as client:
        session_id = await begun(
            client,
            'call write {"file_path": "notes", "content": "one"}',
            waiting(),
            bash("cat effects"),
            'call edit {"file_path": "notes", "old_string": "one", "new_string": "two"}',
            bash("cat notes; echo three > notes"),
            'call edit {"file_path": "notes", "old_string": "three", "new_string": "four"}',
            "say survived",
        )
        with anyio.fail_after(SECONDS):
            async with raw_stream(first, session_id, last=0) as events:
                async for numbered in events:
                    got.append(numbered)
                    if numbered[1].get("name") == "bash":
                        break
        workspace = stage.workspaces / session_id
        await eventually(workspace / "effects", "began")
        first.process.send_signal(signal.SIGKILL)
        await first.process.wait()
    (workspace / "go").touch()
    async with stage.serve(key=None, first=first.key) as second, second.client() as client:
        with anyio.fail_after(SECONDS):
            async with raw_stream(second, session_id, last=got[-1][0]) as events:
                async for numbered in events:
                    got.append(numbered)
                    if numbered[1]["type"] == "session.status_idle":
                        break
        listed = [event.id async for event in client.beta.sessions.events.list(session_id)]
        whole = await upto_idle(client, session_id)
    places = [place for place, _ in got]
    assert places == sorted(set(places))
    assert [event["id"] for _, event in got] == listed == [event.id for event in whole]
    _, went_on, effects, edited, notes, outdated = results(whole)
    assert (went_on, effects, notes) == ("went on", "began\nended", "two")
    assert "+two" in edited, edited  # what was written before the crash counts as read
    assert "has changed since it was read" in outdated
    assert said(whole) == ["survived"]


@pytest.mark.parametrize("seconds", [0, pytest.param(20, marks=pytest.mark.slow)])
async def test_a_lost_database_loses_nothing(shared_stage: Stage, postgres: Postgres, seconds: int):
    stage = shared_stage
    async with stage.serve("--no-worker") as api, api.client() as client, stage.worker() as worker:
        sessions = [await begun(client, waiting(), "say back again") for _ in range(4)]
        for session_id in sessions:
            await eventually(stage.workspaces / session_id / "effects", "began")
        followed: dict[str, list[int]] = {}
        async with anyio.create_task_group() as group:
            for session_id in sessions:
                group.start_soon(_follow, api, session_id, followed)
            await anyio.to_thread.run_sync(postgres.stop)
            try:
                await _unavailable(client, sessions[0])
                for session_id in sessions[:2]:  # half of them end while nobody can note it
                    (stage.workspaces / session_id / "go").touch()
                    await eventually(stage.workspaces / session_id / "effects", "ended")
                await anyio.sleep(seconds)  # longer than leases last
            finally:
                await anyio.to_thread.run_sync(postgres.start)
            for session_id in sessions[2:]:
                (stage.workspaces / session_id / "go").touch()
        for session_id in sessions:
            events = await upto_idle(client, session_id)
            assert (results(events), said(events)) == (["went on"], ["back again"])
            assert (stage.workspaces / session_id / "effects").read_text() == "began\nended\n"
            assert followed[session_id] == sorted(set(followed[session_id]))
        await told(client, sessions[0], "say more")
        assert said(await upto_idle(client, sessions[0], times=2)) == ["back again", "more"]
        assert api.process.returncode is None
        assert worker.returncode is None


async def _unavailable(client: AsyncAnthropic, session_id: str) -> None:
    with pytest.raises(anthropic.InternalServerError) as refused:
        await client.beta.sessions.retrieve(session_id)
    assert refused.value.status_code == 503
    with pytest.raises(anthropic.InternalServerError) as refused:
        await told(client, session_id, "say unheard")
    assert refused.value.status_code == 503
    assert "postgres" not in str(refused.value.body)


async def _follow(api: Served, session_id: str, places: dict[str, list[int]]) -> None:
    """To its end, coming back with the last place whenever the stream breaks off."""
    seen = places.setdefault(session_id, [])
    with anyio.fail_after(SECONDS):
        while True:
            try:
                async with raw_stream(api, session_id, last=max(seen, default=0)) as events:
                    async for place, event in events:
                        seen.append(place)
                        if event["type"] == "session.status_idle":
                            return
            except (aiohttp.ClientError, AssertionError):
                await anyio.sleep(0.2)


async def test_a_session_with_an_expired_workspace_continues_in_a_new_one(stage: Stage):
    async with stage.serve(key=None) as first, first.client() as client:
        session_id = await begun(client, bash("echo old > note"), "say kept")
        await upto_idle(client, session_id)
    shutil.rmtree(stage.workspaces / session_id)
    async with open_sqlite(stage.folder / ".mainspring" / "mainspring.db", key=KEY) as store:
        expiry = WorkspaceExpiry(store.records, Projections(SessionLog(store)))
        await expiry.announce("default", session_id)
        await expiry.note_removal("default", session_id)
    async with stage.serve(key=None, first=first.key) as second, second.client() as client:
        await told(client, session_id, "\n".join([bash("ls; cat note"), "say went on"]))
        events = await upto_idle(client, session_id, times=2)
    assert "No such file" in results(events)[-1]
    assert said(events)[-1] == "went on"
    assert "Your workspace was removed" in str(stage.model.requests[-1])
