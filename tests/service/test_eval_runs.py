"""Eval runs by the API: listed, judged, and made of sessions."""

from collections.abc import AsyncGenerator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import anthropic
import pytest
from anthropic import AsyncAnthropic
from tests.api.api_server import Tags, official_client
from tests.improve.evals.suite_setup import AgentWithSuite, new_agent

from mainspring.config import Settings, read_settings
from mainspring.core.content import TextBlock
from mainspring.core.events import UserMessage
from mainspring.edges.api.app import Api, http_server
from mainspring.edges.api.route_table import all_routes
from mainspring.improve.evals.runs.case_selection import Selection
from mainspring.improve.evals.runs.runner import RunSettings
from mainspring.improve.evals.suite import SuiteFile
from mainspring.improve.evals.suites.suite_files import named_suite
from mainspring.log.session_lease import hold_session
from mainspring.runtime.run_options import RunOptions
from mainspring.wiring.eval_assembly import open_suite_runner
from mainspring.wiring.service_assembly import Service, open_service

RUNS = "/v1/mainspring/eval_runs"
SUITE: dict[str, object] = {
    "name": "greeting",
    "cases": [
        {"id": f"case-{n}", "input": "Greet me.", "graders": [{"type": "contains", "text": text}]}
        for n, text in enumerate(("hello", "farewell"))
    ],
}


@dataclass
class World:
    agent: AgentWithSuite
    settings: Settings
    suite: SuiteFile
    service: Service
    client: AsyncAnthropic
    others: AsyncAnthropic
    """A client of another tenant."""

    async def run_suite(self) -> None:
        options = RunOptions(agent=self.agent.folder, model="scripted:model.yaml")
        async with open_suite_runner(self.settings, options) as runner:
            fresh = RunSettings(fresh=True)
            plan = await runner.plan(self.suite, Selection(), fresh)
            await runner.run(self.suite, plan, fresh)


@pytest.fixture
async def world(tmp_path: Path) -> AsyncGenerator[World]:
    agent = new_agent(tmp_path / "agent")
    suite = agent.write_suite(SUITE, "greeting")
    home = tmp_path / "home"
    home.mkdir()
    variables = {"HOME": str(home), "MAINSPRING_VAULT": str(home / "vault")}
    settings = read_settings(environ=variables, folder=agent.folder)
    async with open_service(settings) as service:
        api = Api(all_routes(service), access_control=Tags())
        async with (
            http_server(api.application()) as url,
            official_client(url, "default:operator") as client,
            official_client(url, "acme:admin") as others,
        ):
            yield World(agent, settings, suite, service, client, others)


async def get(client: AsyncAnthropic, path: str) -> Any:  # noqa: ANN401 (JSON)
    return await client.get(path, cast_to=object)


async def post(client: AsyncAnthropic, path: str, **body: object) -> Any:  # noqa: ANN401 (JSON)
    return await client.post(path, cast_to=object, body=body)


async def new_session(client: AsyncAnthropic) -> str:
    agent = await client.beta.agents.create(name="tested", model="claude-sonnet-4-5")
    environment = await client.beta.environments.create(name=f"of {agent.id}")
    made = await client.beta.sessions.create(agent=agent.id, environment_id=environment.id)
    return made.id


async def test_runs_are_listed_and_judged_and_belong_to_the_tenant_of_the_folder(world: World):
    for _ in range(2):
        await world.run_suite()
    first = await get(world.client, f"{RUNS}?limit=1")
    second = await get(world.client, f"{RUNS}?limit=1&page={first['next_page']}")
    [line], [earlier] = first["data"], second["data"]
    assert (line["verdict"], line["passed"], line["failed"]) == ("failed", 1, 1)
    assert second["next_page"] is None
    detail = await get(world.client, f"{RUNS}/{line['id']}")
    assert detail["gate"]["is_open"] is False
    assert "50.0% of the cases pass" in detail["gate"]["reasons"][0]
    assert detail["compared_with"] == earlier["id"]
    assert [case["case_id"] for case in detail["cases"]] == ["case-1", "case-0"]
    [trial] = detail["cases"][0]["trials"]
    assert "contains farewell" in trial["reasons"][0]
    assert (await get(world.others, RUNS))["data"] == []
    with pytest.raises(anthropic.NotFoundError):
        await get(world.others, f"{RUNS}/{line['id']}")


async def test_a_session_becomes_a_case_of_a_suite_in_the_folder_only(world: World):
    session_id = await new_session(world.client)
    async with hold_session(world.service.infrastructure.log, session_id) as writer:
        await writer.append(UserMessage(content=(TextBlock("Say farewell."),)))
    path = f"/v1/sessions/{session_id}/eval_case"
    for name in ("../keys", "a/b", ".hidden", ""):
        with pytest.raises(anthropic.BadRequestError):
            await post(world.client, path, suite=name)
    added = await post(world.client, path, suite="greeting", case="farewell")
    assert added["file"] == "evals/greeting.yaml"
    cases = named_suite(world.agent.folder, "greeting", field="suite").suite.cases
    assert [case.id for case in cases] == ["case-0", "case-1", "farewell"]
    theirs = await new_session(world.others)
    with pytest.raises(anthropic.BadRequestError, match="belong to the tenant"):
        await post(world.others, f"/v1/sessions/{theirs}/eval_case", suite="greeting")
