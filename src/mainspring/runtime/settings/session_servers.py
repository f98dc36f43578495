"""Which MCP servers a session of this user may use."""

from __future__ import annotations

from collections.abc import Mapping

from mainspring.runtime.agent_folder.mcp_file import expand_server, read_mcp
from mainspring.runtime.definition_files.scopes import Scopes
from mainspring.runtime.mcp_server import McpServer
from mainspring.runtime.settings.policy_loader import LoadedPolicy


def usable_servers(
    scopes: Scopes, environment: Mapping[str, str], loaded: LoadedPolicy
) -> tuple[McpServer, ...]:
    """Those of the operator and of the user, and those of a trusted project as they were trusted;
    with variables replaced, so that they may hold secrets."""
    found = read_mcp(scopes, environment, project=loaded.servers)
    values = {"CLAUDE_PROJECT_DIR": scopes.folder.as_posix(), **environment}
    only_managed = "mcp" in loaded.preferences.plugins_only
    return tuple(
        expand_server(server, values)[0]
        for server in found.servers
        if server.unused_reason is None
        and not (server.scope == "project" and server.name in loaded.preferences.disabled_servers)
        and (server.scope == "managed" or not only_managed)
    )
