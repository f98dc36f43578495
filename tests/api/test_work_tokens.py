"""The token in an item's `secret`: for one session, and for what that has."""

import base64
import json
from pathlib import Path
from typing import Any

import anthropic
import anyio
import pytest
from anthropic import AsyncAnthropic
from tests.api.api_server import collect
from tests.api.work_api import Site, hosted, site

from mainspring.testing import Scripted, calls, says


async def token_of(client: AsyncAnthropic, environment_id: str) -> tuple[str, str]:
    """The next item, and its token as the official worker finds it."""
    item = await client.beta.environments.work.poll(environment_id)
    assert item is not None
    assert item.secret is not None
    return item.id, json.loads(base64.urlsafe_b64decode(item.secret))["sessions_token"]


def client_with_token(here: Site, token: str) -> AsyncAnthropic:
    return AsyncAnthropic(auth_token=token, base_url=here.url, max_retries=0)


async def test_a_token_is_valid_only_for_its_work_item_and_session(tmp_path: Path):
    async with site(tmp_path, Scripted(otherwise=says("Hi."))) as here, here.client() as admin:
        mine, theirs = await hosted(admin, "go"), await hosted(admin, "go")
        env = mine.environment_id
        work_id, token = await token_of(admin, env)
        async with client_with_token(here, token) as client:
            work = client.beta.environments.work
            assert (await client.beta.sessions.retrieve(mine.id)).id == mine.id
            assert await collect(client.beta.sessions.events.list(mine.id))
            await work.ack(work_id, environment_id=env)
            await work.heartbeat(work_id, environment_id=env)
            other, _ = await token_of(admin, theirs.environment_id)
            for refused in (
                work.poll(env),
                work.list(env),
                client.beta.sessions.retrieve(theirs.id),
                client.beta.sessions.list(),
                client.beta.environments.list(),
                work.ack(other, environment_id=theirs.environment_id),
                client.beta.sessions.events.send(
                    mine.id,
                    events=[
                        {"type": "user.tool_confirmation", "tool_use_id": "x", "result": "allow"}
                    ],
                ),
            ):
                with pytest.raises(anthropic.PermissionDeniedError):
                    await refused
            await work.stop(work_id, environment_id=env, force=True)
            beat = await work.heartbeat(work_id, environment_id=env)  # it still hears that
            assert beat.state == "stopped"
        async with client_with_token(here, token[:-6] + "AAAAAA") as client:
            with pytest.raises(anthropic.AuthenticationError):
                await client.beta.sessions.retrieve(mine.id)


async def test_a_worker_needs_only_the_secret_of_its_work_item(tmp_path: Path):
    """One process asks for work with the environment's key, another does it without."""
    workdir = tmp_path / "theirs"
    workdir.mkdir()
    model = Scripted(calls("bash", command="echo made > it"), says("Done."))
    async with site(tmp_path, model) as here, here.client() as admin:
        made = await hosted(admin, "go")
        env = made.environment_id
        poller = admin.beta.environments.work.poller(
            environment_id=env,
            environment_key=await here.environment_key(env),
            block_ms=None,
            drain=True,
            auto_stop=False,
        )
        [item] = [entry async for entry in poller]
        async with here.client("no key of ours") as client:
            worker = client.beta.environments.work.worker(workdir=workdir, max_idle=0.2)
            with anyio.fail_after(60):
                await worker.handle_item(
                    work_id=item.id,
                    environment_id=env,
                    session_id=item.data.id,
                    work_secret=item.secret,
                )
        await here.until_done(made.id)
        assert (workdir / "it").read_text() == "made\n"
        stopped = await admin.beta.environments.work.retrieve(item.id, environment_id=env)
        assert stopped.state == "stopped"


async def test_a_token_gives_access_only_to_the_memory_stores_of_its_session(tmp_path: Path):
    async with site(tmp_path, Scripted(says("Hi."))) as here, here.client() as admin:
        stores = [await admin.beta.memory_stores.create(name=name) for name in ("a", "b", "c")]
        mine, readable, foreign = [store.id for store in stores]
        attached: list[Any] = [
            {"type": "memory_store", "memory_store_id": mine},
            {"type": "memory_store", "memory_store_id": readable, "access": "read_only"},
        ]
        made = await hosted(admin, "go", resources=attached)
        _, token = await token_of(admin, made.environment_id)
        async with client_with_token(here, token) as client:
            memories = client.beta.memory_stores.memories
            kept = await memories.create(mine, path="/tea.md", content="green")
            found = await memories.retrieve(kept.id, memory_store_id=mine, view="full")
            assert found.content == "green"
            changed = await memories.update(kept.id, memory_store_id=mine, content="black")
            assert [memory.path async for memory in memories.list(mine)] == [kept.path]
            await memories.delete(
                kept.id, memory_store_id=mine, expected_content_sha256=changed.content_sha256
            )
            assert await collect(memories.list(readable)) == []
            with pytest.raises(anthropic.PermissionDeniedError):
                await memories.create(readable, path="/x.md", content="x")
            with pytest.raises(anthropic.NotFoundError):
                await memories.list(foreign)
            with pytest.raises(anthropic.PermissionDeniedError):
                await client.beta.memory_stores.retrieve(mine)
        async with here.client(await here.environment_key(made.environment_id)) as client:
            with pytest.raises(anthropic.PermissionDeniedError, match="token of a work item"):
                await client.beta.memory_stores.memories.list(mine)
