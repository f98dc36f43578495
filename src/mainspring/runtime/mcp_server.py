"""The definition of an MCP server, and which of its tools an agent of the API may use."""

from __future__ import annotations

import re
from collections.abc import Awaitable, Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from dataclasses import field as dataclass_field
from typing import Literal, TypeAlias

import msgspec
from msgspec import Struct, field

from mainspring.core.content import plain_text
from mainspring.core.envelope import KnownPayload
from mainspring.core.errors import McpFailed
from mainspring.core.events import Permission
from mainspring.core.ids import new_id
from mainspring.core.model import ToolSpec
from mainspring.core.tool import Call, Tool, ToolOrigin
from mainspring.harness.permissions.policy import PolicyRule
from mainspring.harness.toolbox import FindToolChanges, ToolChanges, compare_tools

Transport: TypeAlias = Literal["stdio", "http", "sse", "ws"]
ServerScope: TypeAlias = Literal["managed", "local", "project", "user"]
"""`local`: the user's, for one project."""

_MAX_ERROR = 300  # characters
_RULE_SOURCE = "the agent's tools"
_INPUT = re.compile(r"\$\{input:([^{}]{1,200})\}")


class ServerInput(Struct, frozen=True, kw_only=True):
    """A value that a person is asked for once, as VS Code's `inputs` describe it."""

    id: str
    description: str = ""
    password: bool = True
    """Whether it is secret; an input without a description is."""
    default: str = ""
    options: tuple[str, ...] = ()


class McpServer(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A server as its file describes it. `${...}` is not replaced yet: the values may be secret."""

    name: str
    """`plugin:name` if it is part of a plugin."""
    transport: Transport
    command: str = ""
    args: tuple[str, ...] = ()
    env: dict[str, str] = field(default_factory=dict[str, str])
    cwd: str | None = None
    url: str = ""
    headers: dict[str, str] = field(default_factory=dict[str, str])
    headers_helper: str | None = None
    """A command that prints more headers."""
    oauth: dict[str, object] = field(default_factory=dict[str, object])
    timeout_ms: float | None = None
    is_enabled: bool = True
    disabled_tools: tuple[str, ...] = ()
    always_load: bool = False
    """Whether the model sees its tools from the start, not only when it searches for them."""
    description: str = ""
    allows_sampling: bool = False
    """Whether it may call the session's model."""
    networking: dict[str, object] | None = None
    """For a server in the sandbox: which of the session's hosts it may reach; `None`: all."""
    inputs: tuple[ServerInput, ...] = ()
    """The inputs for `${input:ID}`."""
    scope: ServerScope = "project"
    file: str = ""
    """For display."""
    plugin: str | None = None
    plugin_root: str = ""
    plugin_data: str = ""
    """The folder for data that survives updates of the plugin."""
    is_portable: bool = False
    """From an Agent Plugins package: only `${PLUGIN_ROOT}` and `${PLUGIN_DATA}` are replaced, in
    arguments, environment and working folder."""
    extra: dict[str, object] = field(default_factory=dict[str, object])
    """Unknown keys, unchanged."""

    def __repr__(self) -> str:  # other fields may hold secrets
        return f"McpServer(name={self.name!r}, transport={self.transport!r})"

    @property
    def content(self) -> bytes:
        """Identifies the server: two servers with the same content are the same."""
        program = (self.transport, self.command, self.args, self.env, self.cwd, self.url)
        hosts = () if self.networking is None else (self.networking,)
        parts = (*program, self.headers, self.headers_helper, *hosts)
        return msgspec.json.encode(parts, order="sorted")

    @property
    def missing_inputs(self) -> tuple[ServerInput, ...]:
        """The inputs without a value, whose `${input:ID}` is not replaced."""
        texts = (self.command, *self.args, *self.env.values(), self.cwd or "", self.url)
        texts = (*texts, *self.headers.values(), self.headers_helper or "")
        ids = dict.fromkeys(id_ for text in texts for id_ in _INPUT.findall(text))
        by_id = {item.id: item for item in self.inputs}
        return tuple(by_id.get(id_, ServerInput(id=id_)) for id_ in ids)

    def check_inputs(self) -> None:
        """Raises: McpFailed: an input has no value."""
        if inputs := self.missing_inputs:
            raise McpFailed(
                f"it needs the input {inputs[0].id}: run `mainspring mcp auth {self.name}`",
                needs_auth=True,
            )

    @property
    def unused_reason(self) -> str | None:
        return None if self.is_enabled else "disabled"


class McpToolPermission(Struct, frozen=True, kw_only=True, omit_defaults=True):
    is_enabled: bool = True
    permission: Permission | None = "ask"
    """`None`: the mode of the session decides."""


class McpServerTools(Struct, frozen=True, kw_only=True, omit_defaults=True):
    server: str
    default: McpToolPermission = McpToolPermission()
    configs: dict[str, McpToolPermission] = field(default_factory=dict[str, McpToolPermission])
    """By the names that the server gives its tools."""

    def config_of(self, tool: str) -> McpToolPermission:
        return self.configs.get(tool, self.default)


@dataclass(frozen=True, slots=True, kw_only=True)
class ServerParts:
    """What MCP servers contribute to the toolbox of a thread."""

    tools: Mapping[str, Tool] = dataclass_field(default_factory=dict[str, Tool])
    rules: tuple[PolicyRule, ...] = ()
    notes: tuple[str, ...] = ()
    """Notes for the model about servers that do not work."""
    facts: tuple[KnownPayload, ...] = ()
    changed_tools: Callable[[], Awaitable[Mapping[str, Tool] | None]] | None = None
    """Returns all tools if a server has announced a change since the last call, else `None`."""
    message_context: Callable[[str], Awaitable[Sequence[str]]] | None = None
    """Returns the content of servers that a user's message refers to."""

    def joined(self, other: ServerParts) -> ServerParts:
        """Add the parts of other servers; changes of their tools are not followed."""
        return replace(
            self,
            tools={**other.tools, **self.tools},
            rules=self.rules + other.rules,
            notes=self.notes + other.notes,
            facts=self.facts + other.facts,
            changed_tools=self.changed_tools or other.changed_tools,
            message_context=self.message_context or other.message_context,
        )

    def tool_changes(
        self,
        allowed: Callable[[Mapping[str, Tool]], dict[str, Tool]],
        search: Callable[[Sequence[ToolSpec]], Tool] | None,
    ) -> FindToolChanges:
        """Finds changes of the servers' tools while a thread runs. `search` makes the tool search,
        if the model has one, so that it finds new tools too."""
        current, changed_tools = allowed(self.tools), self.changed_tools
        if changed_tools is None:
            return None

        async def changes() -> ToolChanges | None:
            nonlocal current
            if (all_tools := await changed_tools()) is None:
                return None
            before, current = current, allowed(all_tools)
            tool_changes = compare_tools(before, current, is_deferred=search is not None)
            if tool_changes is None or search is None:
                return tool_changes
            search_tool = search([tool.spec for tool in current.values()])
            tools = {**tool_changes.tools, search_tool.spec.name: search_tool}
            return replace(tool_changes, tools=tools)

        return changes


async def call_server_tool(
    tools: Iterable[Tool], origin: ToolOrigin, tool_input: Mapping[str, object], session_id: str
) -> str:
    """Call a tool outside any turn, for hooks. Returns the text of its result.

    Raises:
        McpFailed: there is no such tool, or the call failed.
    """
    tool = next((tool for tool in tools if tool.origin == origin), None)
    if tool is None:
        raise McpFailed(f"the MCP server {origin.server} has no tool {origin.name} here")
    if (problem := tool.invalid(tool_input)) is not None:
        raise McpFailed(problem)
    call_id = new_id("hook")
    call = Call(
        id=call_id,
        name=tool.spec.name,
        input=tool_input,
        idempotency_key=call_id,
        session_id=session_id,
        thread_id="",
    )
    result = await tool.run(call)
    if result.questions or result.waits_for:
        raise McpFailed("it asks a person, which is not possible in a hook")
    text = plain_text(result.content)
    if not result.ok:
        raise McpFailed(text[:_MAX_ERROR])
    return text


def select_mcp_tools(toolsets: Sequence[McpServerTools], tools: Iterable[Tool]) -> dict[str, Tool]:
    """The tools of servers that are enabled, by name."""
    return {tool.spec.name: tool for tool, _ in _configured(toolsets, tools)}


def mcp_tool_rules(
    toolsets: Sequence[McpServerTools], tools: Iterable[Tool]
) -> tuple[PolicyRule, ...]:
    return tuple(
        PolicyRule(
            text=tool.spec.name, behavior=config.permission, scope="session", source=_RULE_SOURCE
        )
        for tool, config in _configured(toolsets, tools)
        if config.permission is not None
    )


def _configured(
    toolsets: Sequence[McpServerTools], tools: Iterable[Tool]
) -> Iterator[tuple[Tool, McpToolPermission]]:
    by_server = {toolset.server: toolset for toolset in toolsets}
    for tool in tools:
        toolset = None if tool.origin is None else by_server.get(tool.origin.server)
        if toolset is not None and tool.origin is not None:
            config = toolset.config_of(tool.origin.name)
            if config.is_enabled:
                yield tool, config
