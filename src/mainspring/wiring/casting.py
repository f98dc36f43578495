"""What the API says of an agent and its environment, as the runtime and the hands understand it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from decimal import Decimal
from pathlib import Path
from typing import TYPE_CHECKING, assert_never

import msgspec

from mainspring.capabilities.tools.client_hands import client_hands
from mainspring.core.events import Permission
from mainspring.core.model import ToolSpec
from mainspring.harness.limits import Limits
from mainspring.harness.permissions.names import theirs
from mainspring.harness.permissions.policy import HeldRule, Mode
from mainspring.runtime.agent import Agent
from mainspring.service.describing.agent_tools import BuiltinConfig, Policy, Toolset, toolset_of
from mainspring.service.describing.environments import (
    CloudConfig,
    Config,
    Limited,
    Packages,
    SelfHostedConfig,
)
from mainspring.service.sessions.agent import SessionAgent
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


@dataclass(frozen=True, slots=True, kw_only=True)
class Cast:
    agent: Agent
    wish: Wish


def cast_for(part: Part) -> Cast:
    tools = toolset_of(part.agent)
    is_remote = isinstance(part.environment, SelfHostedConfig)
    effort = part.agent.model.effort
    agent = Agent(
        name=part.agent.name,
        instructions=part.agent.system or "",
        model=part.model or part.agent.model.id,
        tools=client_hands(tools.builtins) if is_remote else (),
        built_ins=() if is_remote else tuple(tools.builtins),
        client_tools=[
            ToolSpec(name=each.name, description=each.description, input_schema=each.input_schema)
            for each in tools.custom
        ],
        limits=Limits(max_cost_usd=part.max_cost_usd),
        effort="none" if effort is None else effort.type,
    )
    wish = Wish(
        workspace=part.workspace,
        mode=_mode(tools, is_remote=is_remote),
        is_served=True,
        rules=tuple(_rules(tools)),
        sandbox=_sandbox(part.environment),
        credentials=part.credentials,
        notes=(*part.notes, *_notes(tools, part.environment)),
    )
    return Cast(agent=agent, wish=wish)


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


def _notes(tools: Toolset, config: Config) -> Iterator[str]:
    """What was asked for and is not to be had: better said than found out."""
    if isinstance(config, CloudConfig) and (missing := _packages(config.packages)):
        yield f"These packages were asked for; look whether they are installed: {missing}."
    if "web_search" in tools.builtins:
        yield "There is no web search here; say so when you would need one."
    if tools.mcp:
        names = ", ".join(each.server.name for each in tools.mcp)
        yield f"The MCP servers {names} are not connected here."


def _packages(packages: Packages) -> str:
    wanted = {name: getattr(packages, name) for name in ("apt", "cargo", "gem", "go", "npm", "pip")}
    return "; ".join(f"{name}: {', '.join(each)}" for name, each in wanted.items() if each)
