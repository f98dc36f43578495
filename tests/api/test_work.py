"""`/v1/environments/{id}/work` through the official client, with keys as workers have them."""

from pathlib import Path

import anthropic
import pytest
from anthropic.types.beta.environments import BetaHeartbeatPreconditionFailedError
from tests.api.api_server import collect
from tests.api.work_api import hosted, site

from mainspring.testing import Scripted, calls, says


async def test_a_work_item_goes_through_all_its_states(tmp_path: Path):
    model = Scripted(calls("bash", command="ls"), says("Done."))
    async with site(tmp_path, model) as here, here.client() as admin:
        made = await hosted(admin, "go")
        env = made.environment_id
        key = await here.environment_key(env)
        async with anthropic.AsyncAnthropic(
            auth_token=key, base_url=here.url, max_retries=0
        ) as client:
            work = client.beta.environments.work
            stats = await work.stats(env)
            assert (stats.type, stats.depth, stats.pending) == ("work_queue_stats", 1, 0)
            item = await work.poll(env, block_ms=10, anthropic_worker_id="w1")
            assert item is not None
            assert (item.type, item.state, item.environment_id) == ("work", "queued", env)
            assert (item.data.type, item.data.id) == ("session", made.id)
            stats = await work.stats(env)
            assert (stats.depth, stats.pending, stats.workers_polling) == (0, 1, 1)
            assert stats.oldest_queued_at == item.created_at
            assert await work.poll(env) is None
            assert await work.poll(env, block_ms=20) is None
            taken = await work.ack(item.id, environment_id=env)
            assert (taken.state, taken.secret) == ("starting", None)
            beat = await work.heartbeat(
                item.id, environment_id=env, expected_last_heartbeat="NO_HEARTBEAT"
            )
            assert (beat.type, beat.state, beat.lease_extended) == (
                "work_heartbeat",
                "active",
                True,
            )
            assert beat.ttl_seconds == 60
            longer = await work.heartbeat(
                item.id,
                environment_id=env,
                expected_last_heartbeat=beat.last_heartbeat,
                desired_ttl_seconds=90,
            )
            assert longer.ttl_seconds == 90
            with pytest.raises(BetaHeartbeatPreconditionFailedError) as lost:
                await work.heartbeat(
                    item.id, environment_id=env, expected_last_heartbeat=beat.last_heartbeat
                )
            state = lost.value.details.current_state
            assert (state.state, state.last_heartbeat) == ("active", longer.last_heartbeat)
            assert (state.ttl_seconds, state.lease_extended) == (90, False)


async def test_a_work_item_is_marked_stopped_and_listed(tmp_path: Path):
    model = Scripted(calls("bash", command="ls"), says("Done."))
    async with site(tmp_path, model) as here, here.client() as admin:
        made = await hosted(admin, "go")
        env = made.environment_id
        await here.until(made.id, "session.status_idle")
        async with here.client(await here.environment_key(env)) as client:
            work = client.beta.environments.work
            item = await work.poll(env)
            assert item is not None
            await work.ack(item.id, environment_id=env)
            await work.heartbeat(item.id, environment_id=env)
            changed = await work.update(
                item.id, environment_id=env, metadata={"host": "a", "gone": None}
            )
            assert changed.metadata == {"host": "a"}
            assert (await work.stop(item.id, environment_id=env)).state == "stopping"
            over = await work.stop(item.id, environment_id=env, force=True)
            assert over.state == "stopped"
            with pytest.raises(anthropic.ConflictError):
                await work.stop(item.id, environment_id=env, force=True)
            listed = await collect(work.list(env, limit=1))
            assert [entry.state for entry in listed] == ["queued", "stopped"]  # the session goes on
            assert (await work.retrieve(item.id, environment_id=env)).stopped_at == over.stopped_at


@pytest.mark.parametrize("block_ms", [0, 1000])
async def test_a_poll_with_an_invalid_block_time_is_refused(tmp_path: Path, block_ms: int):
    async with site(tmp_path, Scripted(says("Hi."))) as here, here.client() as client:
        made = await hosted(client, "go")
        with pytest.raises(anthropic.BadRequestError, match="block_ms"):
            await client.beta.environments.work.poll(made.environment_id, block_ms=block_ms)


async def test_a_workers_key_is_valid_only_for_its_environment(tmp_path: Path):
    async with site(tmp_path, Scripted(otherwise=says("Hi."))) as here, here.client() as admin:
        mine, theirs = await hosted(admin, "go"), await hosted(admin, "go")
        key = await here.environment_key(mine.environment_id)
        async with here.client(key) as client:
            work = client.beta.environments.work
            assert await work.poll(mine.environment_id) is not None
            with pytest.raises(anthropic.PermissionDeniedError):
                await work.poll(theirs.environment_id)
            with pytest.raises(anthropic.PermissionDeniedError):
                await client.beta.sessions.retrieve(theirs.id)
            with pytest.raises(anthropic.PermissionDeniedError):
                await client.beta.agents.list()
