"""A fleet whose sessions run real programs, while workers and the database die under it."""

import signal
from contextlib import AsyncExitStack
from random import Random

import anyio
import pytest
from anthropic import AsyncAnthropic
from tests.fixtures_postgres import Postgres
from tests.service_e2e.service_processes import TOOLS, Stage, bash, begun_in, upto_idle

_SESSIONS = 30
_STEPS = 6


@pytest.mark.slow
@pytest.mark.timeout(300)
async def test_each_effect_happens_once_whatever_crashes(shared_stage: Stage, postgres: Postgres):
    stage, random = shared_stage, Random(7)
    async with AsyncExitStack() as stack:
        api = await stack.enter_async_context(stage.serve("--no-worker"))
        client = await stack.enter_async_context(api.client())
        workers = [await stack.enter_async_context(stage.worker()) for _ in range(2)]
        sessions = await _create_sessions(client)
        for round_ in range(5):
            await anyio.sleep(2)
            if round_ == 2:
                await anyio.to_thread.run_sync(postgres.crash)
                await anyio.to_thread.run_sync(postgres.start)
            victim = workers.pop(random.randrange(2))
            victim.send_signal(signal.SIGKILL)
            workers.append(await stack.enter_async_context(stage.worker()))
        for session_id in sessions:
            assert (await upto_idle(client, session_id))[-1].stop_reason.type == "end_turn"
            effects = (stage.workspaces / session_id / "effects").read_text().split()
            assert effects == [str(step) for step in range(_STEPS)]


async def _create_sessions(client: AsyncAnthropic) -> list[str]:
    agent = await client.beta.agents.create(name="many", model="claude-sonnet-4-5", tools=TOOLS)
    env = await client.beta.environments.create(name="many")
    script = [bash(f"echo {step} >> effects; sleep 1") for step in range(_STEPS)]
    return [await begun_in(client, agent.id, env.id, *script, "say done") for _ in range(_SESSIONS)]
