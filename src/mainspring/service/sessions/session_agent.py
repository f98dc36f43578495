"""A session's copy of its agent, with its overrides and the agents that it may call."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypeAlias

from msgspec import UNSET, Struct, UnsetType
from msgspec.structs import replace

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
    Agents,
    ExecutionIdentity,
    ModelConfig,
    ModelParams,
    SystemPrompt,
    UpdateAgent,
)
from mainspring.service.resources.skill_resources import AgentSkill, SkillsParams
from mainspring.service.storage.metadata import copy_fields


class ThreadAgent(Struct, frozen=True, kw_only=True, tag_field="type", tag="agent"):
    """The agent of a thread."""

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
    """The agent of a thread that is not stored as a resource: a built-in subagent."""

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


class SessionAgent(ThreadAgent, frozen=True, kw_only=True, tag_field="type", tag="agent"):
    """The agent as it was when the session was created."""

    multiagent: SessionMultiagent | None = None


class AgentWithOverrides(
    Struct, frozen=True, kw_only=True, tag_field="type", tag="agent_with_overrides"
):
    """An agent for one session; fields that are set override those of the stored agent."""

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


async def snapshot_agent(agents: Agents, principal: Principal, choice: AgentChoice) -> SessionAgent:
    """Raises: NotFound, InvalidInput: it is archived, or an override does not fit; Forbidden: an
    agent requests overrides."""
    tenant = principal.tenant
    version = None if isinstance(choice, str) else choice.version
    agent = await agents.get(tenant, agent_id_of(choice), version)
    if agent.archived_at is not None:
        raise InvalidInput(f"agent: {agent.id} is archived; it cannot start new sessions")
    if isinstance(choice, AgentWithOverrides):
        principal.require_human()
        overrides = copy_fields(UpdateAgent, choice, version=UNSET)
        agent = await agents.with_changes(tenant, agent, overrides)
    agent = await agents.with_pinned_skills(tenant, agent)
    multiagent = await _resolve_multiagent(agents, tenant, agent.multiagent)
    return copy_fields(SessionAgent, agent, multiagent=multiagent)


def update_session_agent(agent: SessionAgent, request: UpdateSessionAgent) -> SessionAgent:
    """Raises: InvalidInput: tools and servers do not fit together."""
    servers = (
        agent.mcp_servers if isinstance(request.mcp_servers, UnsetType) else request.mcp_servers
    )
    tools = agent.tools if isinstance(request.tools, UnsetType) else resolve_tools(request.tools)
    check_tools(tools, servers)
    return replace(agent, mcp_servers=servers, tools=tools)


def thread_agent(agent: SessionAgent, name: str | None = None) -> ThreadAgent | InlineAgent:
    """The agent of a thread, by the name in the call; `None`: the session's agent."""
    if name is None or name == FORK:
        return copy_fields(ThreadAgent, agent)
    member = callable_agents(agent).get(name)
    if member is not None:
        return member
    is_general = name == GENERAL.name
    return copy_fields(
        InlineAgent,
        agent,
        name=name,
        description=GENERAL.description if is_general else None,
        system=GENERAL.prompt if is_general else None,
    )


def callable_agents(agent: SessionAgent) -> dict[str, ThreadAgent]:
    """The agents that this one may call, by name; the id is appended if the name is taken."""
    agents: dict[str, ThreadAgent] = {}
    for item in _predefined_agents(agent.multiagent):
        is_taken = item.name in (*agents, FORK, GENERAL.name)
        agents[f"{item.name} ({item.id})" if is_taken else item.name] = item
    return agents


def may_use_inline_agents(agent: SessionAgent) -> bool:
    """Whether the agent may call agents that are not defined in advance."""
    match agent.multiagent:
        case SessionMultiagent20261001(subagents=SessionDelegation(inline_agents=inline)):
            return inline.type == "enabled"
        case _:
            return False


def workflow_delegation(agent: SessionAgent) -> SessionDelegation | None:
    """The agents that plans of workflows may use; `None` if the agent may start none."""
    match agent.multiagent:
        case SessionMultiagent20261001(workflows=SessionDelegation() as delegation):
            return delegation
        case _:
            return None


def workflow_agent(agent: SessionAgent, delegation: SessionDelegation) -> SessionAgent:
    """The agent of a run that an agent starts: itself, with the agents that plans may use."""
    members = SessionMultiagent20261001(
        advisor=Disabled(), subagents=delegation, workflows=Disabled()
    )
    return replace(agent, multiagent=members)


def models_of(agent: SessionAgent) -> frozenset[str]:
    """All models that the session may use."""
    members = _all_thread_agents(agent.multiagent)
    advisors = advisor_models(agent.multiagent)
    return frozenset([agent.model.id, *advisors, *(member.model.id for member in members)])


def skills_of(agent: SessionAgent) -> dict[AgentSkill, None]:
    """The skills of the agent and of all agents that it may call, each once."""
    agents = (agent, *_all_thread_agents(agent.multiagent))
    return dict.fromkeys(skill for item in agents for skill in item.skills)


def advisor_models(multiagent: SessionMultiagent | None) -> list[str]:
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


def _all_thread_agents(multiagent: SessionMultiagent | None) -> Sequence[ThreadAgent]:
    match multiagent:
        case SessionMultiagent20261001(workflows=SessionDelegation(predefined_agents=agents)):
            return [*_predefined_agents(multiagent), *agents]
        case _:
            return _predefined_agents(multiagent)


async def _resolve_multiagent(
    agents: Agents, tenant: str, multiagent: Multiagent | None
) -> SessionMultiagent | None:
    async def pinned(reference: AgentReference) -> ThreadAgent:
        agent = await agents.get(tenant, reference.id, reference.version)
        return copy_fields(ThreadAgent, await agents.with_pinned_skills(tenant, agent))

    async def delegation(current: DelegationEnabled | Disabled) -> SessionDelegation | Disabled:
        if isinstance(current, Disabled):
            return current
        members = tuple([await pinned(reference) for reference in current.predefined_agents])
        return SessionDelegation(inline_agents=current.inline_agents, predefined_agents=members)

    match multiagent:
        case None:
            return None
        case Coordinator(agents=listed):
            members = [item if isinstance(item, Advisor) else await pinned(item) for item in listed]
            return SessionCoordinator(agents=tuple(members))
        case Multiagent20261001():
            return SessionMultiagent20261001(
                advisor=multiagent.advisor,
                subagents=await delegation(multiagent.subagents),
                workflows=await delegation(multiagent.workflows),
            )
