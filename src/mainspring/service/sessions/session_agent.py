"""A session's own copy of its agent: with what it was overridden by and whom it may call upon."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol, TypeAlias

from msgspec import UNSET, Struct, UnsetType, convert
from msgspec.structs import asdict, replace

from mainspring.core.errors import InvalidInput
from mainspring.core.ids import AgentId
from mainspring.runtime.subagent import GENERAL
from mainspring.runtime.subagents.thread_factory import FORK
from mainspring.service.access.principal import Principal
from mainspring.service.resources.agent_multiagent import (
    Advisor,
    AdvisorEnabled,
    AgentParams,
    AgentReference,
    Coordinator,
    DelegationEnabled,
    Disabled,
    Multiagent,
    Multiagent20261001,
    Switch,
    Version,
)
from mainspring.service.resources.agent_tool_validation import check_tools
from mainspring.service.resources.agent_tools import (
    AgentTool,
    McpServers,
    ToolsParams,
    UrlMcpServer,
    resolve_tools,
)
from mainspring.service.resources.agents import (
    AgentObject,
    ExecutionIdentity,
    ModelConfig,
    ModelParams,
    SystemPrompt,
    UpdateAgent,
)
from mainspring.service.resources.skill_resources import AgentSkill, SkillsParams


class AgentLookup(Protocol):
    async def get(self, tenant: str, agent_id: str, version: int | None = None) -> AgentObject:
        """Raises: NotFound."""
        ...

    async def with_changes(
        self, tenant: str, current: AgentObject, request: UpdateAgent
    ) -> AgentObject:
        """As it would be with these changes; nothing is kept. Raises: InvalidInput."""
        ...

    async def with_pinned_skills(self, tenant: str, agent: AgentObject) -> AgentObject:
        """With those versions of its skills that are the latest now."""
        ...


class ThreadAgent(Struct, frozen=True, kw_only=True, tag_field="type", tag="agent"):
    """An agent as a thread has it."""

    id: str
    name: str
    version: int
    model: ModelConfig
    execution_identity: ExecutionIdentity
    mcp_servers: tuple[UrlMcpServer, ...]
    skills: tuple[AgentSkill, ...]
    tools: tuple[AgentTool, ...]
    description: str | None = None
    system: str | None = None


class InlineAgent(Struct, frozen=True, kw_only=True, tag_field="type", tag="inline"):
    """Who runs a thread without being an agent that is kept: a helper of ours."""

    name: str
    model: ModelConfig
    execution_identity: ExecutionIdentity
    mcp_servers: tuple[UrlMcpServer, ...]
    skills: tuple[AgentSkill, ...]
    tools: tuple[AgentTool, ...]
    description: str | None = None
    system: str | None = None


class SessionCoordinator(Struct, frozen=True, kw_only=True, tag_field="type", tag="coordinator"):
    agents: tuple[ThreadAgent | Advisor, ...]


class SessionDelegation(Struct, frozen=True, kw_only=True, tag_field="type", tag="enabled"):
    inline_agents: Switch
    predefined_agents: tuple[ThreadAgent, ...]


class SessionMultiagent20261001(
    Struct, frozen=True, kw_only=True, tag_field="type", tag="multiagent_20261001"
):
    advisor: AdvisorEnabled | Disabled
    subagents: SessionDelegation | Disabled
    workflows: SessionDelegation | Disabled


SessionMultiagent: TypeAlias = SessionCoordinator | SessionMultiagent20261001


class SessionAgent(Struct, frozen=True, kw_only=True, tag_field="type", tag="agent"):
    """The agent as it was when the session was made."""

    id: str
    name: str
    version: int
    model: ModelConfig
    execution_identity: ExecutionIdentity
    mcp_servers: tuple[UrlMcpServer, ...]
    skills: tuple[AgentSkill, ...]
    tools: tuple[AgentTool, ...]
    description: str | None = None
    system: str | None = None
    multiagent: SessionMultiagent | None = None


class AgentWithOverrides(
    Struct, frozen=True, kw_only=True, tag_field="type", tag="agent_with_overrides"
):
    """What is named replaces the agent's own, for this session."""

    id: AgentId
    version: Version | None = None
    mcp_servers: McpServers | UnsetType | None = UNSET
    model: ModelParams | UnsetType = UNSET
    skills: SkillsParams | UnsetType | None = UNSET
    system: SystemPrompt | UnsetType | None = UNSET
    tools: ToolsParams | UnsetType | None = UNSET

    @property
    def has_other_tools(self) -> bool:
        return not (isinstance(self.tools, UnsetType) and isinstance(self.mcp_servers, UnsetType))


AgentChoice: TypeAlias = AgentId | AgentParams | AgentWithOverrides


class UpdateSessionAgent(Struct, frozen=True, kw_only=True):
    mcp_servers: McpServers | UnsetType = UNSET
    tools: ToolsParams | UnsetType = UNSET


def agent_id_of(choice: AgentChoice) -> str:
    return choice if isinstance(choice, str) else choice.id


async def snapshot_agent(
    agents: AgentLookup, principal: Principal, choice: AgentChoice
) -> SessionAgent:
    """Raises: NotFound, InvalidInput: it is archived, or an override does not fit; Forbidden: an
    agent would say what an agent may do."""
    tenant = principal.tenant
    version = None if isinstance(choice, str) else choice.version
    agent = await agents.get(tenant, agent_id_of(choice), version)
    if agent.archived_at is not None:
        raise InvalidInput(f"agent: {agent.id} is archived; no new sessions are made with it")
    if isinstance(choice, AgentWithOverrides):
        principal.require_human()
        asked = UpdateAgent(
            mcp_servers=choice.mcp_servers,
            model=choice.model,
            skills=choice.skills,
            system=choice.system,
            tools=choice.tools,
        )
        agent = await agents.with_changes(tenant, agent, asked)
    agent = await agents.with_pinned_skills(tenant, agent)
    return SessionAgent(
        **asdict(_to_thread_agent(agent)),
        multiagent=await _resolve_multiagent(agents, tenant, agent.multiagent),
    )


def update_session_agent(agent: SessionAgent, request: UpdateSessionAgent) -> SessionAgent:
    """Raises: InvalidInput: tools and servers do not fit together."""
    servers = (
        agent.mcp_servers if isinstance(request.mcp_servers, UnsetType) else request.mcp_servers
    )
    tools = agent.tools if isinstance(request.tools, UnsetType) else resolve_tools(request.tools)
    check_tools(tools, servers)
    return replace(agent, mcp_servers=servers, tools=tools)


def thread_agent(agent: SessionAgent, name: str | None = None) -> ThreadAgent | InlineAgent:
    """The agent that a thread runs: by the name that the call gave it; `None`: the session's."""
    own = _to_thread_agent(agent)
    if name is None or name == FORK:
        return own
    called = callable_agents(agent).get(name)
    if called is not None:
        return called
    is_ours = name == GENERAL.name
    return replace(
        convert(own, InlineAgent, from_attributes=True),
        name=name,
        description=GENERAL.description if is_ours else None,
        system=GENERAL.prompt if is_ours else None,
    )


def callable_agents(agent: SessionAgent) -> dict[str, ThreadAgent]:
    """Whom the agent may call, by what they are called by: their names, and where that is not
    enough to tell them apart, their ids too."""
    called: dict[str, ThreadAgent] = {}
    for predefined_agent in _predefined_agents(agent.multiagent):
        is_taken = predefined_agent.name in (*called, FORK, GENERAL.name)
        called[
            f"{predefined_agent.name} ({predefined_agent.id})"
            if is_taken
            else predefined_agent.name
        ] = predefined_agent
    return called


def may_use_inline_agents(agent: SessionAgent) -> bool:
    """Whether it may call upon somebody whom nobody has described before."""
    match agent.multiagent:
        case SessionMultiagent20261001(subagents=SessionDelegation(inline_agents=inline)):
            return inline.type == "enabled"
        case _:
            return False


def models_of(agent: SessionAgent) -> frozenset[str]:
    """All that may be asked in the session, for what is known when it is made."""
    members = _all_thread_agents(agent.multiagent)
    advisors = _advisors(agent.multiagent)
    return frozenset([agent.model.id, *advisors, *(member.model.id for member in members)])


def has_advisor(agent: SessionAgent) -> bool:
    return bool(_advisors(agent.multiagent))


def skills_of(agent: SessionAgent) -> dict[AgentSkill, None]:
    """All that its threads may have, each once."""
    every = (agent, *_all_thread_agents(agent.multiagent))
    return dict.fromkeys(skill for item in every for skill in item.skills)


def _to_thread_agent(agent: SessionAgent | AgentObject) -> ThreadAgent:
    return convert(agent, ThreadAgent, from_attributes=True)


def _advisors(multiagent: SessionMultiagent | None) -> list[str]:
    match multiagent:
        case SessionCoordinator(agents=agents):
            return [agent.model for agent in agents if isinstance(agent, Advisor)]
        case SessionMultiagent20261001(advisor=AdvisorEnabled(model=model)):
            return [model]
        case _:
            return []


def _predefined_agents(multiagent: SessionMultiagent | None) -> Sequence[ThreadAgent]:
    match multiagent:
        case SessionCoordinator(agents=agents):
            return [agent for agent in agents if isinstance(agent, ThreadAgent)]
        case SessionMultiagent20261001(subagents=SessionDelegation(predefined_agents=agents)):
            return agents
        case _:
            return ()


def _all_thread_agents(multiagent: SessionMultiagent | None) -> list[ThreadAgent]:
    match multiagent:
        case None:
            return []
        case SessionCoordinator(agents=agents):
            return [agent for agent in agents if isinstance(agent, ThreadAgent)]
        case SessionMultiagent20261001(subagents=subagents, workflows=workflows):
            return [
                predefined_agent
                for delegation in (subagents, workflows)
                if isinstance(delegation, SessionDelegation)
                for predefined_agent in delegation.predefined_agents
            ]


async def _resolve_multiagent(
    agents: AgentLookup, tenant: str, multiagent: Multiagent | None
) -> SessionMultiagent | None:
    async def found(reference: AgentReference) -> ThreadAgent:
        agent = await agents.get(tenant, reference.id, reference.version)
        return _to_thread_agent(await agents.with_pinned_skills(tenant, agent))

    async def delegation(current: DelegationEnabled | Disabled) -> SessionDelegation | Disabled:
        if isinstance(current, Disabled):
            return current
        members = [await found(predefined_agent) for predefined_agent in current.predefined_agents]
        return SessionDelegation(
            inline_agents=current.inline_agents, predefined_agents=tuple(members)
        )

    match multiagent:
        case None:
            return None
        case Coordinator(agents=listed):
            members = [item if isinstance(item, Advisor) else await found(item) for item in listed]
            return SessionCoordinator(agents=tuple(members))
        case Multiagent20261001():
            return SessionMultiagent20261001(
                advisor=multiagent.advisor,
                subagents=await delegation(multiagent.subagents),
                workflows=await delegation(multiagent.workflows),
            )
