"""`/v1/agents`."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass

from msgspec import Struct

from mainspring.edges.api.route import ApiCall, Empty, ShortPageQuery, Timestamp, list_query, route
from mainspring.service.resources.agent_multiagent import Version
from mainspring.service.resources.agents import AgentObject, Agents, CreateAgent, UpdateAgent
from mainspring.service.storage.pagination import Page


class ListAgents(ShortPageQuery, frozen=True, kw_only=True):
    include_archived: bool = False
    created_at_gte: Timestamp | None = None
    created_at_lte: Timestamp | None = None


class GetAgent(Struct, frozen=True, kw_only=True):
    version: Version | None = None


async def _ignore_archived(_tenant: str, _agent_id: str) -> None:
    pass


@dataclass(frozen=True, slots=True)
class AgentRoutes:
    agents: Agents
    archived: Callable[[str, str], Awaitable[None]] = _ignore_archived
    """Called with the tenant and the agent's id after an agent was archived."""

    @route("POST /v1/agents", "Create an agent")
    async def create(self, call: ApiCall[Empty, CreateAgent]) -> AgentObject:
        call.who.require_human()
        return await self.agents.create(call.tenant, call.body, author=call.who.key_id)

    @route("GET /v1/agents", "List agents", for_agent_keys=True)
    async def list(self, call: ApiCall[ListAgents, Empty]) -> Page[AgentObject]:
        if call.who.agent_id is not None:  # the key is limited to this agent
            return Page(data=[await self.agents.get(call.tenant, call.who.agent_id)])
        return await self.agents.page(call.tenant, list_query(call.query))

    @route("GET /v1/agents/{agent_id}", "Get an agent, as it is now or at a version")
    async def get(self, call: ApiCall[GetAgent, Empty]) -> AgentObject:
        return await self.agents.get(call.tenant, call["agent_id"], call.query.version)

    @route("POST /v1/agents/{agent_id}", "Update an agent, which creates a new version of it")
    async def update(self, call: ApiCall[Empty, UpdateAgent]) -> AgentObject:
        call.who.require_human()
        return await self.agents.update(
            call.tenant, call["agent_id"], call.body, author=call.who.key_id
        )

    @route("POST /v1/agents/{agent_id}/archive", "Archive an agent: no new session can use it")
    async def archive(self, call: ApiCall[Empty, Empty]) -> AgentObject:
        agent = await self.agents.archive(call.tenant, call["agent_id"])
        await self.archived(call.tenant, agent.id)
        return agent

    @route("GET /v1/agents/{agent_id}/versions", "List the versions of an agent")
    async def versions(self, call: ApiCall[ShortPageQuery, Empty]) -> Page[AgentObject]:
        return await self.agents.versions(call.tenant, call["agent_id"], list_query(call.query))
