from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path

import anthropic
import httpx2
import pytest
from anthropic import AsyncAnthropic
from anthropic.types.beta import BetaManagedAgentsAgent
from tests.api.agents_api import CUSTOM, MODEL, SEARCH, made, routes, served_agents
from tests.api.api_server import Served, collect, ids
from tests.at_once import at_once

from mainspring.edges.api.app import Api, http_server
from mainspring.edges.api.route import Route
from mainspring.service.access.principal import Principal
from mainspring.service.authorization.authentication import AuthenticationResult, RequestCredentials


@pytest.fixture
async def api(tmp_path: Path) -> AsyncGenerator[Served]:
    async with served_agents(tmp_path) as running:
        yield running


async def test_an_agent_is_created_with_all_defaults(acme: AsyncAnthropic):
    agent = await made(acme)
    assert agent.id.startswith("agent_")
    assert (agent.version, agent.type, agent.name) == (1, "agent", "helper")
    assert (agent.description, agent.system, agent.archived_at) == (None, None, None)
    assert agent.execution_identity.type == "service_account"
    assert (agent.tools, agent.mcp_servers, agent.skills) == ([], [], [])
    assert agent.metadata == {}
    assert agent.multiagent is None
    assert agent.model.to_dict() == {
        "id": MODEL,
        "effort": None,
        "inference_geo": None,
        "speed": "standard",
    }
    assert await acme.beta.agents.retrieve(agent.id) == agent


async def test_tools_are_returned_complete_with_defaults(acme: AsyncAnthropic):
    web_fetch = {
        "name": "web_fetch",
        "permission_policy": {"type": "auto"},
        "allowed_domains": ["docs.example.com"],
        "max_content_tokens": 5000,
        "url_sources": {
            "user_input": "none",
            "client_tool_results": {
                "type": "only",
                "tools": [{"type": "tool_reference", "name": "ask_owner"}],
            },
        },
    }
    web_search = {
        "name": "web_search",
        "enabled": True,
        "blocked_domains": ["ads.example.com/path"],
        "user_location": {"type": "approximate", "country": "DE"},
    }
    toolset = {
        "type": "agent_toolset_20260401",
        "default_config": {"enabled": False},
        "configs": [{"name": "bash", "enabled": True, "type": "bash"}, web_fetch, web_search],
    }
    mcp = {
        "type": "mcp_toolset",
        "mcp_server_name": "docs",
        "configs": [{"name": "find", "permission_policy": {"type": "always_allow"}}],
    }
    agent = await made(acme, tools=[toolset, mcp, CUSTOM], mcp_servers=[SEARCH])
    builtin, docs, custom = [tool.to_dict() for tool in agent.tools]
    assert builtin == {
        "type": "agent_toolset_20260401",
        "default_config": {"enabled": False, "permission_policy": {"type": "always_allow"}},
        "configs": [
            {
                "name": "bash",
                "type": "bash",
                "enabled": True,
                "permission_policy": {"type": "always_allow"},
            },
            {
                "name": "web_fetch",
                "type": "web_fetch",
                "enabled": False,
                "permission_policy": {"type": "auto"},
                "allowed_domains": ["docs.example.com"],
                "max_content_tokens": 5000,
                "url_sources": {
                    "user_input": {"type": "none"},
                    "client_tool_results": {
                        "type": "only",
                        "tools": [{"type": "tool_reference", "name": "ask_owner"}],
                    },
                    "server_tool_results": None,
                },
            },
            {
                "name": "web_search",
                "type": "web_search",
                "enabled": True,
                "permission_policy": {"type": "always_allow"},
                "blocked_domains": ["ads.example.com/path"],
                "user_location": {
                    "type": "approximate",
                    "country": "DE",
                    "city": None,
                    "region": None,
                    "timezone": None,
                },
            },
        ],
    }
    assert docs == {
        "type": "mcp_toolset",
        "mcp_server_name": "docs",
        "default_config": {"enabled": True, "permission_policy": {"type": "always_ask"}},
        "configs": [
            {"name": "find", "enabled": True, "permission_policy": {"type": "always_allow"}}
        ],
    }
    assert custom == CUSTOM
    assert [server.to_dict() for server in agent.mcp_servers] == [SEARCH]
    assert await acme.beta.agents.retrieve(agent.id) == agent


async def test_each_change_is_a_version_and_an_unchanged_update_is_not(acme: AsyncAnthropic):
    first = await made(acme, system="Be kind.", metadata={"team": "core", "env": "dev"})
    second = await acme.beta.agents.update(
        first.id, version=1, system=None, metadata={"env": None, "owner": "ann"}
    )
    assert (second.version, second.system) == (2, None)
    assert second.metadata == {"team": "core", "owner": "ann"}
    assert second.created_at == first.created_at
    same = await acme.beta.agents.update(
        first.id, name="helper", system="", model=MODEL, metadata={"owner": "ann"}
    )
    assert same == second
    third = await acme.beta.agents.update(first.id, description="Helps.")
    assert third.version == 3
    assert await collect(acme.beta.agents.versions.list(first.id, limit=2)) == [
        third,
        second,
        first,
    ]
    assert await acme.beta.agents.retrieve(first.id, version=1) == first
    with pytest.raises(anthropic.NotFoundError, match="no version 4"):
        await acme.beta.agents.retrieve(first.id, version=4)
    with pytest.raises(anthropic.BadRequestError):
        await acme.beta.agents.retrieve(first.id, version=0)


async def test_an_update_of_an_outdated_version_conflicts(acme: AsyncAnthropic):
    agent = await made(acme)
    await acme.beta.agents.update(agent.id, name="other", version=1)
    with pytest.raises(anthropic.ConflictError, match="version 2, not at 1"):
        await acme.beta.agents.update(agent.id, name="late", version=1)


async def test_concurrent_updates_all_apply_as_separate_versions(acme: AsyncAnthropic):
    agent = await made(acme)
    await at_once(
        lambda index: acme.beta.agents.update(agent.id, metadata={f"k{index}": "x"}), range(4)
    )
    now = await acme.beta.agents.retrieve(agent.id)
    assert now.version == 5
    assert now.metadata == {f"k{index}": "x" for index in range(4)}
    versions = [version.version async for version in acme.beta.agents.versions.list(agent.id)]
    assert versions == [5, 4, 3, 2, 1]


async def test_the_model_is_replaced_but_an_unnamed_effort_is_kept(acme: AsyncAnthropic):
    agent = await made(
        acme, model={"id": MODEL, "effort": "high", "speed": "fast", "inference_geo": "eu"}
    )
    assert agent.model.to_dict() == {
        "id": MODEL,
        "effort": {"type": "high"},
        "inference_geo": "eu",
        "speed": "fast",
    }
    changed = await acme.beta.agents.update(agent.id, model="claude-sonnet-5-5")
    assert changed.model.to_dict() == {
        "id": "claude-sonnet-5-5",
        "effort": {"type": "high"},
        "inference_geo": None,
        "speed": "standard",
    }
    cleared = await acme.beta.agents.update(agent.id, model={"id": MODEL, "effort": None})
    assert cleared.model.effort is None


async def test_null_clears_optional_fields(acme: AsyncAnthropic):
    agent = await made(
        acme,
        description="d",
        tools=[CUSTOM, {"type": "mcp_toolset", "mcp_server_name": "docs"}],
        mcp_servers=[SEARCH],
        execution_identity={"type": "aws_role", "role_arn": "arn:aws:iam::1:role/r"},
    )
    assert agent.execution_identity.to_dict() == {
        "type": "aws_role",
        "role_arn": "arn:aws:iam::1:role/r",
    }
    cleared = await acme.beta.agents.update(
        agent.id, description=None, tools=None, mcp_servers=None, execution_identity=None
    )
    assert (cleared.description, cleared.tools, cleared.mcp_servers) == (None, [], [])
    assert cleared.execution_identity.type == "service_account"
    for fields in ({"name": None}, {"model": None}):
        with pytest.raises(anthropic.BadRequestError):
            await acme.beta.agents.update(agent.id, extra_body=fields)


async def test_skills_must_exist_and_are_returned_with_their_version(acme: AsyncAnthropic):
    manifest = b"---\nname: pdf\ndescription: Reads PDF files.\n---\nRead."
    skill = await acme.beta.skills.create(files=[("pdf/SKILL.md", manifest)])
    agent = await made(
        acme,
        skills=[
            {"type": "custom", "skill_id": skill.id},
            {"type": "anthropic", "skill_id": "xlsx", "version": "1"},
        ],
    )
    assert [item.to_dict() for item in agent.skills] == [
        {"type": "custom", "skill_id": skill.id, "version": "latest"},
        {"type": "anthropic", "skill_id": "xlsx", "version": "1"},
    ]
    pinned = await acme.beta.agents.update(
        agent.id,
        skills=[{"type": "custom", "skill_id": skill.id, "version": skill.latest_version_id}],
    )
    assert pinned.skills[0].version == skill.latest_version_id
    for wrong in (
        [{"type": "custom", "skill_id": "skill_none"}],
        [{"type": "custom", "skill_id": skill.id, "version": "skver_none"}],
        [{"type": "custom", "skill_id": skill.id}] * 2,
    ):
        with pytest.raises(anthropic.BadRequestError, match=r"skills\[\d\]"):
            await acme.beta.agents.update(agent.id, skills=wrong)  # pyright: ignore[reportArgumentType]


async def test_an_archived_agent_is_not_listed_and_cannot_change(acme: AsyncAnthropic):
    agent = await made(acme)
    archived = await acme.beta.agents.archive(agent.id)
    assert archived.archived_at is not None
    assert archived.version == 1
    assert await acme.beta.agents.archive(agent.id) == archived
    assert await acme.beta.agents.retrieve(agent.id, version=1) == archived
    assert await ids(acme.beta.agents.list()) == []
    listed = acme.beta.agents.list(include_archived=True)
    assert [item.id async for item in listed] == [agent.id]
    with pytest.raises(anthropic.BadRequestError, match="archived"):
        await acme.beta.agents.update(agent.id, name="new")


async def test_agents_are_listed_newest_first_in_pages_and_by_time(acme: AsyncAnthropic):
    made_ids = [(await made(acme, name=f"a{n}")).id for n in range(5)]
    assert await ids(acme.beta.agents.list(limit=2)) == made_ids[::-1]
    third = (await acme.beta.agents.retrieve(made_ids[2])).created_at
    since = acme.beta.agents.list(created_at_gte=third)
    assert [item.id async for item in since] == made_ids[:1:-1]
    until = acme.beta.agents.list(created_at_lte=third - timedelta(microseconds=1))
    assert [item.id async for item in until] == made_ids[1::-1]
    with pytest.raises(anthropic.BadRequestError, match="limit"):
        await acme.beta.agents.list(limit=101)
    with pytest.raises(anthropic.BadRequestError, match="created_at"):
        await acme.beta.agents.list(created_at_gte="2026-01-01T00:00:00")
    with pytest.raises(anthropic.BadRequestError, match="page"):
        await acme.beta.agents.versions.list(made_ids[0], page="nonsense")


async def test_the_response_has_exactly_the_documented_fields(api: Served):
    async with httpx2.AsyncClient(base_url=api.url) as http:
        answer = await http.post(
            "/v1/agents", json={"model": MODEL, "name": "a"}, headers={"x-api-key": "acme:admin"}
        )
    assert set(answer.json()) == set(BetaManagedAgentsAgent.model_fields)


@dataclass(frozen=True)
class FixedPrincipal:
    """Lets everybody in as this one."""

    who: Principal

    async def admit(self, credentials: RequestCredentials, route: Route) -> AuthenticationResult:
        return AuthenticationResult(who=self.who)

    async def check_named(self, *_: object) -> None:
        pass


@asynccontextmanager
async def client_of(api: Served, principal: Principal) -> AsyncGenerator[AsyncAnthropic]:
    app = Api(routes(api.records), access_control=FixedPrincipal(principal)).application()
    async with (
        http_server(app) as url,
        AsyncAnthropic(api_key="any", base_url=url, max_retries=0) as client,
    ):
        yield client


async def test_a_key_limited_to_one_agent_lists_only_that_agent(api: Served):
    async with api.client() as client:
        await made(client, name="other")
        agent = await made(client)
    who = Principal(tenant="acme", key_id="key_1", role="viewer", agent_id=agent.id)
    async with client_of(api, who) as client:
        assert await ids(client.beta.agents.list()) == [agent.id]


async def test_an_agent_cannot_create_or_change_agents(api: Served):
    async with api.client() as client:
        agent = await made(client)
    who = Principal(tenant="acme", key_id="key_1", role="admin", acting_agent=agent.id)
    async with client_of(api, who) as client:
        with pytest.raises(anthropic.PermissionDeniedError, match="only a person"):
            await made(client)
        with pytest.raises(anthropic.PermissionDeniedError, match="only a person"):
            await client.beta.agents.update(agent.id, tools=[{"type": "agent_toolset_20260401"}])
