"""Campaigns by the API: started by people and deployments, run, shown, promoted and paused."""

from collections.abc import AsyncGenerator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import anthropic
import pytest
from anthropic import AsyncAnthropic
from tests.api.api_server import Tags, official_client
from tests.improve.evolution.support_agent import write_support_agent

from mainspring.config import read_settings
from mainspring.edges.api.app import Api, http_server
from mainspring.edges.api.route_table import all_routes
from mainspring.service.evolution.campaigns import TASK
from mainspring.service.jobs.dispatcher import Job
from mainspring.wiring.service_assembly import Service, open_service

CAMPAIGNS = "/v1/mainspring/campaigns"
EVOLUTION = "/v1/mainspring/evolution"


@dataclass
class World:
    folder: Path
    service: Service
    client: AsyncAnthropic
    others: AsyncAnthropic
    """A client of another tenant."""

    async def get(self, path: str) -> Any:  # noqa: ANN401 (JSON)
        return await self.client.get(path, cast_to=object)

    async def post(self, path: str, **body: object) -> Any:  # noqa: ANN401 (JSON)
        return await self.client.post(path, cast_to=object, body=body)

    async def work(self, campaign_id: str) -> None:
        """What a worker does with the job; a job may be done again."""
        for _ in range(2):
            await self.service.campaigns.run(Job(task=TASK, key=campaign_id, tenant="default"))


@pytest.fixture
async def world(tmp_path: Path) -> AsyncGenerator[World]:
    folder = write_support_agent(tmp_path / "support", per_topic=6)
    home = tmp_path / "home"
    home.mkdir()
    variables = {"HOME": str(home), "MAINSPRING_VAULT": str(home / "vault")}
    async with open_service(read_settings(environ=variables, folder=folder)) as service:
        api = Api(all_routes(service), access_control=Tags())
        async with (
            http_server(api.application()) as url,
            official_client(url, "default:admin") as client,
            official_client(url, "acme:admin") as others,
        ):
            yield World(folder, service, client, others)


async def test_a_campaign_is_started_run_followed_promoted_and_rolled_back(world: World):
    before = (world.folder / "AGENTS.md").read_text()
    started = await world.post(CAMPAIGNS)
    assert started["status"] == "running"
    await world.work(started["id"])
    [line] = (await world.get(CAMPAIGNS))["data"]
    assert (line["status"], line["promoted"]) == ("promoted", 1)
    detail = await world.get(f"{CAMPAIGNS}/{line['id']}")
    assert "fixes message: contains 3 days" in {step["reason"] for step in detail["steps"]}
    assert detail["decisions"][-1]["gate"]["decision"] == "promote"
    assert "+Shipping: say 3 days." in detail["diff"]
    page = await world.get(f"{CAMPAIGNS}/{line['id']}/events?limit=3")
    rest = await world.get(f"{CAMPAIGNS}/{line['id']}/events?after={page['data'][-1]['seq']}")
    types = [event["type"] for event in (*page["data"], *rest["data"])]
    assert page["has_after"]
    assert types[:2] == ["session.created", "evolution.created"]
    assert types[-1] == "evolution.ended"

    promote = f"{CAMPAIGNS}/{line['id']}/promote"
    with pytest.raises(anthropic.BadRequestError, match="not the one that was approved"):
        await world.post(promote, diff_hash="0" * 64)
    assert (await world.post(promote, diff_hash=detail["diff_hash"]))["number"] == 2
    assert "Shipping: say 3 days." in (world.folder / "AGENTS.md").read_text()
    assert (await world.post(f"{EVOLUTION}/rollback"))["is_active"]
    assert (world.folder / "AGENTS.md").read_text() == before
    status = await world.get(EVOLUTION)
    assert (status["active"], [item["number"] for item in status["versions"]]) == (1, [2, 1])


async def test_no_other_tenant_sees_or_starts_campaigns(world: World):
    campaign_id = (await world.post(CAMPAIGNS))["id"]
    page: Any = await world.others.get(CAMPAIGNS, cast_to=object)
    assert page["data"] == []
    with pytest.raises(anthropic.NotFoundError):
        await world.others.get(f"{CAMPAIGNS}/{campaign_id}", cast_to=object)
    with pytest.raises(anthropic.BadRequestError, match="belong to the tenant default"):
        await world.others.post(CAMPAIGNS, cast_to=object)


async def test_a_pause_stops_campaigns_until_it_is_over(world: World):
    campaign_id = (await world.post(CAMPAIGNS))["id"]
    await world.post(f"{EVOLUTION}/pause", is_paused=True, reason="budget review")
    await world.work(campaign_id)
    assert (await world.get(f"{CAMPAIGNS}/{campaign_id}"))["campaign"]["status"] == "running"
    with pytest.raises(anthropic.BadRequestError, match="paused: budget review"):
        await world.post(CAMPAIGNS)
    await world.post(f"{EVOLUTION}/pause", is_paused=False)
    await world.post(f"{CAMPAIGNS}/{campaign_id}/resume")
    await world.work(campaign_id)
    assert (await world.get(f"{CAMPAIGNS}/{campaign_id}"))["campaign"]["status"] == "promoted"


async def test_a_deployment_starts_campaigns_and_a_broken_one_ends_with_its_reason(world: World):
    agent = await world.client.beta.agents.create(name="any", model="claude-sonnet-4-5")
    environment = await world.client.beta.environments.create(name="any")
    message: Any = {"type": "user.message", "content": [{"type": "text", "text": "go"}]}
    made = await world.client.beta.deployments.create(
        name="nightly",
        agent=agent.id,
        environment_id=environment.id,
        initial_events=[message],
        extra_body={"action": {"type": "campaign"}},
    )
    run = await world.client.beta.deployments.run(made.id)
    [campaign] = (await world.get(CAMPAIGNS))["data"]
    assert (campaign["session_id"], campaign["trigger"]) == (run.session_id, "schedule")
    suite = world.folder / "evals/support.yaml"
    suite.write_text(suite.read_text().replace("Do you know", "What do you know"))
    await world.work(campaign["id"])
    [campaign] = (await world.get(CAMPAIGNS))["data"]
    assert campaign["status"] == "failed"
    assert "the suite has changed" in campaign["reason"]
