"""The tools of an agent: as requested, as stored, and which are effectively enabled."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Annotated, Any, Literal, Protocol, TypeAlias, assert_never, get_args

from msgspec import Meta, Struct
from msgspec.structs import asdict, replace

from mainspring.core.errors import InvalidInput
from mainspring.service.resources.agent_web_tools import (
    SearchLocation,
    UrlSources,
    UrlSourcesParams,
    resolve_url_sources,
)
from mainspring.service.storage.metadata import copy_fields

MAX_TOOLS = 256  # of an agent

BuiltinName: TypeAlias = Literal[
    "bash", "edit", "read", "write", "glob", "grep", "web_fetch", "web_search"
]
BUILTINS: tuple[BuiltinName, ...] = get_args(BuiltinName)
PermissionPolicyName: TypeAlias = Literal["always_allow", "always_ask", "auto"]

_STRICTNESS: tuple[PermissionPolicyName, ...] = ("always_allow", "auto", "always_ask")

ServerName = Annotated[str, Meta(min_length=1, max_length=255)]
ToolName = Annotated[str, Meta(pattern=r"^[A-Za-z0-9_-]{1,128}$")]
Domains = Annotated[tuple[str, ...], Meta(min_length=1, max_length=64)]


class PermissionPolicy(Struct, frozen=True, kw_only=True):
    """Whether calls are allowed, need approval, or are decided one by one."""

    type: PermissionPolicyName


ALWAYS_ALLOW = PermissionPolicy(type="always_allow")
ALWAYS_ASK = PermissionPolicy(type="always_ask")


class ToolDefaults(Struct, frozen=True, kw_only=True):
    """Applies to the tools of a set that have no configuration of their own."""

    enabled: bool
    permission_policy: PermissionPolicy


class BuiltinConfig(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A built-in tool. Fields of the web tools are omitted for the others."""

    enabled: bool
    name: BuiltinName
    permission_policy: PermissionPolicy
    type: BuiltinName
    allowed_domains: tuple[str, ...] | None = None
    blocked_domains: tuple[str, ...] | None = None
    max_content_tokens: int | None = None
    """Only for `web_fetch`."""
    url_sources: UrlSources | None = None
    """Only for `web_fetch`."""
    user_location: SearchLocation | None = None
    """Only for `web_search`."""


class McpToolConfig(Struct, frozen=True, kw_only=True):
    enabled: bool
    name: str
    permission_policy: PermissionPolicy


class AgentToolset(
    Struct, frozen=True, kw_only=True, tag_field="type", tag="agent_toolset_20260401"
):
    """The built-in tools."""

    configs: tuple[BuiltinConfig, ...]
    default_config: ToolDefaults


class McpToolset(Struct, frozen=True, kw_only=True, tag_field="type", tag="mcp_toolset"):
    """The tools of an MCP server."""

    configs: tuple[McpToolConfig, ...]
    default_config: ToolDefaults
    mcp_server_name: str


class CustomTool(Struct, frozen=True, kw_only=True, tag_field="type", tag="custom"):
    """A tool that the client runs itself."""

    description: Annotated[str, Meta(min_length=1)]
    input_schema: dict[str, Any]
    """JSON Schema of an object, stored as received."""
    name: ToolName


AgentTool: TypeAlias = AgentToolset | McpToolset | CustomTool


class UrlMcpServer(Struct, frozen=True, kw_only=True, tag_field="type", tag="url"):
    name: ServerName
    url: Annotated[str, Meta(min_length=1, max_length=2048)]


McpServers = Annotated[tuple[UrlMcpServer, ...], Meta(max_length=20)]


class ToolDefaultsParams(Struct, frozen=True, kw_only=True):
    enabled: bool | None = None
    permission_policy: PermissionPolicy | None = None


class BuiltinParams(Struct, frozen=True, kw_only=True):
    name: BuiltinName
    enabled: bool | None = None
    permission_policy: PermissionPolicy | None = None
    type: BuiltinName | None = None
    allowed_domains: Domains | None = None
    blocked_domains: Domains | None = None
    max_content_tokens: Annotated[int, Meta(ge=1)] | None = None
    url_sources: UrlSourcesParams | None = None
    user_location: SearchLocation | None = None


class McpToolParams(Struct, frozen=True, kw_only=True):
    name: Annotated[str, Meta(min_length=1, max_length=128)]
    enabled: bool | None = None
    permission_policy: PermissionPolicy | None = None


class AgentToolsetParams(
    Struct, frozen=True, kw_only=True, tag_field="type", tag="agent_toolset_20260401"
):
    configs: tuple[BuiltinParams, ...] = ()
    default_config: ToolDefaultsParams | None = None


class McpToolsetParams(Struct, frozen=True, kw_only=True, tag_field="type", tag="mcp_toolset"):
    mcp_server_name: ServerName
    configs: tuple[McpToolParams, ...] = ()
    default_config: ToolDefaultsParams | None = None


ToolParams: TypeAlias = AgentToolsetParams | McpToolsetParams | CustomTool
ToolsParams = Annotated[tuple[ToolParams, ...], Meta(max_length=MAX_TOOLS)]


def resolve_tools(params: Sequence[ToolParams]) -> tuple[AgentTool, ...]:
    """The tools with every default filled in.

    Raises: InvalidInput: a configuration does not fit the tool that it names.
    """
    return tuple(_resolve_tool(tool, f"tools[{index}]") for index, tool in enumerate(params))


def _resolve_tool(tool: ToolParams, where: str) -> AgentTool:
    match tool:
        case AgentToolsetParams():
            default = _with_defaults(
                tool.default_config, ToolDefaults(enabled=True, permission_policy=ALWAYS_ALLOW)
            )
            return AgentToolset(
                default_config=default,
                configs=tuple(
                    _builtin(config, default, f"{where}.configs[{index}]")
                    for index, config in enumerate(tool.configs)
                ),
            )
        case McpToolsetParams():
            default = _with_defaults(
                tool.default_config, ToolDefaults(enabled=True, permission_policy=ALWAYS_ASK)
            )
            return McpToolset(
                mcp_server_name=tool.mcp_server_name,
                default_config=default,
                configs=tuple(
                    McpToolConfig(name=config.name, **asdict(_with_defaults(config, default)))
                    for config in tool.configs
                ),
            )
        case CustomTool():
            return tool
        case _:
            assert_never(tool)


def _with_defaults(
    params: ToolDefaultsParams | BuiltinParams | McpToolParams | None, default: ToolDefaults
) -> ToolDefaults:
    if params is None:
        return default
    return ToolDefaults(
        enabled=default.enabled if params.enabled is None else params.enabled,
        permission_policy=params.permission_policy or default.permission_policy,
    )


_OWN_FIELDS: Mapping[str, frozenset[str]] = {
    "web_fetch": frozenset(
        ("allowed_domains", "blocked_domains", "max_content_tokens", "url_sources")
    ),
    "web_search": frozenset(("allowed_domains", "blocked_domains", "user_location")),
}


def _builtin(params: BuiltinParams, default: ToolDefaults, where: str) -> BuiltinConfig:
    if params.type not in (None, params.name):
        raise InvalidInput(f"{where}.type: must equal its name, {params.name}")
    for field in sorted(frozenset[str]().union(*_OWN_FIELDS.values())):
        if field not in _OWN_FIELDS.get(params.name, ()) and getattr(params, field) is not None:
            raise InvalidInput(f"{where}.{field}: {params.name} has no such field")
    return copy_fields(
        BuiltinConfig,
        params,
        type=params.name,
        url_sources=None if params.url_sources is None else resolve_url_sources(params.url_sources),
        **asdict(_with_defaults(params, default)),
    )


class HasTools(Protocol):
    """An agent, or a session's copy of one."""

    @property
    def tools(self) -> tuple[AgentTool, ...]: ...

    @property
    def mcp_servers(self) -> tuple[UrlMcpServer, ...]: ...


@dataclass(frozen=True, slots=True, kw_only=True)
class EffectiveMcpTools:
    """The tools of an MCP server that an agent may use. The server says which tools exist."""

    server: UrlMcpServer
    tool_defaults: ToolDefaults
    configs: Mapping[str, ToolDefaults]

    def config_of(self, tool: str) -> ToolDefaults:
        return self.configs.get(tool, self.tool_defaults)


@dataclass(frozen=True, slots=True, kw_only=True)
class EffectiveToolset:
    """The tools that are enabled."""

    builtins: Mapping[BuiltinName, BuiltinConfig]
    custom: tuple[CustomTool, ...]
    mcp: tuple[EffectiveMcpTools, ...]


def effective_toolset(agent: HasTools) -> EffectiveToolset:
    servers = {server.name: server for server in agent.mcp_servers}
    builtins: dict[BuiltinName, BuiltinConfig] = {}
    custom: list[CustomTool] = []
    mcp: list[EffectiveMcpTools] = []
    for tool in agent.tools:
        match tool:
            case AgentToolset():
                builtins = _enabled_builtins(tool)
            case McpToolset():
                mcp.append(_mcp_tools(tool, servers[tool.mcp_server_name]))
            case CustomTool():
                custom.append(tool)
            case _:
                assert_never(tool)
    return EffectiveToolset(builtins=builtins, custom=tuple(custom), mcp=tuple(mcp))


def merge_toolsets(toolsets: Sequence[EffectiveToolset]) -> EffectiveToolset:
    """The tools of all agents of a session. If several have a tool, the strictest configuration
    applies to all."""
    builtins: dict[BuiltinName, BuiltinConfig] = {}
    for item in toolsets:
        for name, config in item.builtins.items():
            builtins[name] = _stricter_config(builtins.get(name, config), config)
    return EffectiveToolset(
        builtins=builtins,
        custom=tuple(tool for item in toolsets for tool in item.custom),
        mcp=tuple(tools for item in toolsets for tools in item.mcp),
    )


def _stricter_config(config: BuiltinConfig, other: BuiltinConfig) -> BuiltinConfig:
    policies = (config.permission_policy, other.permission_policy)
    blocked = {*(config.blocked_domains or ()), *(other.blocked_domains or ())}
    allowed = [item for item in (config.allowed_domains, other.allowed_domains) if item is not None]
    common = [item for item in allowed[0] if item in allowed[-1]] if allowed else ()
    return replace(
        config,
        permission_policy=max(policies, key=lambda policy: _STRICTNESS.index(policy.type)),
        blocked_domains=tuple(sorted(blocked)) or None,
        allowed_domains=tuple(common) if allowed else None,
    )


def _enabled_builtins(toolset: AgentToolset) -> dict[BuiltinName, BuiltinConfig]:
    default = toolset.default_config
    own = {config.name: config for config in toolset.configs}
    configs = [
        own.get(name) or _builtin(BuiltinParams(name=name), default, "") for name in BUILTINS
    ]
    return {config.name: config for config in configs if config.enabled}


def _mcp_tools(toolset: McpToolset, server: UrlMcpServer) -> EffectiveMcpTools:
    return EffectiveMcpTools(
        server=server,
        tool_defaults=toolset.default_config,
        configs={config.name: copy_fields(ToolDefaults, config) for config in toolset.configs},
    )
