"""One `mainspring serve` over SQLite: what goes in, what comes out, and what stays inside."""

import json
import sys
from collections.abc import AsyncGenerator
from pathlib import Path
from typing import Any

import anthropic
import anyio
import pytest
from anthropic import AsyncAnthropic
from tests.abilities import require_network, require_tenants
from tests.service.receiver import receiving
from tests.service_e2e.service_processes import (
    SECONDS,
    TOOLS,
    Served,
    Stage,
    bash,
    begun,
    begun_in,
    eventually,
    message,
    results,
    said,
    staged,
    told,
    upto_idle,
    waiting,
)
from tests.written_files import write_file

SECRET = "violet-otter-1877-lamp-of-nobody"
PRICED = """
[models."ollama:test"]
max_output = 100
price = { input = "1000", output = "1000", cache_read = "1000", cache_write = "1000" }
price_date = "2026-11-01"
"""
"""About a dollar a turn."""
COUNTING = [bash(f"echo {number}") for number in range(8)]


@pytest.fixture(scope="module")
async def dependencies(
    tmp_path_factory: pytest.TempPathFactory,
) -> AsyncGenerator[tuple[Stage, Served]]:
    folder = tmp_path_factory.mktemp("service")
    write_file(folder / "home/.mainspring/models.toml", PRICED)
    async with staged(folder) as stage, stage.serve("--allow-network", "127.0.0.0/8") as served:
        yield stage, served


@pytest.fixture(scope="module")
async def client(dependencies: tuple[Stage, Served]) -> AsyncGenerator[AsyncAnthropic]:
    async with dependencies[1].client() as made:
        yield made


@pytest.fixture
def stage(dependencies: tuple[Stage, Served]) -> Stage:
    return dependencies[0]


async def post_extension(client: AsyncAnthropic, path: str, **body: object) -> Any:  # noqa: ANN401 (JSON)
    return await client.post(f"/v1/mainspring/{path}", cast_to=object, body=body)


async def test_a_finished_session_sends_a_verifiable_webhook(client: AsyncAnthropic):
    pytest.importorskip("standardwebhooks", reason="the extra anthropic[webhooks]")
    async with receiving() as receiver:
        hook = await post_extension(
            client, "webhooks", url=receiver.url, event_types=["session.idled"]
        )
        session_id = await begun(client, "say done")
        with anyio.fail_after(SECONDS):
            while not receiver.got:  # noqa: ASYNC110 (what a receiver gets has no event)
                await anyio.sleep(0.02)
        headers, body = receiver.got[0]
    event = client.beta.webhooks.unwrap(body, headers=headers, key=hook["secret"])
    assert (event.data.type, event.data.id) == ("session.idled", session_id)
    with pytest.raises(Exception, match="signature"):
        client.beta.webhooks.unwrap(body + " ", headers=headers, key=hook["secret"])


async def test_running_a_deployment_creates_a_session_that_runs(client: AsyncAnthropic):
    agent = await client.beta.agents.create(name="nightly", model="claude-sonnet-4-5")
    environment = await client.beta.environments.create(name="nightly")
    deployment = await client.beta.deployments.create(
        name="nightly",
        agent=agent.id,
        environment_id=environment.id,
        initial_events=[message("say good night")],
        schedule={"type": "cron", "expression": "0 3 * * *", "timezone": "Europe/Berlin"},
    )
    run = await client.beta.deployments.run(deployment.id)
    assert run.session_id is not None
    assert said(await upto_idle(client, run.session_id)) == ["good night"]


async def test_an_uploaded_file_is_in_the_workspace_and_a_secret_is_not(
    client: AsyncAnthropic, stage: Stage
):
    require_network()
    file = await client.beta.files.upload(file=("plan.txt", b"by the window", "text/plain"))
    vault = await client.beta.vaults.create(display_name="keys")
    await client.beta.vaults.credentials.create(
        vault.id,
        auth={
            "type": "environment_variable",
            "secret_name": "TOKEN",
            "secret_value": SECRET,
            "networking": {"type": "limited", "allowed_hosts": ["api.example.com"]},
        },
    )
    agent = await client.beta.agents.create(name="clerk", model="claude-sonnet-4-5", tools=TOOLS)
    environment = await client.beta.environments.create(
        name="with-a-host",
        config={
            "type": "cloud",
            "networking": {"type": "limited", "allowed_hosts": ["api.example.com"]},
        },
    )
    session_id = await begun_in(
        client,
        agent.id,
        environment.id,
        bash("cat plan.txt"),
        bash("env | grep ^TOKEN="),
        "say read",
        resources=[{"type": "file", "file_id": file.id, "mount_path": "/workspace/plan.txt"}],
        vault_ids=[vault.id],
    )
    await upto_idle(client, session_id)
    stage.model.says(f"it is {SECRET}, is it?")  # however it may have come by it
    await told(client, session_id, "tell me")
    events = await upto_idle(client, session_id, times=2)
    read, shown = results(events)
    assert read == "by the window"
    assert shown.startswith("TOKEN=")
    assert said(events)[1].startswith("it is ")
    assert SECRET not in "".join(event.to_json() for event in events)
    assert SECRET not in "".join(json.dumps(request) for request in stage.model.requests)
    for path in stage.folder.rglob("*"):
        if path.is_file():
            assert SECRET.encode() not in path.read_bytes(), path


async def test_tenants_share_nothing(dependencies: tuple[Stage, Served], client: AsyncAnthropic):
    require_tenants()
    stage, served = dependencies
    ours = await begun(client, bash("echo ours > note"), "say kept")
    await upto_idle(client, ours)
    await stage.command("tenants", "create", "rival")
    made = json.loads(
        await stage.command(
            "keys", "create", "theirs", "--tenant", "rival", "--role", "admin", "--json"
        )
    )
    async with served.client(made["key"]) as rival:
        with pytest.raises(anthropic.NotFoundError):
            await rival.beta.sessions.retrieve(ours)
        with pytest.raises(anthropic.NotFoundError):
            await told(rival, ours, "say mine")
        assert [session.id async for session in rival.beta.sessions.list()] == []
        assert [agent.id async for agent in rival.beta.agents.list()] == []
        elsewhere = stage.workspaces / ours / "note"
        theirs = await begun(rival, bash(f"cat {elsewhere}; ls {stage.workspaces}"), "say tried")
        [looked] = results(await upto_idle(rival, theirs))
        assert ours not in looked.replace(str(elsewhere), "")
        assert "No such file" in looked or "Permission denied" in looked
    listed = [session.id async for session in client.beta.sessions.list()]
    assert ours in listed
    assert theirs not in listed


async def test_a_halted_session_stops_until_it_is_resumed(client: AsyncAnthropic, stage: Stage):
    session_id = await begun(client, waiting(), bash("touch next"), "say went on")
    agent_id = (await client.beta.sessions.retrieve(session_id)).agent.id
    workspace = stage.workspaces / session_id
    await eventually(workspace / "effects", "began")
    await post_extension(client, "halts", agent_id=agent_id, reason="a look at it")
    unaffected = await begun(client, bash("sleep 3"), "say unaffected")
    assert said(await upto_idle(client, unaffected)) == ["unaffected"]  # workers know by now
    (workspace / "go").touch()
    unaffected = await begun(client, bash("sleep 1"), "say unaffected")
    assert said(await upto_idle(client, unaffected)) == ["unaffected"]
    assert not (workspace / "next").exists()
    await post_extension(client, "halts/resume", agent_id=agent_id)
    assert said(await upto_idle(client, session_id)) == ["went on"]
    assert (workspace / "next").exists()
    assert (workspace / "effects").read_text() == "began\n"  # it was stopped as well


async def test_a_key_with_a_spent_daily_budget_gets_no_more_work(
    dependencies: tuple[Stage, Served], client: AsyncAnthropic
):
    made = await post_extension(
        client, "keys", name="thrifty", role="operator", daily_budget_usd="5"
    )
    async with dependencies[1].client(made["key"]) as thrifty:
        session_id = await begun(thrifty, *COUNTING)
        events = await upto_idle(thrifty, session_id)
        assert results(events)[0] == "0"
        assert events[-1].stop_reason.type == "budget_reached"
    assert said(await upto_idle(client, await begun(client, "say mine is not"))) == ["mine is not"]


async def test_a_session_stops_at_its_own_budget(client: AsyncAnthropic):
    budget = {"type": "limit", "max_list_cost": {"amount": "500", "currency": "USD"}}
    session_id = await begun(client, *COUNTING, budget=budget)
    events = await upto_idle(client, session_id)
    assert results(events)[0] == "0"
    assert events[-1].stop_reason.type == "budget_reached"


async def test_without_allowed_hosts_there_is_no_network(dependencies: tuple[Stage, Served]):
    stage, served = dependencies
    async with served.client() as client:
        session_id = await begun(
            client,
            bash(f"curl -sS -m 5 {stage.model.url} || echo no network"),
            bash("curl -sS -m 5 https://api.example.com || echo no network"),
            bash("getent hosts localhost; cat /sys/class/net/*/operstate"),
        )
        here, there, _ = results(await upto_idle(client, session_id))
    assert "no network" in here
    assert "no network" in there


@pytest.mark.parametrize("many", [12, pytest.param(50, marks=pytest.mark.slow)])
async def test_many_sessions_run_at_once(
    dependencies: tuple[Stage, Served], client: AsyncAnthropic, many: int
):
    agent = await client.beta.agents.create(name="many", model="claude-sonnet-4-5", tools=TOOLS)
    environment = await client.beta.environments.create(name=f"for-{many}")
    answers: list[list[str]] = []

    async def one(number: int) -> None:
        session_id = await begun_in(
            client, agent.id, environment.id, bash(f"echo {number} > it; cat it"), f"say {number}"
        )
        events = await upto_idle(client, session_id)
        answers.append([*results(events), *said(events)])

    before = anyio.current_time()
    async with anyio.create_task_group() as group:
        for number in range(many):
            group.start_soon(one, number)
    seconds = anyio.current_time() - before
    assert sorted(answers) == sorted([[str(number)] * 2 for number in range(many)])
    status = Path(f"/proc/{dependencies[1].process.pid}/status").read_text()
    memory = [line for line in status.splitlines() if line.startswith(("VmRSS", "VmHWM"))]
    sys.stdout.write(f"{many} sessions: {seconds:.1f} s, {' '.join(memory)}\n")
