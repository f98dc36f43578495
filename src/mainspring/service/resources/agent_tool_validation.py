"""Checks that the tools and the MCP servers of an agent fit together."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from typing import Any, cast
from urllib.parse import urlsplit

from mainspring.core.errors import InvalidInput
from mainspring.service.resources.agent_tools import (
    BUILTINS,
    MAX_TOOLS,
    AgentTool,
    AgentToolset,
    BuiltinConfig,
    CustomTool,
    McpToolset,
    UrlMcpServer,
)
from mainspring.service.resources.agent_web_tools import check_domains, check_url_sources


def check_tools(tools: Sequence[AgentTool], servers: Sequence[UrlMcpServer]) -> None:
    """Raises: InvalidInput: with the position, such as `tools[0].configs[1].name`."""
    if sum(map(_tool_count, tools)) > MAX_TOOLS:
        raise InvalidInput(f"tools: at most {MAX_TOOLS} across all toolsets")
    if sum(isinstance(tool, AgentToolset) for tool in tools) > 1:
        raise InvalidInput("tools: at most one agent_toolset_20260401; combine their configs")
    custom = [tool.name for tool in tools if isinstance(tool, CustomTool)]
    _check_unique(custom, "tools: two custom tools are called")
    for index, tool in enumerate(tools):
        where = f"tools[{index}]"
        match tool:
            case AgentToolset():
                _check_builtins(tool, where, custom)
            case McpToolset():
                _check_unique([config.name for config in tool.configs], f"{where}.configs: twice")
            case CustomTool():
                _check_schema(tool.input_schema, f"{where}.input_schema")
    _check_servers(servers, [tool for tool in tools if isinstance(tool, McpToolset)])


def _tool_count(tool: AgentTool) -> int:
    match tool:
        case AgentToolset():
            return len(BUILTINS)
        case McpToolset():
            return max(1, len(tool.configs))
        case CustomTool():
            return 1


def _check_unique(names: Iterable[str], words: str) -> None:
    for name, times in Counter(names).items():
        if times > 1:
            raise InvalidInput(f"{words} {name}; names must be unique")


def _check_builtins(toolset: AgentToolset, where: str, custom: Sequence[str]) -> None:
    _check_unique([config.name for config in toolset.configs], f"{where}.configs: twice")
    off = {config.name for config in toolset.configs if not config.enabled}
    on = {config.name for config in toolset.configs if config.enabled}
    if toolset.default_config.enabled:
        on |= {name for name in BUILTINS if name not in off}
    for name in custom:
        if name in on:
            raise InvalidInput(f"tools: {name} is also the name of an enabled built-in tool")
    for index, config in enumerate(toolset.configs):
        _check_web(config, f"{where}.configs[{index}]", custom)


def _check_web(config: BuiltinConfig, where: str, custom: Sequence[str]) -> None:
    if config.allowed_domains is not None and config.blocked_domains is not None:
        raise InvalidInput(f"{where}: set allowed_domains or blocked_domains, not both")
    for field in ("allowed_domains", "blocked_domains"):
        domains: tuple[str, ...] | None = getattr(config, field)
        check_domains(domains or (), f"{where}.{field}", with_path=config.name == "web_search")
    if config.url_sources is not None:
        check_url_sources(config.url_sources, f"{where}.url_sources", custom=custom)


def _check_schema(schema: dict[str, Any], where: str) -> None:
    if schema.get("type") != "object":
        raise InvalidInput(f"{where}.type: must be object")
    if not isinstance(schema.get("properties"), dict | None):
        raise InvalidInput(f"{where}.properties: must be an object")
    required = schema.get("required")
    is_names = isinstance(required, list) and all(
        isinstance(name, str) for name in cast("list[object]", required)
    )
    if required is not None and not is_names:
        raise InvalidInput(f"{where}.required: must be a list of names")


def _check_servers(servers: Sequence[UrlMcpServer], toolsets: Sequence[McpToolset]) -> None:
    _check_unique([server.name for server in servers], "mcp_servers: two are called")
    server_names = [toolset.mcp_server_name for toolset in toolsets]
    _check_unique(server_names, "tools: two mcp_toolsets for the server")
    current = {server.name for server in servers}
    for name in server_names:
        if name not in current:
            raise InvalidInput(f"tools: the mcp_toolset for {name} has no server in mcp_servers")
    for index, server in enumerate(servers):
        where = f"mcp_servers[{index}]"
        if server.name not in server_names:
            raise InvalidInput(f"{where}: no mcp_toolset in tools uses {server.name}")
        _check_url(server.url, f"{where}.url")


def _check_url(url: str, where: str) -> None:
    try:
        parts = urlsplit(url)
        host, _ = parts.hostname, parts.port
    except ValueError:
        raise InvalidInput(f"{where}: not a URL") from None
    if parts.scheme not in ("http", "https") or not host or not url.isprintable():
        raise InvalidInput(f"{where}: must begin with https:// or http:// and have a host")
    if parts.username is not None or parts.password is not None:
        raise InvalidInput(f"{where}: must not contain a secret; put it into a vault")
