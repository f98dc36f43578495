"""Which MCP servers a session of this user may use, and what they contribute to a thread."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

from mainspring.core.events import SessionFailed
from mainspring.core.tool import Tool
from mainspring.harness.context.frontmatter import Frontmatter, read_frontmatter
from mainspring.harness.permissions.tool_names import ALL_TOOLS, select_tools
from mainspring.runtime.agent_folder.mcp_file import defined_servers, expand_server, inline_servers
from mainspring.runtime.agent_folder.plugins import InstalledPlugins, installed_plugins
from mainspring.runtime.definition_files.scopes import Scopes
from mainspring.runtime.mcp_server import McpServer, ServerParts, mcp_tool_rules, select_mcp_tools
from mainspring.runtime.packages.trust_pins import PINS_FILE, TrustPins
from mainspring.runtime.session_context import SetupRequest
from mainspring.runtime.settings.policy_loader import LoadedPolicy


def trusted_servers(scopes: Scopes, loaded: LoadedPolicy) -> tuple[McpServer, ...]:
    """The servers of the operator, the user, trusted plugins and the trusted project, as their
    files define them."""
    plugins = _plugin_servers(scopes, loaded)
    return defined_servers(scopes, project=loaded.servers, plugins=plugins).servers


def subagent_servers(
    scopes: Scopes, environment: Mapping[str, str], loaded: LoadedPolicy
) -> dict[str, tuple[McpServer, ...]]:
    """The servers that files of subagents define, by subagent. None has a `headersHelper`: it would
    run outside the sandbox."""
    servers: dict[str, tuple[McpServer, ...]] = {}
    for item in loaded.subagents:
        inline = inline_servers(item.parts.servers, item.file, item.scope).servers
        plain = [server for server in inline if server.headers_helper is None]
        servers[item.name] = usable_servers(plain, scopes, environment, loaded)
    return servers


def usable_servers(
    servers: Iterable[McpServer],
    scopes: Scopes,
    environment: Mapping[str, str],
    loaded: LoadedPolicy,
) -> tuple[McpServer, ...]:
    """The servers that the settings do not disable, each once, with variables replaced, so they may
    hold secrets."""
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
    """The servers of plugins whose files are exactly those that the user trusted; a project's
    plugin also needs trust in the project."""
    if scopes.home is None:
        return
    for plugin in read_plugins(scopes).plugins:
        if not plugin.servers or plugin.name in loaded.preferences.disabled_plugins:
            continue
        is_vouched = plugin.scope != "project" or loaded.is_trusted
        pins = TrustPins(scopes.home / PINS_FILE)
        if is_vouched and pins.trusted_contents(plugin.root) is not None:
            yield from plugin.servers


class ConnectedServers(Protocol):
    """The server connections of a session."""

    is_reported: bool
    """Whether their failures are in the log."""

    @property
    def tools(self) -> Mapping[str, Tool]: ...
    @property
    def resource_tool(self) -> Tool: ...
    def skill_tools(
        self, parse: Callable[[str], Frontmatter], servers: Collection[str] | None = None
    ) -> dict[str, Tool]: ...
    @property
    def notes(self) -> tuple[str, ...]: ...
    @property
    def problems(self) -> Sequence[str]: ...

    def failures(self) -> Iterator[SessionFailed]: ...

    async def reload(self) -> bool: ...

    def message_context(
        self, resources: Sequence[str]
    ) -> Callable[[str], Awaitable[Sequence[str]]]: ...


def server_parts(
    opened: ConnectedServers, setup: SetupRequest, *, is_own: bool = False
) -> ServerParts:
    """What servers contribute to a thread. The service reports failures in the log, once. `is_own`:
    only this thread has them, with all their tools."""
    agent, is_served = setup.agent, setup.options.is_served
    names = (ALL_TOOLS,) if is_own else agent.built_ins

    def selected() -> dict[str, Tool]:
        tools = dict(sorted(opened.tools.items()))
        if is_served:
            enabled = [item.server for item in agent.mcp_toolsets if item.default.is_enabled]
            skills = opened.skill_tools(read_frontmatter, enabled)
            return {**select_mcp_tools(agent.mcp_toolsets, tools.values()), **skills}
        own, skills = opened.resource_tool, opened.skill_tools(read_frontmatter)
        return select_tools({own.spec.name: own, **skills, **tools}, names)

    async def changed_tools() -> dict[str, Tool] | None:
        count = len(opened.problems)
        if not await opened.reload():
            return None
        for problem in opened.problems[count:]:
            setup.options.warn(problem)
        return selected()

    tools = selected()
    failures = () if opened.is_reported or not is_served else tuple(opened.failures())
    opened.is_reported = opened.is_reported or is_served
    return ServerParts(
        tools=tools,
        rules=mcp_tool_rules(agent.mcp_toolsets, tools.values()) if is_served else (),
        notes=opened.notes,
        facts=failures,
        changed_tools=changed_tools,
        message_context=opened.message_context(
            agent.resources if setup.thread.messages == 0 else ()
        ),
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class ProjectServers:
    """The servers that a session in a folder would have."""

    every: tuple[McpServer, ...]
    """All servers, including unused ones."""
    usable: tuple[McpServer, ...]
    loaded: LoadedPolicy

    def unused_reason(self, server: McpServer) -> str | None:
        if server.unused_reason is not None or server.name in (item.name for item in self.usable):
            return server.unused_reason
        usable_names = {item.name for item in self.usable}
        for other in self.every:
            if other.name in usable_names and other.content == server.content:
                return f"it is the same server as {other.name}"
        if server.plugin is not None:
            return "its plugin is not trusted, or disabled"
        is_own = server.scope == "project"
        return "this folder is not trusted" if is_own and not self.loaded.is_trusted else "disabled"
