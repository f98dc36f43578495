"""Workflows through the API: stored, run by workers, answered, steered, scheduled."""

from collections.abc import Mapping
from typing import Any

import anyio
import pytest
from anthropic import AsyncAnthropic, BadRequestError, ConflictError, NotFoundError
from tests.service.receiver import Receiver, holds, receiving
from tests.service_e2e.service_processes import SECONDS, TOOLS, Stage, message

LOOPBACK = ("--allow-network", "127.0.0.0/8")
WORKFLOW = """\
name: release
description: Write a file, look at it, let a person decide, finish.
interactive: true
inputs:
  version: {required: true}
nodes:
  - id: write
    bash: |
      echo "$INPUTS_VERSION of $ARGUMENTS" > "$ARTIFACTS_DIR/notes.txt"
      echo once >> effects
      cat "$ARTIFACTS_DIR/notes.txt"
  - {id: look, prompt: "say seen $write.output", depends_on: [write]}
  - {id: gate, approval: {message: "Release $INPUTS.version?"}, depends_on: [look]}
  - {id: finish, bash: 'cat effects "$ARTIFACTS_DIR/notes.txt"', depends_on: [gate]}
"""
RUNS = "/v1/mainspring/workflow_runs"


async def post(client: AsyncAnthropic, path: str, **body: object) -> Any:  # noqa: ANN401 (JSON)
    return await client.post(path, cast_to=object, body=body)


async def get(client: AsyncAnthropic, path: str) -> Any:  # noqa: ANN401 (JSON)
    return await client.get(path, cast_to=object)


async def place(client: AsyncAnthropic) -> dict[str, str]:
    agent = await client.beta.agents.create(name="clerk", model="claude-sonnet-4-5", tools=TOOLS)
    environment = await client.beta.environments.create(name="ci")
    return {"agent": agent.id, "environment_id": environment.id}


async def until(client: AsyncAnthropic, run_id: str, *statuses: str) -> dict[str, Any]:
    with anyio.fail_after(SECONDS):
        while True:
            run = await get(client, f"{RUNS}/{run_id}")
            if run["status"] in statuses:
                return run
            await anyio.sleep(0.02)


def outcome(run: Mapping[str, Any]) -> dict[str, str]:
    return {node["node"]: node["status"] for node in run["nodes"]}


async def notices(receiver: Receiver, secret: str, count: int) -> list[str]:
    with anyio.fail_after(SECONDS):
        while len(receiver.got) < count:  # noqa: ASYNC110 (what a receiver gets has no event)
            await anyio.sleep(0.02)
    assert all(holds(secret, headers, body) for headers, body in receiver.got)
    return sorted(
        body.partition('"type":"mainspring.')[2].partition('"')[0] for _, body in receiver.got
    )


async def test_a_run_waits_for_its_gate_and_ends_once(stage: Stage):
    async with receiving() as receiver, stage.serve(*LOOPBACK) as served, served.client() as client:
        events = ["mainspring.workflow_run_waiting", "mainspring.workflow_run_ended"]
        hook = await post(client, "/v1/mainspring/webhooks", url=receiver.url, event_types=events)
        files = {"workflows/release.yaml": WORKFLOW}
        stored = await post(client, "/v1/mainspring/workflows", files=files)
        assert (stored["name"], stored["version"], stored["trust"]) == ("release", 1, "trusted")
        begin = {
            "workflow": "release",
            **await place(client),
            "arguments": "$(touch owned); `id`",
            "inputs": {"version": "2.0'\""},
            "key": "monday",
        }
        run = await post(client, RUNS, **begin)
        paused = await until(client, run["id"], "paused", "failed")
        assert outcome(paused)["look"] == "completed", paused
        [gate] = paused["gates"]
        assert gate["question"] == "Release 2.0'\"?"
        assert gate["choices"] == ["approve", "reject"]
        assert "seen 2.0'\" of $(touch owned); `id`" in gate["evidence"][0]["text"]

        assert (await post(client, RUNS, **begin))["id"] == run["id"]
        with pytest.raises(BadRequestError, match="takes no messages"):
            await client.beta.sessions.events.send(run["id"], events=[message("approve")])
        with pytest.raises(BadRequestError, match="cannot be skipped"):
            await post(client, f"{RUNS}/{run['id']}/steer", action="skip", node="gate")
        with pytest.raises(BadRequestError, match="choose approve, reject"):
            await post(client, f"{RUNS}/{run['id']}/respond", decision="yes")
        with pytest.raises(ConflictError, match="the limit is 1"):
            await post(client, RUNS, **{**begin, "key": "tuesday", "max_open_runs": 1})

        await post(client, f"{RUNS}/{run['id']}/respond", decision="approve", text="good")
        ended = await until(client, run["id"], "completed", "failed")
        assert outcome(ended) == dict.fromkeys(("write", "look", "gate", "finish"), "completed")
        last = await get(client, f"{RUNS}/{run['id']}/node?node=finish")
        assert last["node"]["output"] == "once\n2.0'\" of $(touch owned); `id`"
        line = (await get(client, f"{RUNS}?workflow=release&statuses=completed"))["data"][0]
        assert (line["id"], line["nodes"], line["waiting"]) == (run["id"], {"completed": 4}, [])
        [write] = [node for node in ended["nodes"] if node["node"] == "write"]
        shown = await client.beta.sessions.retrieve(write["session_id"])
        assert (shown.title, shown.status) == ("write", "idle")
        told = await notices(receiver, hook["secret"], 2)
        assert told == ["workflow_run_ended", "workflow_run_waiting"]

        fork = await post(client, f"{RUNS}/{run['id']}/fork", at="finish")
        forked = await until(client, fork["id"], "completed", "failed")
        assert outcome(forked)["finish"] == "completed", forked
        with pytest.raises(NotFoundError):
            await get(client, f"{RUNS}/{write['session_id']}")


CHORES = """\
name: chores
description: A loop, a fan-out, programs, another workflow.
nodes:
  - {id: list, bash: 'echo "[1,2]"'}
  - {id: each, workflow: chore, fan_out: {items: $list.output, as: number}, depends_on: [list]}
  - id: again
    loop: {prompt: "say DONE", until: DONE, max_iterations: 2}
    depends_on: [list]
  - {id: slow, bash: 'echo once >> effects; sleep 2; cat effects', depends_on: [each, again]}
  - {id: end, prompt: "say $slow.output", depends_on: [slow]}
"""
CHORE = """\
name: chore
description: One chore.
inputs: {number: {required: true}}
nodes:
  - {id: do, bash: 'echo $INPUTS_NUMBER >> effects; echo did $INPUTS_NUMBER'}
"""


@pytest.mark.slow
async def test_a_scheduled_run_survives_kills_and_each_effect_happens_once(stage: Stage):
    files = {"workflows/chores.yaml": CHORES, "workflows/chore.yaml": CHORE}
    run_id = ""
    for attempt in range(3):
        async with stage.serve(*LOOPBACK) as served, served.client() as client:
            if attempt == 0:
                await post(client, "/v1/mainspring/workflows", files=files, name="chores")
                action = {"type": "workflow", "workflow": "chores"}
                deployment = await post(
                    client,
                    "/v1/deployments",
                    name="nightly",
                    initial_events=[message("go")],
                    action=action,
                    **await place(client),
                )
                run = await post(client, f"/v1/deployments/{deployment['id']}/run")
                run_id = run["session_id"]
            if attempt < 2:
                node = ("each/2", "slow")[attempt]
                await started(client, run_id, node)
                served.process.kill()
                await served.process.wait()
                continue
            ended = await until(client, run_id, "completed", "failed", "cancelled")
            assert ended["status"] == "completed", ended["nodes"]
    effects = (stage.workspaces / run_id / "effects").read_text().split()
    assert sorted(effects) == ["1", "2", "once"]


async def started(client: AsyncAnthropic, run_id: str, node: str) -> None:
    with anyio.fail_after(SECONDS):
        while True:
            run = await get(client, f"{RUNS}/{run_id}")
            if any(item["node"].startswith(node) and item["started_at"] for item in run["nodes"]):
                return
            await anyio.sleep(0.02)
