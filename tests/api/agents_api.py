"""Agents on loopback: their routes, a client's way to make one, and some of what they have."""

from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from anthropic import AsyncAnthropic
from anthropic.types.beta import BetaManagedAgentsAgent
from tests.api.api_server import Served, served

from mainspring.core.errors import InvalidInput
from mainspring.edges.api.route import Route, routes_of
from mainspring.edges.api.routes.define.agents import AgentRoutes
from mainspring.edges.api.routes.define.skills import SkillRoutes
from mainspring.log.records import Records
from mainspring.service.resources.agents import Agents
from mainspring.service.resources.skill_resources import Skills

MODEL = "claude-opus-5-5"
SEARCH: dict[str, Any] = {"type": "url", "name": "docs", "url": "https://mcp.example.com/x"}
CUSTOM: dict[str, Any] = {
    "type": "custom",
    "name": "ask_owner",
    "description": "Ask the owner.",
    "input_schema": {
        "type": "object",
        "properties": {"question": {"type": "string"}},
        "required": ["question"],
        "additionalProperties": False,
    },
}


def known_models(model: str) -> None:
    if model == "no-such-model":
        raise InvalidInput(f"model: there is no model {model}")


def routes(records: Records) -> tuple[Route, ...]:
    agents = Agents(records, check_model=known_models)
    return (*routes_of(AgentRoutes(agents)), *routes_of(SkillRoutes(Skills(records))))


async def made(client: AsyncAnthropic, **fields: object) -> BetaManagedAgentsAgent:
    asked: dict[str, Any] = {"model": MODEL, "name": "helper", **fields}
    return await client.beta.agents.create(**asked)


@asynccontextmanager
async def served_agents(folder: Path) -> AsyncGenerator[Served]:
    async with served(folder, routes) as running:
        yield running
