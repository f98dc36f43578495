"""The official worker drives sessions of self-hosted environments."""

import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import anthropic
import anyio
import pytest
from anthropic import beta_async_tool
from anthropic.lib.environments import BetaAnyRunnableTool
from anthropic.lib.tools.agent_toolset import AgentToolContext, beta_agent_toolset_20260401
from tests.api.api_server import collect
from tests.api.streaming import eventually
from tests.api.work_api import CAREFUL, hosted, site

from mainspring.service.self_hosted.work_item import LeaseTimes
from mainspring.testing import Scripted, calls, says

WORKER = """
import sys
import anyio
from anthropic import AsyncAnthropic
from anthropic.lib.environments import EnvironmentWorker

async def main(url, environment_id, key, workdir):
    client = AsyncAnthropic(api_key="not used", base_url=url)
    await EnvironmentWorker(
        client, environment_id=environment_id, environment_key=key, workdir=workdir
    ).run()

anyio.run(main, *sys.argv[1:])
"""


@beta_async_tool
async def ask_owner(question: str) -> str:
    """Ask the owner."""
    return f"yes to {question}"


def all_tools(env: AgentToolContext) -> Sequence[BetaAnyRunnableTool]:
    return [*beta_agent_toolset_20260401(env), ask_owner]


async def test_a_worker_runs_the_tool_calls_of_the_session(tmp_path: Path):
    workdir = tmp_path / "theirs"
    workdir.mkdir()
    model = Scripted(
        calls("write", file_path="note.txt", content="made by hand\n"),
        calls("bash", command="cat note.txt | tr a-z A-Z"),
        calls("read", file_path="note.txt") + calls("ask_owner", question="tea"),
        says("Done."),
    )
    async with site(tmp_path, model) as here, here.client() as client:
        made = await hosted(client, "go")
        async with here.worker(made.environment_id, workdir, tools=all_tools):
            await here.until_done(made.id)
        assert (workdir / "note.txt").read_text() == "made by hand\n"
        shown = await collect(client.beta.sessions.events.list(made.id))
        results = [item for item in shown if item.type == "user.tool_result"]
        assert len(results) == 3
        assert "MADE BY HAND" in str(results[1].content)
        [answer] = [item for item in shown if item.type == "user.custom_tool_result"]
        assert "yes to tea" in str(answer.content)
        uses = [item for item in shown if item.type == "agent.tool_use"]
        assert {use.evaluated_permission for use in uses} == {"allow"}
        work = await collect(client.beta.environments.work.list(made.environment_id))
        assert {item.data.id for item in work} == {made.id}


async def test_a_worker_waits_for_approval_and_never_runs_a_denied_call(tmp_path: Path):
    workdir = tmp_path / "theirs"
    workdir.mkdir()
    model = Scripted(
        calls("bash", command="echo x >> done") + calls("bash", command="echo x >> refused"),
        says("Done."),
    )
    async with site(tmp_path, model) as here, here.client() as client:
        made = await hosted(client, "go", tools=[CAREFUL])
        async with here.worker(made.environment_id, workdir):
            await here.until(made.id, "session.status_idle")
            shown = await collect(client.beta.sessions.events.list(made.id))
            first, second = [item for item in shown if item.type == "agent.tool_use"]
            assert (first.evaluated_permission, second.evaluated_permission) == ("ask", "ask")
            assert not (workdir / "done").exists()
            await client.beta.sessions.events.send(
                made.id,
                events=[
                    {"type": "user.tool_confirmation", "tool_use_id": second.id, "result": "deny"},
                    {"type": "user.tool_confirmation", "tool_use_id": first.id, "result": "allow"},
                ],
            )
            await here.until_done(made.id)
        assert (workdir / "done").read_text() == "x\n"
        assert not (workdir / "refused").exists()
        kinds = await here.kinds(made.id)
        assert (kinds.count("user.tool_result"), kinds.count("agent.tool_result")) == (1, 1)


async def test_a_later_message_is_picked_up_by_a_worker_again(tmp_path: Path):
    workdir = tmp_path / "theirs"
    workdir.mkdir()
    model = Scripted(
        calls("bash", command="echo 1 >> log"),
        says("One."),
        calls("bash", command="echo 2 >> log"),
        says("Two."),
    )
    async with site(tmp_path, model) as here, here.client() as client:
        made = await hosted(client, "go")
        async with here.worker(made.environment_id, workdir):
            await here.until_done(made.id)
            await here.until_work_is(made.environment_id, "stopped")
            await client.beta.sessions.events.send(
                made.id,
                events=[{"type": "user.message", "content": [{"type": "text", "text": "again"}]}],
            )
            await here.until(made.id, "user.tool_result", times=2)
        assert (workdir / "log").read_text() == "1\n2\n"


async def test_a_worker_gets_the_skills_of_the_agent(tmp_path: Path):
    workdir = tmp_path / "theirs"
    workdir.mkdir()
    model = Scripted(calls("bash", command="cat skills/*/SKILL.md"), says("Done."))
    manifest = b"---\nname: pdf-forms\ndescription: Fills in PDF forms.\n---\nCarefully.\n"
    async with site(tmp_path, model) as here, here.client() as client:
        skill = await client.beta.skills.create(files=[("pdf-forms/SKILL.md", manifest)])
        made = await hosted(
            client, "go", skills=[{"type": "custom", "skill_id": skill.id, "version": "latest"}]
        )
        async with here.worker(made.environment_id, workdir):
            await here.until_done(made.id)
        [result] = await here.log.read(made.id, types=["user.tool_result"])
        assert b"Carefully." in result.body


async def test_a_worker_that_is_killed_is_replaced(tmp_path: Path):
    """With `kill -9`, in the middle of a call: another gets the item once the lease is over."""
    workdir = tmp_path / "theirs"
    workdir.mkdir()
    command = "if [ -e begun ]; then echo again >> log; else touch begun; sleep 5; fi"
    model = Scripted(calls("bash", command=command), says("Done."))
    brief = LeaseTimes(start_seconds=2, ttl_seconds=2)
    async with site(tmp_path, model, leases=brief) as here, here.client() as client:
        made = await hosted(client, "go")
        environment_id = made.environment_id
        key = await here.environment_key(environment_id)
        worker = [sys.executable, "-c", WORKER, here.url, environment_id, key, str(workdir)]
        async with await anyio.open_process(worker, start_new_session=True) as process:
            with anyio.fail_after(60):
                await eventually((workdir / "begun").exists)
            process.kill()
        [left] = (await client.beta.environments.work.list(environment_id)).data
        assert left.state == "active"
        async with here.worker(environment_id, workdir):
            await here.until_done(made.id)
        kinds = await here.kinds(made.id)
    assert (workdir / "log").read_text() == "again\n"
    assert kinds.count("user.tool_result") == 1


async def test_work_left_by_a_departing_worker_is_queued_again(tmp_path: Path):
    workdir = tmp_path / "theirs"
    workdir.mkdir()
    model = Scripted(calls("ask_owner", question="tea"), says("Done."))
    async with site(tmp_path, model) as here, here.client() as client:
        made = await hosted(client, "go")
        work = client.beta.environments.work
        async with here.worker(made.environment_id, workdir):  # that tool is not one of its own
            await here.until(made.id, "session.status_idle")
            await here.until_work_is(made.environment_id, "active")
        next_one, left = (await work.list(made.environment_id)).data
        assert (left.state, next_one.state, next_one.data.id) == ("stopped", "queued", made.id)
        async with here.worker(made.environment_id, workdir, tools=all_tools):
            await here.until_done(made.id)


async def test_a_later_worker_does_not_run_an_interrupted_call(tmp_path: Path):
    workdir = tmp_path / "theirs"
    workdir.mkdir()
    model = Scripted(calls("bash", command="touch it"), says("Done."))
    async with site(tmp_path, model) as here, here.client() as client:
        made = await hosted(client, "go")
        await here.until(made.id, "session.status_idle")
        await client.beta.sessions.events.send(made.id, events=[{"type": "user.interrupt"}])
        await here.until(made.id, "session.status_idle", times=2)
        async with here.worker(made.environment_id, workdir):
            await here.until_work_is(made.environment_id, "stopped")
        assert not (workdir / "it").exists()
        assert "user.tool_result" not in await here.kinds(made.id)


async def test_a_result_counts_once_and_only_after_approval(tmp_path: Path):
    model = Scripted(calls("bash", command="ls"), says("Done."))
    async with site(tmp_path, model) as here, here.client() as client:
        made = await hosted(client, "go", tools=[CAREFUL])
        await here.until(made.id, "session.status_idle")
        send = client.beta.sessions.events.send
        shown = await collect(client.beta.sessions.events.list(made.id))
        [call_id] = [item.id for item in shown if item.type == "agent.tool_use"]
        result: Any = {
            "type": "user.tool_result",
            "tool_use_id": call_id,
            "content": [{"type": "text", "text": "one.txt"}],
        }
        with pytest.raises(anthropic.BadRequestError, match=r"user\.tool_confirmation first"):
            await send(made.id, events=[result])
        yes: Any = {"type": "user.tool_confirmation", "tool_use_id": call_id, "result": "allow"}
        await send(made.id, events=[yes])
        await here.until(made.id, "tool_call.started")
        first = await send(made.id, events=[result])
        assert (await send(made.id, events=[result])).to_json() == first.to_json()
        result["content"] = []
        with pytest.raises(anthropic.ConflictError, match="answered already"):
            await send(made.id, events=[result])
        await here.until_done(made.id)
        assert str(model.requests[-1].messages).count("one.txt") == 1
