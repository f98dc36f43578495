from dataclasses import dataclass
from typing import Any

import msgspec
from hypothesis import given
from hypothesis import strategies as st

from mainspring.service.resources.agent_tools import (
    BUILTINS,
    AgentTool,
    ToolsParams,
    UrlMcpServer,
    effective_toolset,
    resolve_tools,
)


@dataclass(frozen=True)
class ToolsAndServers:
    tools: tuple[AgentTool, ...]
    mcp_servers: tuple[UrlMcpServer, ...] = ()


def tools_and_servers(
    *tools: dict[str, Any], servers: tuple[UrlMcpServer, ...] = ()
) -> ToolsAndServers:
    return ToolsAndServers(resolve_tools(msgspec.convert(tools, ToolsParams)), servers)


def test_an_agent_without_a_toolset_has_no_tools():
    toolset = effective_toolset(tools_and_servers())
    assert (toolset.builtins, toolset.custom, toolset.mcp) == ({}, (), ())


def test_a_plain_toolset_allows_every_built_in_tool():
    toolset = effective_toolset(tools_and_servers({"type": "agent_toolset_20260401"}))
    policies = {name: config.permission_policy.type for name, config in toolset.builtins.items()}
    assert policies == dict.fromkeys(BUILTINS, "always_allow")


def test_a_tool_config_overrides_the_default():
    toolset = effective_toolset(
        tools_and_servers(
            {
                "type": "agent_toolset_20260401",
                "default_config": {"enabled": False, "permission_policy": {"type": "always_ask"}},
                "configs": [
                    {"name": "read", "enabled": True},
                    {"name": "web_fetch", "enabled": True, "max_content_tokens": 9},
                    {"name": "bash", "permission_policy": {"type": "auto"}},
                ],
            }
        )
    )
    assert set(toolset.builtins) == {"read", "web_fetch"}
    assert toolset.builtins["read"].permission_policy.type == "always_ask"
    assert toolset.builtins["web_fetch"].max_content_tokens == 9


def test_mcp_tools_ask_unless_configured_otherwise():
    server = UrlMcpServer(name="docs", url="https://mcp.example.com")
    toolset = effective_toolset(
        tools_and_servers(
            {
                "type": "mcp_toolset",
                "mcp_server_name": "docs",
                "configs": [
                    {"name": "find", "permission_policy": {"type": "always_allow"}},
                    {"name": "wipe", "enabled": False},
                ],
            },
            servers=(server,),
        )
    )
    [docs] = toolset.mcp
    assert docs.server == server
    assert docs.config_of("find").permission_policy.type == "always_allow"
    assert not docs.config_of("wipe").enabled
    unnamed = docs.config_of("something new")
    assert (unnamed.enabled, unnamed.permission_policy.type) == (True, "always_ask")


def test_custom_tools_keep_their_schema_unchanged():
    schema = {"type": "object", "properties": {"a": {"$ref": "#/x"}}, "x-own": [1, None]}
    toolset = effective_toolset(
        tools_and_servers(
            {"type": "custom", "name": "t", "description": "d", "input_schema": schema}
        )
    )
    [tool] = toolset.custom
    assert (tool.name, tool.description, tool.input_schema) == ("t", "d", schema)


_CONFIG = st.fixed_dictionaries(
    {"name": st.sampled_from(BUILTINS)},
    optional={
        "enabled": st.none() | st.booleans(),
        "permission_policy": st.none()
        | st.fixed_dictionaries({"type": st.sampled_from(["always_allow", "always_ask", "auto"])}),
    },
)


def _name(config: dict[str, Any]) -> str:
    return config["name"]


@given(configs=st.lists(_CONFIG, unique_by=_name), enabled=st.none() | st.booleans())
def test_the_config_or_the_default_decides_whether_a_tool_is_enabled(
    configs: list[dict[str, Any]], enabled: bool | None
):
    tools = tools_and_servers(
        {
            "type": "agent_toolset_20260401",
            "configs": configs,
            "default_config": {"enabled": enabled},
        }
    )
    said = {config["name"]: config.get("enabled") for config in configs}
    default = enabled is not False
    wanted = {n for n in BUILTINS if (default if said.get(n) is None else said[n])}
    assert set(effective_toolset(tools).builtins) == wanted
    again = msgspec.json.decode(msgspec.json.encode(tools.tools), type=tuple[AgentTool, ...])
    assert again == tools.tools
