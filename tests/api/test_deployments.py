from collections.abc import AsyncGenerator
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

import anthropic
import pytest
from anthropic import AsyncAnthropic
from anthropic.types.beta import BetaManagedAgentsDeployment
from tests.api.api_server import Served, Tags, collect, ids
from tests.service.schedule_setup import Works, works

from mainspring.edges.api.app import Api, http_server
from mainspring.edges.api.route import routes_of
from mainspring.edges.api.routes.define.deployments import DeploymentRoutes, DeploymentRunRoutes
from mainspring.service.resources.environments import Environments

CRON = {"type": "cron", "expression": "0 20 * * 5", "timezone": "America/New_York"}


@dataclass(frozen=True, slots=True)
class Scene(Served):
    works: Works

    async def deploy(
        self, client: anthropic.AsyncAnthropic, name: str = "weekly"
    ) -> BetaManagedAgentsDeployment:
        return await client.beta.deployments.create(
            agent="agent_1",
            environment_id=self.works.environment_id,
            name=name,
            initial_events=[
                {"type": "user.message", "content": [{"type": "text", "text": "Scan."}]}
            ],
            schedule={
                "type": "cron",
                "expression": CRON["expression"],
                "timezone": CRON["timezone"],
            },
        )


@pytest.fixture
async def api(tmp_path: Path) -> AsyncGenerator[Scene]:
    async with works(tmp_path) as made:
        routes = (
            *routes_of(DeploymentRoutes(made.deployments, made.firing)),
            *routes_of(DeploymentRunRoutes(made.runs)),
        )
        async with http_server(Api(routes, access_control=Tags()).application()) as url:
            yield Scene(url, made.records, made)


async def test_a_deployment_is_created_read_changed_and_archived(api: Scene, acme: AsyncAnthropic):
    made = await acme.beta.deployments.create(
        agent={"type": "agent", "id": "agent_1", "version": 2},
        environment_id=api.works.environment_id,
        name="weekly",
        initial_events=[
            {"type": "user.message", "content": [{"type": "text", "text": "Scan."}]},
            {"type": "system.message", "content": [{"type": "text", "text": "Be brief."}]},
        ],
        budget={"type": "limit", "max_list_cost": {"amount": "2000", "currency": "USD"}},
        resources=[
            {
                "type": "github_repository",
                "url": "https://github.com/a/b",
                "authorization_token": "ghp_secret",
                "checkout": {"type": "branch", "name": "main"},
            }
        ],
        schedule={"type": "cron", "expression": "0 20 * * 5", "timezone": "America/New_York"},
        metadata={"team": "core"},
    )
    assert made.id.startswith("depl_")
    assert (made.agent.id, made.agent.version, made.status) == ("agent_1", 2, "active")
    assert made.paused_reason is None
    assert made.budget
    assert made.budget.max_list_cost.amount == "2000"
    assert made.resources[0].type == "github_repository"
    assert "ghp_secret" not in made.model_dump_json()
    assert made.schedule
    assert made.schedule.last_run_at is None
    upcoming = made.schedule.upcoming_runs_at
    assert upcoming
    assert upcoming[0] == datetime(2026, 5, 9, 0, 0, tzinfo=UTC)
    assert len(upcoming) == 5
    assert await acme.beta.deployments.retrieve(made.id) == made

    changed = await acme.beta.deployments.update(
        made.id, description="d", metadata={"team": None, "x": "1"}, budget=None
    )
    assert (changed.description, changed.metadata, changed.budget) == ("d", {"x": "1"}, None)
    assert changed.resources == made.resources
    manual = await acme.beta.deployments.update(made.id, schedule=None, resources=None)
    assert (manual.schedule, manual.resources) == (None, [])

    paused = await acme.beta.deployments.pause(made.id)
    assert paused.paused_reason
    assert (paused.status, paused.paused_reason.type) == ("paused", "manual")
    assert (await acme.beta.deployments.unpause(made.id)).status == "active"
    assert (await acme.beta.deployments.archive(made.id)).archived_at
    with pytest.raises(anthropic.BadRequestError, match="archived"):
        await acme.beta.deployments.update(made.id, name="x")


async def test_manual_and_scheduled_runs_are_listed_by_outcome(api: Scene, acme: AsyncAnthropic):
    made = await api.deploy(acme)
    by_hand = await acme.beta.deployments.run(made.id)
    assert by_hand.id.startswith("drun_")
    assert by_hand.trigger_context.type == "manual"
    assert by_hand.session_id
    assert by_hand.error is None
    api.works.clock.now = datetime(2026, 5, 9, 0, 0, 15, tzinfo=UTC)
    await api.works.fire_due()
    runs = acme.beta.deployment_runs
    [scheduled] = await collect(runs.list(trigger_type="schedule"))
    assert scheduled.trigger_context.type == "schedule"
    assert scheduled.trigger_context.scheduled_at == datetime(2026, 5, 9, tzinfo=UTC)
    assert await runs.retrieve(scheduled.id) == scheduled
    shown = await acme.beta.deployments.retrieve(made.id)
    assert shown.schedule
    assert shown.schedule.last_run_at == scheduled.created_at

    api.works.clock.pass_by(minutes=1)
    await Environments(api.works.records).archive("acme", api.works.environment_id)
    failed = await acme.beta.deployments.run(made.id)
    assert failed.error
    assert (failed.error.type, failed.session_id) == ("environment_archived_error", None)
    api.works.clock.now = datetime(2026, 5, 16, 0, 0, 15, tzinfo=UTC)
    await api.works.fire_due()
    shown = await acme.beta.deployments.retrieve(made.id)
    assert shown.paused_reason
    assert shown.paused_reason.type == "error"
    assert shown.paused_reason.error.type == "environment_archived_error"

    everything = await ids(runs.list(limit=1))
    assert (everything[2:], len(everything)) == ([scheduled.id, by_hand.id], 4)
    assert len(await collect(runs.list(has_error=True, limit=1))) == 2
    assert await ids(runs.list(has_error=False)) == [scheduled.id, by_hand.id]
    both = runs.list(has_error=True, trigger_type="manual")
    assert [item.id async for item in both] == [failed.id]
    late = runs.list(created_at_gt=scheduled.created_at, created_at_lt=failed.created_at)
    assert [item.id async for item in late] == []
    early = runs.list(created_at_gte=scheduled.created_at, created_at_lte=scheduled.created_at)
    assert [item.id async for item in early] == [scheduled.id]
    assert await collect(runs.list(deployment_id="depl_none")) == []


async def test_deployments_are_listed_by_agent_status_and_time(api: Scene, acme: AsyncAnthropic):
    first = await api.deploy(acme, "one")
    api.works.clock.pass_by(minutes=1)
    second = await api.deploy(acme, "two")
    await acme.beta.deployments.pause(second.id)
    listed = acme.beta.deployments.list
    assert [item.id async for item in listed(limit=1)] == [second.id, first.id]
    assert [item.id async for item in listed(status="paused")] == [second.id]
    assert [item.id async for item in listed(agent_id="agent_2")] == []
    assert [item.id async for item in listed(created_at_gte=second.created_at)] == [second.id]
    await acme.beta.deployments.archive(first.id)
    assert [item.id async for item in listed()] == [second.id]
    assert len([item async for item in listed(include_archived=True)]) == 2
    with pytest.raises(anthropic.BadRequestError, match="include_archived"):
        await listed(include_archived=True, status="active")
    with pytest.raises(anthropic.BadRequestError, match="created_at"):
        await listed(created_at_gte="2026-01-01T00:00:00")
    with pytest.raises(anthropic.BadRequestError, match="page"):
        await listed(page="nonsense")
    with pytest.raises(anthropic.BadRequestError, match="page"):
        await acme.beta.deployment_runs.list(page="nonsense")


async def test_invalid_deployments_are_refused_with_the_field(api: Scene, acme: AsyncAnthropic):
    good = {
        "agent": "agent_1",
        "environment_id": api.works.environment_id,
        "name": "n",
        "initial_events": [{"type": "user.message", "content": [{"type": "text", "text": "go"}]}],
    }
    blob = {"type": "blob", "hash": "x", "size": 1, "media_type": "image/png"}
    bad: list[tuple[dict[str, object], str]] = [
        ({"schedule": {**CRON, "expression": "@daily"}}, "expression"),
        ({"schedule": {**CRON, "timezone": "Mars/Base"}}, "timezone"),
        ({"schedule": {**CRON, "type": "rrule"}}, "schedule"),
        ({"initial_events": []}, "initial_events"),
        ({"initial_events": [{"type": "user.interrupt"}]}, "initial_events"),
        (
            {
                "initial_events": [
                    {"type": "user.message", "content": [{"type": "image", "source": blob}]}
                ]
            },
            "initial_events",
        ),
        ({"name": ""}, "name"),
        ({"vault_ids": ["v"] * 51}, "vault_ids"),
        ({"budget": {"type": "limit", "max_list_cost": {"amount": "1.5"}}}, "budget"),
    ]
    for change, where in bad:
        with pytest.raises(anthropic.BadRequestError, match=where):
            await acme.post("/v1/deployments", body={**good, **change}, cast_to=object)
    for change in ({"environment_id": "env_none"}, {"vault_ids": ["vlt_none"]}):
        with pytest.raises(anthropic.NotFoundError):
            await acme.post("/v1/deployments", body={**good, **change}, cast_to=object)


async def test_mainspring_schedule_policies_are_accepted_and_returned(
    api: Scene, acme: AsyncAnthropic
):
    made = await api.deploy(acme)
    policy = {"missed": "all", "overlap": "queue", "quiet_hours": _hours("22:00", "07:00")}
    changed = await acme.beta.deployments.update(
        made.id, extra_body={"schedule": {**CRON, "expression": "0 12 * * *", "policy": policy}}
    )
    assert changed.schedule
    shown = changed.schedule.model_dump()["policy"]
    assert (shown["missed"], shown["overlap"]) == ("all", "queue")
    assert shown["quiet_hours"]["start"].startswith("22:00")


def _hours(start: str, end: str) -> dict[str, str]:
    return {"start": f"{start}:00", "end": f"{end}:00"}
