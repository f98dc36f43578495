"""Workflows through the API: stored, run by workers, answered, steered, scheduled."""

import json
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


PLAN = """\
name: count
description: Count, then report.
nodes:
  - {id: count, bash: 'echo once >> effects; cat kept'}
  - {id: look, prompt: "say saw $count.output", agent: reader, depends_on: [count]}
  - {id: report, bash: 'echo say told: $look.output', depends_on: [look]}
"""
SLOW_PLAN = "{name: slow, description: It waits., nodes: [{id: wait, bash: sleep 50}]}"


async def lead_agent(client: AsyncAnthropic) -> dict[str, Any]:
    """An agent that may start workflows, but only with an agent that exists."""
    model: Any = "claude-sonnet-4-5"
    reader = await client.beta.agents.create(name="reader", model=model, tools=TOOLS)
    workflows = {
        "type": "enabled",
        "inline_agents": {"type": "disabled"},
        "predefined_agents": [reader.id],
    }
    multiagent: Any = {
        "type": "multiagent_20261001",
        "subagents": {"type": "disabled"},
        "workflows": workflows,
    }
    lead = await client.beta.agents.create(
        name="lead", model=model, tools=TOOLS, multiagent=multiagent
    )
    environment = await client.beta.environments.create(name="ci")
    return {"agent": lead.id, "environment_id": environment.id}


def start_workflow(plan: str) -> str:
    return f"call start_workflow {json.dumps({'plan': plan})}"


async def seen(client: AsyncAnthropic, session_id: str, *needed: str) -> list[dict[str, Any]]:
    """The session's events, once their JSON has all these texts."""
    with anyio.fail_after(SECONDS):
        while True:
            page = await client.beta.sessions.events.list(session_id, limit=1000)
            events = [item.to_dict(mode="json") for item in page.data]
            if all(text in json.dumps(events) for text in needed):
                return events
            await anyio.sleep(0.05)


async def test_an_agent_starts_exactly_the_runs_that_it_may(stage: Stage):
    async with stage.serve(*LOOPBACK) as served, served.client() as client:
        session = await client.beta.sessions.create(**await lead_agent(client))
        bad = start_workflow(PLAN.replace("agent: reader, ", ""))
        worse = start_workflow(PLAN.replace("agent: reader", "agent: admin"))
        work = [message(f'call bash {{"command": "echo 3 > kept"}}\n{bad}\n{worse}\nsay tried')]
        await client.beta.sessions.events.send(session.id, events=work)
        await seen(client, session.id, "node look: name its agent, one of: reader", "tried")
        events = await seen(client, session.id, "there is no agent admin; there are: reader")
        errors = [item for item in events if item["type"] == "workflow_run.error"]
        assert [item["error"]["type"] for item in errors] == ["program_error"] * 2
        runs = f"{RUNS}?session_id={session.id}"
        assert (await get(client, runs))["data"] == []

        work = [message(f"{start_workflow(PLAN)}\nsay started")]
        await client.beta.sessions.events.send(session.id, events=work)
        events = await seen(client, session.id, "told: saw 3")
        assert any(item["type"] == "agent.message" and "told" in str(item) for item in events)
        notices = [item for item in events if item["type"].startswith("workflow_run.status_")]
        assert [item["type"] for item in notices] == [
            "workflow_run.status_running",
            "workflow_run.status_ended",
        ]
        assert notices[-1]["result"] == {"type": "completed"}
        [created] = [item for item in events if item["type"] == "workflow_run.created"]
        assert [phase["id"] for phase in created["phases"]] == ["count", "look", "report"]
        run = await get(client, f"{RUNS}/{created['workflow_run_id']}")
        assert outcome(run) == dict.fromkeys(("count", "look", "report"), "completed")
        assert (stage.workspaces / session.id / "effects").read_text() == "once\n"
        with pytest.raises(BadRequestError, match="its session's agent"):
            await post(client, f"{RUNS}/{run['id']}/fork", at="report")


async def test_an_agent_stops_its_own_run_and_no_other(stage: Stage):
    async with stage.serve(*LOOPBACK) as served, served.client() as client:
        place = await lead_agent(client)
        sessions = [await client.beta.sessions.create(**place) for _ in range(2)]
        first, other = [item.id for item in sessions]
        work = [message(f"{start_workflow(SLOW_PLAN)}\nsay started")]
        await client.beta.sessions.events.send(first, events=work)
        events = await seen(client, first, "workflow_run.created", "started")
        run_id = next(item for item in events if item["type"] == "workflow_run.created")
        stop = f'call stop_workflow {{"workflow_run_id": "{run_id["workflow_run_id"]}"}}\nsay ok'
        await client.beta.sessions.events.send(other, events=[message(stop)])
        await seen(client, other, "is not a workflow that you have started")
        await client.beta.sessions.events.send(first, events=[message(stop)])
        await seen(client, first, '"stopped"')
