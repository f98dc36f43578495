"""Options of one run that the caller chooses: agent, model, limits, workspace, mode, sandbox
settings, credentials, extra rules.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from decimal import Decimal
from pathlib import Path
from typing import TypeAlias

from msgspec import Struct

from mainspring.core.ports import Credential
from mainspring.harness.permissions.policy import Mode, PolicyRule
from mainspring.log.session_log import SessionLog
from mainspring.runtime.mcp_server import McpServer
from mainspring.runtime.memory.memory_mode import MemoryMode

ServerToken: TypeAlias = Callable[[str, str | None], Awaitable[str | None]]
"""Takes the URL of an MCP server and a token that it has refused, if any; returns the token to send
now, if there is one."""
UrlRefusal: TypeAlias = Callable[[SessionLog, str, str], Awaitable[str | None]]
"""Takes a log, a session id and a URL; returns why it may not be fetched, or `None` if it may."""


class SearchDomains(Struct, frozen=True, kw_only=True):
    """Limits that the agents of a session set for `web_search`."""

    allowed: tuple[str, ...] | None = None
    blocked: tuple[str, ...] = ()


class WebFetchLimits(Struct, frozen=True, kw_only=True):
    """Limits that the agents of a session set for `web_fetch`."""

    max_chars: int | None = None
    """The maximum length of a page's text, even if the model asks for more."""
    url_refusal: UrlRefusal | None = None
    """`None`: every URL may be fetched."""


class ProgramOptions(Struct, frozen=True, kw_only=True):
    """What programs of `bash` get beyond the sandbox: used by sessions that run one program."""

    variables: Mapping[str, str] = {}
    """Environment variables: values that must not become part of a command."""
    max_output_bytes: int | None = None
    """How much of its output is returned; `None`: as much as a model can use."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RunOptions:
    workspace: Path | None = None
    """Where a new session works; an existing session continues where it was."""
    agent: Path | None = None
    """The agent's own folder, if it is not the workspace: the agent's settings there also apply."""
    model: str | None = None
    """Instead of the agent's."""
    max_turns: int | None = None
    """Instead of the agent's."""
    max_cost_usd: Decimal | None = None
    """Instead of the agent's."""
    instructions: str | None = None
    """Instead of the agent's."""
    more_instructions: str = ""
    """In addition to the agent's."""
    built_ins: tuple[str, ...] | None = None
    """Names of built-in tools, instead of the agent's."""
    ignores_pinned_agent: bool = False
    """The caller's agent runs, although the session has pinned another one: for replays."""
    mode: Mode | None = None
    allow_protected: tuple[str, ...] = ()
    """Protected paths, relative to the workspace, that file tools may change."""
    is_attended: bool = False
    """A person can answer questions."""
    is_headless: bool = False
    """No person will ever answer: calls that only a person may allow are denied."""
    is_unsandboxed: bool = False
    """The operator allows programs of this run to run without isolation."""
    is_served: bool = False
    """The session belongs to a client of the service: only the operator's settings apply."""
    rules: tuple[PolicyRule, ...] = ()
    """Rules in addition to those of the settings files."""
    sandbox: Mapping[str, object] = field(default_factory=dict[str, object])
    """Settings of the sandbox; settings files override them."""
    credentials: tuple[Credential, ...] | None = None
    """Secrets that programs use by placeholder; `None`: those of this user's vault."""
    servers: tuple[McpServer, ...] = ()
    """MCP servers of a session of the service; other sessions have those of the settings files."""
    server_names: tuple[str, ...] | None = None
    """The only MCP servers that the session gets, of those that it would have; `None`: all."""
    server_token: ServerToken | None = None
    """Returns the tokens for `servers`."""
    web_fetch: WebFetchLimits = field(default_factory=WebFetchLimits)
    search_domains: SearchDomains = field(default_factory=SearchDomains)
    notes: tuple[str, ...] = ()
    """Further notes for the model about its environment."""
    program: ProgramOptions = field(default_factory=ProgramOptions)
    memory_mode: MemoryMode = "on"
    """Whether sessions read and write memories; their agent cannot allow more."""
    memory: Path | None = None
    """A folder of memories that is read in place of the agent's and the user's; nothing is written
    to it."""
    warn: Callable[[str], None] = lambda _: None
