"""Agents of the API as the runtime knows agents: the same as by a folder, or in Python."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import msgspec
from tests.api.agents_api import MODEL

from mainspring import Agent
from mainspring.capabilities.tools.client_tools import client_tools
from mainspring.core.model import ToolSpec
from mainspring.log.sqlite import open_sqlite
from mainspring.runtime.agent import prefix_of
from mainspring.runtime.agent_folder.agent_loader import read_agent
from mainspring.runtime.definition_files.scopes import Scopes
from mainspring.runtime.subagent import GENERAL
from mainspring.service.access.principal import Principal
from mainspring.service.resources.agents import Agents, CreateAgent
from mainspring.service.resources.environments import CloudConfig
from mainspring.service.sessions.agent_mapper import MappedSession, SessionSpec, map_session
from mainspring.service.sessions.session_agent import (
    AgentWithOverrides,
    SessionAgent,
    snapshot_agent,
)

WHO = Principal(tenant="acme", key_id="key_1", role="admin", name="olga")
TOOLSET = {"type": "agent_toolset_20260401"}


def toolset(policy: str, **more: object) -> dict[str, Any]:
    return {**TOOLSET, "default_config": {"permission_policy": {"type": policy}}, **more}


async def create_agent(agents: Agents, **fields: object) -> str:
    asked = msgspec.convert({"model": MODEL, **fields}, CreateAgent)
    return (await agents.create("acme", asked)).id


def map_agent(agent: SessionAgent, folder: Path) -> MappedSession:
    return map_session(
        SessionSpec(
            agent=agent, environment=CloudConfig(), workspace=folder, client_tools=client_tools
        )
    )


async def test_an_agent_is_the_same_from_the_api_a_folder_and_python(tmp_path: Path):
    (tmp_path / "agent.yaml").write_text(
        f"name: clerk\ndescription: Keeps books.\nmodel: {MODEL}\n"
        "instructions: Be brief.\ntools: [bash, read]\nagents: []\n"
    )
    by_folder = read_agent(Scopes(folder=tmp_path)).agent
    in_python = Agent(
        name="clerk",
        description="Keeps books.",
        model=MODEL,
        instructions="Be brief.",
        built_ins=("bash", "read"),
    )
    names = ("edit", "write", "glob", "grep", "web_fetch", "web_search")
    off = [{"name": name, "enabled": False} for name in names]
    async with open_sqlite(tmp_path / "log.db") as store:
        agents = Agents(store.records)
        made = await create_agent(
            agents,
            name="clerk",
            description="Keeps books.",
            system="Be brief.",
            tools=[{**TOOLSET, "configs": off}],
        )
        by_api = map_agent(await snapshot_agent(agents, WHO, made), tmp_path).agent
    same = [replace(item, client_tools=()) for item in (by_folder, in_python, by_api)]
    assert same[0] == same[1] == same[2]
    tools = [ToolSpec(name="bash", description="Runs.", input_schema={})]
    assert len({prefix_of(item, tools).digest for item in same}) == 1


async def test_agents_of_a_roster_are_full_agents(tmp_path: Path):
    async with open_sqlite(tmp_path / "log.db") as store:
        agents = Agents(store.records)
        custom = {
            "type": "custom",
            "name": "lookup",
            "description": "Looks up.",
            "input_schema": {"type": "object"},
        }
        scout = await create_agent(agents, name="scout", system="Look.", tools=[TOOLSET, custom])
        double = await create_agent(agents, name="scout", description="Another.")
        lead = await create_agent(
            agents,
            name="lead",
            system="Lead.",
            multiagent={"type": "coordinator", "agents": [scout, double, {"type": "self"}]},
        )
        made = map_agent(await snapshot_agent(agents, WHO, lead), tmp_path).agent
    first, second, own = made.subagents
    assert (first.name, second.name, own.name) == ("scout", f"scout ({double})", "lead")
    assert (first.prompt, first.model, first.reads_instructions) == ("Look.", MODEL, False)
    assert first.own is not None
    assert "bash" in first.own.built_ins
    assert [client_tool.name for client_tool in first.own.client_tools] == ["lookup"]
    assert (made.built_ins, made.is_coordinator) == ((), False)
    assert own.prompt == "Lead."


async def test_the_newer_multiagent_format_also_allows_the_general_subagent(tmp_path: Path):
    async with open_sqlite(tmp_path / "log.db") as store:
        agents = Agents(store.records)
        alone = await create_agent(agents, name="alone")
        shape = {"type": "multiagent_20261001"}
        free = await create_agent(agents, name="free", multiagent=shape)
        off = await create_agent(
            agents, name="off", multiagent={**shape, "subagents": {"type": "disabled"}}
        )
        crews = [
            map_agent(await snapshot_agent(agents, WHO, item), tmp_path).agent.subagents
            for item in (alone, free, off)
        ]
    assert crews == [(), (GENERAL,), ()]


async def test_of_several_agents_the_strictest_tool_policy_applies(tmp_path: Path):
    asks = {"name": "write", "permission_policy": {"type": "always_ask"}}
    here = {"name": "web_fetch", "allowed_domains": ["a.example", "b.example"]}
    there = {"name": "web_fetch", "allowed_domains": ["b.example"]}
    nowhere = {"name": "web_fetch", "blocked_domains": ["c.example"]}
    async with open_sqlite(tmp_path / "log.db") as store:
        agents = Agents(store.records)
        free = [toolset("always_allow", configs=[here])]
        scout = await create_agent(
            agents, name="scout", tools=[toolset("always_allow", configs=[asks, there])]
        )
        other = await create_agent(
            agents, name="other", tools=[toolset("always_allow", configs=[nowhere])]
        )
        lead = await create_agent(
            agents,
            name="lead",
            tools=free,
            multiagent={"type": "coordinator", "agents": [scout, other]},
        )
        alone = await create_agent(agents, name="alone", tools=[toolset("always_allow")])
        options = map_agent(await snapshot_agent(agents, WHO, lead), tmp_path).options
        alone_wish = map_agent(await snapshot_agent(agents, WHO, alone), tmp_path).options
    rules = {rule.text: rule.behavior for rule in options.rules}
    assert (rules["Write"], rules["Bash"]) == ("ask", "allow")
    assert rules["WebFetch(domain:b.example)"] == "allow"
    assert rules["WebFetch(domain:c.example)"] == "deny"
    assert "WebFetch(domain:a.example)" not in rules
    assert (options.mode, alone_wish.mode) == ("default", "bypassPermissions")


async def test_unavailable_features_are_reported(tmp_path: Path):
    async with open_sqlite(tmp_path / "log.db") as store:
        agents = Agents(store.records)
        made = await create_agent(
            agents,
            name="clerk",
            multiagent={"type": "coordinator", "agents": [{"type": "advisor", "model": MODEL}]},
        )
        choice = msgspec.convert(
            {
                "type": "agent_with_overrides",
                "id": made,
                "skills": [{"type": "anthropic", "skill_id": "xlsx"}],
            },
            AgentWithOverrides,
        )
        notes = map_agent(await snapshot_agent(agents, WHO, choice), tmp_path).options.notes
    assert any("xlsx" in note for note in notes)
    assert any("advisor" in note for note in notes)
