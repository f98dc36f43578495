"""Agent Plugins 1.0.0: what its files may say."""

import json
from pathlib import Path

import pytest
from tests.runtime.agent_folder.plugin_folders import (
    MCP_SCHEMA,
    SCHEMA,
    names,
    portable,
    said,
    skill,
)

from mainspring.runtime.agent_folder.mcp_file import expand_server
from mainspring.runtime.agent_folder.plugins import read_plugin

PLUGINS = Path(__file__).parents[2] / "fixtures" / "plugins"


@pytest.fixture
def root(tmp_path: Path) -> Path:
    (tmp_path / "outside").mkdir()
    (tmp_path / "kit").mkdir()
    return tmp_path / "kit"


def test_an_agent_plugin_is_read_from_its_fixed_locations():
    plugin = read_plugin(PLUGINS / "reports", "project")
    assert (plugin.name, plugin.version, plugin.kind) == ("acme.reports", "1.2.0", "agent-plugins")
    assert names(plugin.skills) == ["outline", "summarize"]  # immediate children only
    assert said(plugin, "error", "warning", "note") == ""
    validator, archive = (expand_server(server, {"HOME": "/h"})[0] for server in plugin.servers)
    assert validator.args == ("--data", f"{plugin.data}/validator", "${HOME}")
    assert validator.env == {"CONFIG": f"{PLUGINS / 'reports'}/config.json"}
    assert archive.headers == {"X-Tenant": "${PLUGIN_ROOT}"}


@pytest.mark.parametrize(
    ("fields", "why"),
    [
        ({"$schema": SCHEMA.replace("1.0.0", "2.0.0")}, "this version of Agent Plugins"),
        ({"name": "My-Plugin"}, "name must be"),
        ({"name": "-start"}, "name must be"),
        ({"name": "has--double"}, "name must be"),
        ({"name": "too..many"}, "name must be"),
        ({"name": "../up"}, "name must be"),
        ({"name": ""}, "name must be"),
        ({"name": "x" * 65}, "name must be"),
        ({"name": 7}, "name must be text"),
        ({"version": 1}, "version must be text"),
        ({"author": "somebody"}, "author must be an object"),
        ({"author": {"name": "a", "age": "7"}}, "author must be an object"),
        ({"keywords": "one"}, "keywords must be a list"),
    ],
)
def test_an_invalid_portable_manifest_rejects_the_plugin(
    root: Path, fields: dict[str, object], why: str
):
    skill(root / "skills" / "one")
    plugin = portable(root, **fields)
    assert plugin.is_rejected
    assert plugin.is_empty
    assert why in said(plugin, "error")


@pytest.mark.parametrize(
    ("fields", "why"),
    [
        ({"commands": ["./x.md"]}, "commands does not belong"),
        ({"hooks": {}}, "hooks does not belong"),
        ({"extensions": "com.example"}, "extensions must be an object"),
    ],
)
def test_unknown_parts_of_a_portable_manifest_are_ignored_with_a_warning(
    root: Path, fields: dict[str, object], why: str
):
    skill(root / "skills" / "one")
    plugin = portable(root, **fields)
    assert names(plugin.skills) == ["one"]
    assert why in said(plugin, "warning")
    assert said(plugin, "error") == ""


@pytest.mark.parametrize(
    ("server", "why"),
    [
        ({"command": "x"}, "type is one of"),
        ({"type": "http", "url": "https://x.test"}, "type is one of"),
        ({"type": "stdio"}, "command must be"),
        ({"type": "stdio", "command": "npx -y x"}, "command must be"),
        ({"type": "stdio", "command": "/bin/sh"}, "command must be"),
        ({"type": "stdio", "command": "../outside/x"}, "command must be"),
        ({"type": "stdio", "command": "./../outside/x"}, "command must be"),
        ({"type": "stdio", "command": "./link/x"}, "command must be"),
        ({"type": "stdio", "command": "${PLUGIN_ROOT}/x"}, "command must be"),
        ({"type": "stdio", "command": "x", "cwd": "data"}, "cwd must begin"),
        ({"type": "stdio", "command": "x", "cwd": "${PLUGIN_ROOT}/../.."}, "cwd must begin"),
        ({"type": "stdio", "command": "x", "cwd": "${PLUGIN_DATA}evil"}, "cwd must begin"),
        ({"type": "stdio", "command": "x", "cwd": "./link"}, "cwd must begin"),
        ({"type": "stdio", "command": "x", "env": {"PLUGIN_ROOT": "/"}}, "env may not have"),
        ({"type": "stdio", "command": "x", "env": {"A": 1}}, "env must be"),
        ({"type": "stdio", "command": "x", "args": [1]}, "args must be"),
        ({"type": "stdio", "command": "x", "url": "https://x.test"}, "url does not belong"),
        ({"type": "sse", "url": "http://x.test"}, "url must be https"),
        ({"type": "sse", "url": "https://me:pw@x.test"}, "url must be https"),
        ({"type": "sse", "url": "https://x.test/#a"}, "url must be https"),
        ({"type": "sse", "url": "file:///etc/passwd"}, "url must be https"),
        ({"type": "sse", "url": "http://[::1"}, "url must be https"),
        ({"type": "sse", "url": "https://x.test", "headers": {"A": "", "a": ""}}, "twice"),
        ({"type": "sse", "url": "https://x.test", "oauth": {}}, "oauth does not belong"),
        ("npx", "must be an object"),
    ],
)
def test_an_invalid_portable_server_is_left_out(root: Path, server: object, why: str):
    (root / "link").symlink_to(root.parent / "outside")
    sound = {"type": "streamable-http", "url": "http://127.0.0.1:9/mcp"}
    file = {"$schema": MCP_SCHEMA, "mcpServers": {"broken": server, "sound": sound}}
    (root / "mcp.json").write_text(json.dumps(file))
    plugin = portable(root)
    assert [item.name for item in plugin.servers] == ["kit:sound"]
    assert why in said(plugin)


@pytest.mark.parametrize(
    "content",
    [
        {"mcpServers": {"a": {"type": "stdio", "command": "x"}}},
        {"$schema": SCHEMA, "mcpServers": {"a": {"type": "stdio", "command": "x"}}},
        {"$schema": MCP_SCHEMA, "mcpServers": []},
        {"$schema": MCP_SCHEMA, "mcpServers": {}, "more": 1},
        "not an object",
    ],
)
def test_an_invalid_portable_mcp_file_removes_only_the_servers(root: Path, content: object):
    skill(root / "skills" / "one")
    (root / "mcp.json").write_text(json.dumps(content))
    plugin = portable(root)
    assert (names(plugin.skills), plugin.servers) == (["one"], ())
    assert "kit/mcp.json" in said(plugin, "error")
