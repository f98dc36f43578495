"""Suites, drills and service levels in the service: run once, graded, and an alarm for each time
that they get worse."""

from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import anthropic
import pytest
import yaml
from anthropic import AsyncAnthropic
from tests.api.api_server import Tags, official_client
from tests.improve.evals.suite_setup import AgentWithSuite, new_agent
from tests.improve.evals.test_production import JUDGE, SUITE, later, talk

from mainspring.config import Settings, read_settings
from mainspring.core.events import (
    ModelRequestEnded,
    ModelRequestStarted,
    SessionCreated,
    Usage,
)
from mainspring.edges.api.app import Api, http_server
from mainspring.edges.api.route_table import all_routes
from mainspring.improve.evals.reports.trend import REFERENCE_RUNS
from mainspring.improve.evals.runs.run_log import list_runs, read_run
from mainspring.log.session_lease import hold_session
from mainspring.service.evals.scheduled_evals import TASK
from mainspring.service.jobs.dispatcher import Job
from mainspring.wiring.service_assembly import Service, open_service
from mainspring.wiring.settings_files import trust

CASES = 10
GOOD, BAD = [{"says": "hello"}], [{"says": "sorry"}]


@dataclass
class World:
    agent: AgentWithSuite
    settings: Settings
    service: Service
    client: AsyncAnthropic

    async def deployment(self, **action: object) -> str:
        agent = await self.client.beta.agents.create(name="tested", model="claude-sonnet-4-5")
        environment = await self.client.beta.environments.create(name=f"of {agent.id}")
        message: Any = {"type": "user.message", "content": [{"type": "text", "text": "go"}]}
        made = await self.client.beta.deployments.create(
            name="nightly",
            agent=agent.id,
            environment_id=environment.id,
            initial_events=[message],
            extra_body={"action": {"type": "eval", "suite": "basics", **action}},
        )
        return made.id

    async def run(self, deployment_id: str, model: str = "scripted:model.yaml") -> str:
        """A run of the deployment, and what a worker does with its job."""
        made = await self.client.beta.deployments.run(deployment_id)
        assert made.session_id is not None, made.error
        job = Job(task=TASK, key=made.session_id, tenant="default")
        for _ in range(2):  # a job may be done again: nothing happens twice
            await self.service.evals.scheduled.run(job, model=model)
        return made.session_id

    async def subscribe(self) -> None:
        types = ["mainspring.alarm_raised", "mainspring.alarm_cleared"]
        body = {"url": "https://example.com/hook", "event_types": types}
        hook: Any = await self.client.post("/v1/mainspring/webhooks", cast_to=object, body=body)
        self.hook = hook["id"]

    async def events(self) -> list[str]:
        """The types of what webhooks were told, oldest first."""
        path = f"/v1/mainspring/webhooks/{self.hook}/deliveries"
        page: Any = await self.client.get(path, cast_to=object)
        return [item["event_type"].partition(".")[2] for item in reversed(page["data"])]

    async def alarms(self, query: str = "") -> list[Any]:
        page: Any = await self.client.get(f"/v1/mainspring/alarms{query}", cast_to=object)
        return page["data"]


@pytest.fixture
async def world(tmp_path: Path) -> AsyncGenerator[World]:
    agent = new_agent(tmp_path / "agent")
    async with open_world(agent) as made:
        yield made


@asynccontextmanager
async def open_world(agent: AgentWithSuite) -> AsyncGenerator[World]:
    home = agent.folder.parent / "home"
    home.mkdir(exist_ok=True)
    variables = {"HOME": str(home), "MAINSPRING_VAULT": str(home / "vault")}
    settings = read_settings(environ=variables, folder=agent.folder)
    async with open_service(settings) as service:
        api = Api(all_routes(service), access_control=Tags())
        async with (
            http_server(api.application()) as url,
            official_client(url, "default:admin") as client,
        ):
            world = World(agent, settings, service, client)
            await world.subscribe()
            yield world


def write(world: World, steps: object, name: str = "model.yaml") -> None:
    (world.agent.folder / name).write_text(yaml.safe_dump([{"steps": steps}]))


def write_suite(world: World) -> None:
    graders = [{"type": "contains", "text": "hello"}]
    cases = [{"id": f"c{number}", "input": f"go {number}"} for number in range(CASES)]
    world.agent.write_suite({"graders": graders, "cases": cases, "parallel": 4})


@pytest.mark.parametrize("is_gone", [True, False])
async def test_a_scheduled_suite_that_is_gone_or_unreadable_raises_an_alarm(
    is_gone: bool, world: World
):
    write_suite(world)
    write(world, GOOD)
    deployment = await world.deployment()
    await world.run(deployment)
    file = world.agent.folder / "evals" / "basics.yaml"
    content = file.read_text()
    if is_gone:
        file.unlink()
    else:
        file.write_text("cases: [")
    run_id = await world.run(deployment)
    [alarm] = await world.alarms("?status=raised")
    assert (alarm["subject"]["name"], alarm["run_id"]) == ("basics", run_id)
    assert alarm["reason"].startswith("the suite could not be run: ")
    file.write_text(content)
    await world.run(deployment)
    assert await world.alarms("?status=raised") == []


async def test_a_scheduled_suite_raises_one_alarm_when_it_gets_worse(world: World):
    write_suite(world)
    write(world, GOOD)
    deployment = await world.deployment()
    runs = [await world.run(deployment) for _ in range(REFERENCE_RUNS + 1)]
    log = world.service.infrastructure.log
    assert [made.run_id for made in await list_runs(log, "tested", "basics")] == runs
    run = await read_run(log, runs[-1])
    assert run.ended is not None
    assert (run.ended.passed, len(run.results)) == (CASES, CASES)
    assert await world.alarms() == []
    write(world, BAD)
    worse = await world.run(deployment)
    await world.run(deployment)
    [alarm] = await world.alarms("?status=raised")
    assert alarm["subject"] == {"type": "eval", "name": "basics"}
    assert alarm["run_id"] == worse
    assert "basics passes less often: 0 of 10 trials" in alarm["reason"]
    assert await world.events() == ["alarm_raised"]
    one: Any = await world.client.get(f"/v1/mainspring/alarms/{alarm['id']}", cast_to=object)
    assert one == alarm


async def test_a_failed_drill_raises_an_alarm_until_one_succeeds(world: World):
    write_suite(world)
    write(world, GOOD)
    write(world, BAD, "weak.yaml")
    await world.run(await world.deployment())
    drill = await world.deployment(is_drill=True)
    both = ("scripted:model.yaml,scripted:weak.yaml", "scripted:weak.yaml,scripted:model.yaml")
    failed = await world.run(drill, both[0])
    [alarm] = await world.alarms()
    assert alarm["subject"] == {"type": "drill", "name": "basics"}
    assert (alarm["status"], alarm["run_id"]) == ("raised", failed)
    assert "worse: -100.0 points" in alarm["reason"]
    await world.run(drill, both[1])
    assert await world.events() == ["alarm_raised", "alarm_cleared"]
    assert await world.alarms("?status=raised") == []
    log = world.service.infrastructure.log
    assert len(await list_runs(log, "tested", "basics (drill)")) == 2
    assert len(await list_runs(log, "tested", "basics")) == 1
    write(world, GOOD)
    await world.run(drill, "scripted:model.yaml")  # there is no second model
    [alarm] = await world.alarms("?status=raised")
    assert "nothing to fail over to" in alarm["reason"]


async def test_invalid_suites_are_refused_when_a_deployment_is_created(world: World):
    write_suite(world)
    for wrong in (
        {"suite": "nothing"},
        {"suite": "../basics"},
        {"model": "scripted:/etc/passwd"},
        {"model": "sonnet", "is_drill": True},
    ):
        with pytest.raises(anthropic.BadRequestError):
            await world.deployment(**wrong)
    async with official_client(str(world.client.base_url), "acme:admin") as acme:
        other = World(world.agent, world.settings, world.service, acme)
        with pytest.raises(anthropic.BadRequestError, match="tenant default"):
            await other.deployment()
    (world.agent.folder / "evals/basics.yaml").write_text("cases: [{id: 1}]")
    with pytest.raises(anthropic.BadRequestError):
        await world.deployment()


async def fail(world: World, *, is_error: bool, count: int) -> None:
    """A session of the agent with model requests that failed, or did not."""
    log = world.service.infrastructure.log
    session = await log.create(SessionCreated(agent_name="tested"))
    async with hold_session(log, session.id) as writer:
        for _ in range(count):
            [start] = await writer.append(ModelRequestStarted(model="m"))
            await writer.append(
                ModelRequestEnded(
                    model_request_start_id=start.id, model_usage=Usage(), is_error=is_error
                )
            )


async def test_a_missed_objective_raises_an_alarm_once_until_it_is_met(world: World):
    (world.agent.folder / "agent.yaml").write_text(
        "name: tested\nslo: {max_errors_per_10000_calls: 5000}\n"
    )
    watch = world.service.evals.watch
    await watch.check_levels()
    assert await world.alarms() == []
    await fail(world, is_error=True, count=3)
    for _ in range(3):
        await watch.check_levels()
    [alarm] = await world.alarms()
    assert (alarm["subject"]["type"], alarm["status"]) == ("slo", "raised")
    assert alarm["reason"] == "10000.0 errors per 10,000 calls, at most 5000"
    assert await world.events() == ["alarm_raised"]
    await fail(world, is_error=False, count=4)
    for _ in range(2):
        await watch.check_levels()
    assert await world.events() == ["alarm_raised", "alarm_cleared"]


async def test_the_service_grades_sessions_of_a_trusted_folder_only(
    world: World,
):
    world.agent.write_suite(SUITE)
    world.agent.write_model(JUDGE, {"steps": GOOD})
    stated = "grade: {suite: basics, share: 1, max_cost_usd_per_day: 1}\n"
    (world.agent.folder / "agent.yaml").write_text(f"name: tested\n{stated}")
    async with world.agent.runner() as runner:
        own = await talk(runner, "hi")
    async with official_client(str(world.client.base_url), "acme:admin") as acme:
        agent = await acme.beta.agents.create(name="tested", model="claude-sonnet-4-5")
        environment = await acme.beta.environments.create(name="theirs")
        await acme.beta.sessions.create(agent=agent.id, environment_id=environment.id)
    watch = world.service.evals.watch
    later_watch = type(watch)(
        log=watch.log,
        alarms=watch.alarms,
        folder=watch.folder,
        home=watch.home,
        read_project=watch.read_project,
        open_runner=watch.open_runner,
        clock=later,
    )
    model = "scripted:model.yaml"
    assert await later_watch.grade(model) is None  # nobody has trusted it
    trust(world.agent.folder, home=watch.home)
    report = await later_watch.grade(model)
    assert report is not None
    assert [ended.case_id for ended in report.graded] == [own]
    world.agent.write_suite({**SUITE, "description": "other judges, perhaps"})
    assert await later_watch.grade(model) is None
