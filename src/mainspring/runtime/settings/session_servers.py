"""Which MCP servers a session of this user may use."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping

from mainspring.runtime.agent_folder.mcp_file import expand_server, inline_servers, read_mcp
from mainspring.runtime.agent_folder.plugins import InstalledPlugins, installed_plugins
from mainspring.runtime.definition_files.scopes import Scopes
from mainspring.runtime.mcp_server import McpServer
from mainspring.runtime.packages.trust_pins import PINS_FILE, TrustPins
from mainspring.runtime.settings.policy_loader import LoadedPolicy


def usable_servers(
    scopes: Scopes, environment: Mapping[str, str], loaded: LoadedPolicy
) -> tuple[McpServer, ...]:
    """Those of the operator, of the user and of trusted plugins, and those of a trusted project as
    they were trusted; with variables replaced, so that they may hold secrets."""
    plugins = tuple(_plugin_servers(scopes, loaded))
    found = read_mcp(scopes, environment, project=loaded.servers, plugins=plugins)
    return _usable(found.servers, scopes, environment, loaded)


def subagent_servers(
    scopes: Scopes, environment: Mapping[str, str], loaded: LoadedPolicy
) -> dict[str, tuple[McpServer, ...]]:
    """The servers that files of subagents define, by subagent. None has a `headersHelper`: it would
    run outside the sandbox."""
    servers: dict[str, tuple[McpServer, ...]] = {}
    for item in loaded.subagents:
        own = inline_servers(item.parts.servers, item.file, item.scope).servers
        plain = [server for server in own if server.headers_helper is None]
        servers[item.name] = _usable(plain, scopes, environment, loaded)
    return servers


def _usable(
    servers: Iterable[McpServer],
    scopes: Scopes,
    environment: Mapping[str, str],
    loaded: LoadedPolicy,
) -> tuple[McpServer, ...]:
    values = {"CLAUDE_PROJECT_DIR": scopes.folder.as_posix(), **environment}
    only_managed = "mcp" in loaded.preferences.plugins_only
    usable = [
        expand_server(server, values)[0]
        for server in servers
        if server.unused_reason is None
        and not (server.scope == "project" and server.name in loaded.preferences.disabled_servers)
        and (server.scope == "managed" or not only_managed)
    ]
    by_content: dict[bytes, McpServer] = {}
    for server in usable:
        by_content.setdefault(server.content, server)
    return tuple(by_content.values())


def read_plugins(scopes: Scopes) -> InstalledPlugins:
    folder, home = scopes.folder, scopes.home
    return installed_plugins(folder, None if folder == home else home)


def _plugin_servers(scopes: Scopes, loaded: LoadedPolicy) -> Iterator[McpServer]:
    """Of plugins that are, byte for byte, what the user trusted; a project's plugin needs trust in
    the project, too."""
    if scopes.home is None:
        return
    pins = TrustPins(scopes.home / PINS_FILE)
    for plugin in read_plugins(scopes).plugins:
        if not plugin.servers or plugin.name in loaded.preferences.disabled_plugins:
            continue
        is_vouched = plugin.scope != "project" or loaded.is_trusted
        if is_vouched and pins.trusted_contents(plugin.root) is not None:
            yield from plugin.servers
