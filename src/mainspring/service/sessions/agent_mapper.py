"""Map an agent and an environment of the API to the runtime's agent and run options."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from decimal import Decimal
from pathlib import Path
from typing import assert_never
from urllib.parse import urlsplit

import msgspec

from mainspring.core.events import Permission
from mainspring.core.model import Effort, ToolSpec
from mainspring.core.ports import Credential
from mainspring.core.tool import Tool
from mainspring.harness.limits import Limits
from mainspring.harness.permissions.policy import Mode, PolicyRule
from mainspring.harness.permissions.tool_names import claude_code_name
from mainspring.runtime.agent import Agent
from mainspring.runtime.mcp_server import McpServer, McpServerTools, McpToolPermission
from mainspring.runtime.run_options import RunOptions, ServerToken
from mainspring.runtime.settings.pinned_policy import reading_rules
from mainspring.runtime.skills.skill import Skill
from mainspring.runtime.subagent import GENERAL, StandaloneParts, Subagent
from mainspring.service.resources.agent_tools import (
    BuiltinConfig,
    EffectiveToolset,
    PermissionPolicy,
    ToolDefaults,
    effective_toolset,
    merge_toolsets,
)
from mainspring.service.resources.agents import ModelConfig
from mainspring.service.resources.environments import (
    CloudConfig,
    EnvironmentConfig,
    LimitedNetwork,
    SelfHostedConfig,
    UnrestrictedNetwork,
)
from mainspring.service.resources.skill_resources import AgentSkill
from mainspring.service.sessions.session_agent import (
    SessionAgent,
    ThreadAgent,
    advisor_models,
    callable_agents,
    may_use_inline_agents,
    skills_of,
)
from mainspring.service.sessions.web_fetch_sources import search_domains, web_fetch_limits

_RULE_SOURCE = "the agent's tools"
_MCP_TOOLS = "mcp__*"
"""All MCP tools that the toolsets of a subagent enable."""
_INSTALLED = ("pip", "npm", "apt")
"""Packages that Mainspring installs."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SessionSpec:
    """Everything that a run of a session needs."""

    agent: SessionAgent
    environment: EnvironmentConfig
    workspace: Path
    client_tools: Callable[[Collection[str]], Sequence[Tool]]
    """The built-in tools of these names, run by a worker of the client."""
    max_cost_usd: Decimal | None = None
    credentials: tuple[Credential, ...] = ()
    server_token: ServerToken | None = None
    notes: tuple[str, ...] = ()
    model: str | None = None
    """Set by the operator; overrides the models of agents."""
    skills: Mapping[AgentSkill, Skill] = field(default_factory=dict[AgentSkill, Skill])
    """The available skills of the agent and of the agents that it may call."""

    @property
    def is_remote(self) -> bool:
        return isinstance(self.environment, SelfHostedConfig)

    def skills_of(self, agent: SessionAgent | ThreadAgent) -> tuple[Skill, ...]:
        """The available skills of an agent; if two have the same name, the first."""
        by_name: dict[str, Skill] = {}
        for skill in agent.skills:
            if skill in self.skills:
                by_name.setdefault(self.skills[skill].name, self.skills[skill])
        return tuple(by_name.values())


@dataclass(frozen=True, slots=True, kw_only=True)
class MappedSession:
    agent: Agent
    options: RunOptions


def map_session(spec: SessionSpec) -> MappedSession:
    members = callable_agents(spec.agent).values()
    toolsets = [effective_toolset(agent) for agent in (spec.agent, *members)]
    tools = merge_toolsets(toolsets)
    builtins = [config for toolset in toolsets for config in toolset.builtins.values()]
    agent = map_agent(spec)
    servers = _servers(toolsets, spec.environment)
    options = RunOptions(
        workspace=spec.workspace,
        mode=_mode(tools, is_remote=spec.is_remote),
        is_served=True,
        rules=(*_rules(tools), *reading_rules(agent)),
        sandbox=_sandbox(spec.environment),
        credentials=spec.credentials,
        servers=servers.reachable,
        server_token=spec.server_token,
        web_fetch=web_fetch_limits([item for item in builtins if item.name == "web_fetch"]),
        search_domains=search_domains([item for item in builtins if item.name == "web_search"]),
        notes=(*spec.notes, *servers.notes, *_notes(tools, spec)),
    )
    return MappedSession(agent=agent, options=options)


def map_agent(spec: SessionSpec) -> Agent:
    """The agent of the session's main thread, and its subagents."""
    tools = effective_toolset(spec.agent)
    return Agent(
        name=spec.agent.name,
        description=spec.agent.description or "",
        instructions=spec.agent.system or "",
        model=spec.model or spec.agent.model.id,
        tools=spec.client_tools(tools.builtins) if spec.is_remote else (),
        built_ins=() if spec.is_remote else tuple(tools.builtins),
        client_tools=_client_tools(tools),
        limits=Limits(max_cost_usd=spec.max_cost_usd),
        effort=_effort(spec.agent.model),
        subagents=tuple(_subagents(spec)),
        has_one_model=spec.model is not None,
        skills=spec.skills_of(spec.agent),
        mcp_toolsets=_mcp_toolsets(tools),
    )


def _subagents(spec: SessionSpec) -> Iterator[Subagent]:
    """The subagents. Each has its own system prompt, model, tools and skills, inherits nothing
    from the session's agent, and has no subagents itself."""
    for name, member in callable_agents(spec.agent).items():
        tools = effective_toolset(member)
        yield Subagent(
            name=name,
            description=member.description or f"The agent {member.name}.",
            prompt=member.system or "",
            reads_instructions=False,
            model=None if spec.model is not None else member.model.id,
            effort=_effort(member.model),
            tools=(*tools.builtins, *(item.name for item in tools.custom), _MCP_TOOLS),
            own=StandaloneParts(
                built_ins=() if spec.is_remote else tuple(tools.builtins),
                client_tools=_client_tools(tools),
                skills=spec.skills_of(member),
                mcp_toolsets=_mcp_toolsets(tools),
            ),
        )
    if may_use_inline_agents(spec.agent):
        yield GENERAL


def _mcp_toolsets(tools: EffectiveToolset) -> tuple[McpServerTools, ...]:
    return tuple(
        McpServerTools(
            server=item.server.name,
            default=_mcp_config(item.tool_defaults),
            configs={name: _mcp_config(config) for name, config in item.configs.items()},
        )
        for item in tools.mcp
    )


def _mcp_config(config: ToolDefaults) -> McpToolPermission:
    return McpToolPermission(
        is_enabled=config.enabled, permission=_behavior(config.permission_policy)
    )


@dataclass(frozen=True, slots=True)
class _Servers:
    reachable: tuple[McpServer, ...]
    notes: tuple[str, ...]


def _servers(toolsets: Sequence[EffectiveToolset], environment: EnvironmentConfig) -> _Servers:
    """The MCP servers of all agents of a session that its environment lets it reach."""
    urls: dict[str, str] = {}
    notes: dict[str, str] = {}
    for item in (mcp.server for toolset in toolsets for mcp in toolset.mcp):
        if urls.setdefault(item.name, item.url) != item.url:
            notes[item.name] = "two agents of this session use this name for different servers"
        elif not _is_reachable(item.url, environment):
            notes[item.name] = "the network of the environment does not allow it"
    return _Servers(
        reachable=tuple(
            McpServer(name=name, transport="http", url=url)
            for name, url in urls.items()
            if name not in notes
        ),
        notes=tuple(
            f"The MCP server {name} is not connected: {why}." for name, why in notes.items()
        ),
    )


def _is_reachable(url: str, environment: EnvironmentConfig) -> bool:
    """Whether the environment's network policy allows an MCP server. The servers are called from
    outside the sandbox, under the same policy as its programs."""
    if not isinstance(environment, CloudConfig):
        return True
    network = environment.networking
    if isinstance(network, UnrestrictedNetwork) or network.allow_mcp_servers:
        return True
    host = (urlsplit(url).hostname or "").lower()
    return any(
        host.endswith(allowed[1:].lower()) if allowed.startswith("*.") else host == allowed.lower()
        for allowed in network.allowed_hosts
    )


def _client_tools(tools: EffectiveToolset) -> tuple[ToolSpec, ...]:
    return tuple(
        ToolSpec(name=item.name, description=item.description, input_schema=item.input_schema)
        for item in tools.custom
    )


def _effort(model: ModelConfig) -> Effort:
    return "none" if model.effort is None else model.effort.type


def _mode(tools: EffectiveToolset, *, is_remote: bool) -> Mode:
    """The permission mode. Permissions are bypassed only if all tools are always allowed and a
    sandbox confines them; a client's own worker may have no sandbox."""
    policies = {config.permission_policy.type for config in tools.builtins.values()}
    mcp_configs = [item for mcp in tools.mcp for item in (mcp.tool_defaults, *mcp.configs.values())]
    if "auto" in policies | {item.permission_policy.type for item in mcp_configs if item.enabled}:
        return "auto"
    is_open = policies == {"always_allow"} and not is_remote
    return "bypassPermissions" if is_open else "default"


def _rules(tools: EffectiveToolset) -> Iterator[PolicyRule]:
    for name, config in tools.builtins.items():
        behavior = _behavior(config.permission_policy)
        for domain in config.blocked_domains or ():
            yield _rule(f"{claude_code_name(name)}(domain:{domain})", "deny")
        if behavior is not None:
            yield from _allow_rules(claude_code_name(name), config, behavior)


def _allow_rules(name: str, config: BuiltinConfig, behavior: Permission) -> Iterator[PolicyRule]:
    """A tool that is limited to some domains is allowed for these; others need approval."""
    if behavior == "allow" and config.allowed_domains is not None:
        for domain in config.allowed_domains:
            yield _rule(f"{name}(domain:{domain})", "allow")
    else:
        yield _rule(name, behavior)


def _behavior(permission_policy: PermissionPolicy) -> Permission | None:
    match permission_policy.type:
        case "always_allow":
            return "allow"
        case "always_ask":
            return "ask"
        case "auto":
            return None
        case _:
            assert_never(permission_policy.type)


def _rule(text: str, behavior: Permission) -> PolicyRule:
    return PolicyRule(text=text, behavior=behavior, scope="session", source=_RULE_SOURCE)


def _sandbox(environment_config: EnvironmentConfig) -> Mapping[str, object]:
    if not isinstance(environment_config, CloudConfig):
        return {}
    packages = environment_config.packages
    settings: dict[str, object] = {}
    if environment_config.networking != LimitedNetwork():  # else there are no hosts: no network
        settings["networking"] = msgspec.to_builtins(environment_config.networking)
    if installed := {
        name: getattr(packages, name) for name in _INSTALLED if getattr(packages, name)
    }:
        settings["packages"] = installed
    return settings


def _notes(tools: EffectiveToolset, spec: SessionSpec) -> Iterator[str]:
    """Notes for the model about packages, skills and tools that may be unavailable."""
    config = spec.environment
    if isinstance(config, CloudConfig):
        packages = {name: getattr(config.packages, name) for name in ("cargo", "gem", "go")}
        package_list = "; ".join(
            f"{name}: {', '.join(names)}" for name, names in packages.items() if names
        )
        if package_list:
            yield f"Check whether these requested packages are installed: {package_list}."
    if unknown := [item.skill_id for item in skills_of(spec.agent) if item not in spec.skills]:
        yield f"These skills are not available here: {', '.join(unknown)}."
    if advisor_models(spec.agent.multiagent):
        yield "No advisor is available."
