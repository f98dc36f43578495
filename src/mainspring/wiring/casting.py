"""What the API says of an agent and its environment, as the runtime and the hands understand it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from decimal import Decimal
from pathlib import Path
from typing import TYPE_CHECKING, assert_never

import msgspec

from mainspring.capabilities.tools.client_hands import client_hands
from mainspring.core.events import Permission
from mainspring.core.model import Effort, ToolSpec
from mainspring.harness.limits import Limits
from mainspring.harness.permissions.names import theirs
from mainspring.harness.permissions.policy import HeldRule, Mode
from mainspring.runtime.agent import Agent
from mainspring.runtime.crew.built_in import GENERAL
from mainspring.runtime.crew.subagent import Own, Subagent
from mainspring.runtime.skills.skill import Skill
from mainspring.runtime.skills.using import reading_rules
from mainspring.service.describing.agent_model import ModelConfig
from mainspring.service.describing.agent_tools import (
    BuiltinConfig,
    Policy,
    Toolset,
    together,
    toolset_of,
)
from mainspring.service.describing.agents import AgentSkill
from mainspring.service.describing.environments import (
    CloudConfig,
    Config,
    Limited,
    Packages,
    SelfHostedConfig,
)
from mainspring.service.sessions.agent import (
    SessionAgent,
    ThreadAgent,
    has_advisor,
    may_improvise,
    roster,
    skills_of,
)
from mainspring.wiring.web_sources import limits_of
from mainspring.wiring.wish import Wish

if TYPE_CHECKING:
    from mainspring.capabilities.network.placeholders import Credential

_SOURCE = "the agent's tools"


@dataclass(frozen=True, slots=True, kw_only=True)
class Part:
    """What a session of the service is run with."""

    agent: SessionAgent
    environment: Config
    workspace: Path
    max_cost_usd: Decimal | None = None
    credentials: tuple[Credential, ...] = ()
    notes: tuple[str, ...] = ()
    model: str | None = None
    """The operator's word, whatever the agent says."""
    skills: Mapping[AgentSkill, Skill] = field(default_factory=dict[AgentSkill, Skill])
    """Those of the agent, and of whom it may call, that are to be had here."""

    @property
    def is_remote(self) -> bool:
        return isinstance(self.environment, SelfHostedConfig)

    def skills_of(self, agent: SessionAgent | ThreadAgent) -> tuple[Skill, ...]:
        """Of two with one name, the first."""
        found: dict[str, Skill] = {}
        for each in agent.skills:
            if each in self.skills:
                found.setdefault(self.skills[each].name, self.skills[each])
        return tuple(found.values())


@dataclass(frozen=True, slots=True, kw_only=True)
class Cast:
    agent: Agent
    wish: Wish


def cast_for(part: Part) -> Cast:
    called = [toolset_of(each) for each in roster(part.agent).values()]
    toolsets = [toolset_of(part.agent), *called]
    tools = together(toolsets)
    fetching = [each.builtins["web_fetch"] for each in toolsets if "web_fetch" in each.builtins]
    agent = agent_for(part)
    wish = Wish(
        workspace=part.workspace,
        mode=_mode(tools, is_remote=part.is_remote),
        is_served=True,
        rules=(*_rules(tools), *reading_rules(agent)),
        sandbox=_sandbox(part.environment),
        credentials=part.credentials,
        web_fetch=limits_of(fetching),
        notes=(*part.notes, *_notes(tools, part)),
    )
    return Cast(agent=agent, wish=wish)


def agent_for(part: Part) -> Agent:
    """Who runs the session's main thread, and whom it may call."""
    tools = toolset_of(part.agent)
    return Agent(
        name=part.agent.name,
        description=part.agent.description or "",
        instructions=part.agent.system or "",
        model=part.model or part.agent.model.id,
        tools=client_hands(tools.builtins) if part.is_remote else (),
        built_ins=() if part.is_remote else tuple(tools.builtins),
        client_tools=_client_tools(tools),
        limits=Limits(max_cost_usd=part.max_cost_usd),
        effort=_effort(part.agent.model),
        subagents=tuple(_subagents(part)),
        has_one_model=part.model is not None,
        skills=part.skills_of(part.agent),
    )


def _subagents(part: Part) -> Iterator[Subagent]:
    """Each is an agent in its own right: with its own system, model, tools and skills, and nothing
    of the session's agent. It calls nobody itself."""
    for name, member in roster(part.agent).items():
        tools = toolset_of(member)
        yield Subagent(
            name=name,
            description=member.description or f"The agent {member.name}.",
            prompt=member.system or "",
            reads_instructions=False,
            model=None if part.model is not None else member.model.id,
            effort=_effort(member.model),
            tools=(*tools.builtins, *(each.name for each in tools.custom)),
            own=Own(
                built_ins=() if part.is_remote else tuple(tools.builtins),
                client_tools=_client_tools(tools),
                skills=part.skills_of(member),
            ),
        )
    if may_improvise(part.agent):
        yield GENERAL


def _client_tools(tools: Toolset) -> tuple[ToolSpec, ...]:
    return tuple(
        ToolSpec(name=each.name, description=each.description, input_schema=each.input_schema)
        for each in tools.custom
    )


def _effort(model: ModelConfig) -> Effort:
    return "none" if model.effort is None else model.effort.type


def _mode(tools: Toolset, *, is_remote: bool) -> Mode:
    """Where all is allowed, a sandbox of its own is what holds it; hands of the client's are not
    ours to say that of."""
    policies = {config.permission_policy.type for config in tools.builtins.values()}
    if "auto" in policies:
        return "auto"
    is_open = policies == {"always_allow"} and not is_remote
    return "bypassPermissions" if is_open else "default"


def _rules(tools: Toolset) -> Iterator[HeldRule]:
    for name, config in tools.builtins.items():
        behavior = _behavior(config.permission_policy)
        for domain in config.blocked_domains or ():
            yield _rule(f"{theirs(name)}(domain:{domain})", "deny")
        if behavior is not None:
            yield from _allowed(theirs(name), config, behavior)


def _allowed(name: str, config: BuiltinConfig, behavior: Permission) -> Iterator[HeldRule]:
    """A tool that is for some domains is allowed for these; others are asked about."""
    if behavior == "allow" and config.allowed_domains is not None:
        for domain in config.allowed_domains:
            yield _rule(f"{name}(domain:{domain})", "allow")
    else:
        yield _rule(name, behavior)


def _behavior(policy: Policy) -> Permission | None:
    match policy.type:
        case "always_allow":
            return "allow"
        case "always_ask":
            return "ask"
        case "auto":
            return None
        case _:
            assert_never(policy.type)


def _rule(text: str, behavior: Permission) -> HeldRule:
    return HeldRule(text=text, behavior=behavior, scope="session", source=_SOURCE)


def _sandbox(config: Config) -> Mapping[str, object]:
    if not isinstance(config, CloudConfig) or config.networking == Limited():
        return {}  # no hosts at all: then no network either
    return {"networking": msgspec.to_builtins(config.networking)}


def _notes(tools: Toolset, part: Part) -> Iterator[str]:
    """What was asked for and is not to be had: better said than found out."""
    config = part.environment
    if isinstance(config, CloudConfig) and (missing := _packages(config.packages)):
        yield f"These packages were asked for; look whether they are installed: {missing}."
    if "web_search" in tools.builtins:
        yield "There is no web search here; say so when you would need one."
    if tools.mcp:
        names = ", ".join(each.server.name for each in tools.mcp)
        yield f"The MCP servers {names} are not connected here."
    if unknown := [each.skill_id for each in skills_of(part.agent) if each not in part.skills]:
        yield f"These skills are not to be had here: {', '.join(unknown)}."
    if has_advisor(part.agent):
        yield "There is no advisor to be asked here."


def _packages(packages: Packages) -> str:
    wanted = {name: getattr(packages, name) for name in ("apt", "cargo", "gem", "go", "npm", "pip")}
    return "; ".join(f"{name}: {', '.join(each)}" for name, each in wanted.items() if each)
