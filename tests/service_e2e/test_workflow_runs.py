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
