"""The first step of a thread's set-up: the rules that its session runs by, what else its settings
files say, and the engine that applies the rules."""

from __future__ import annotations

import os
from collections.abc import Callable, Collection, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Generic

from anyio import to_thread
from msgspec import Struct
from msgspec.structs import replace

from mainspring.core import clock
from mainspring.core.errors import InvalidInput
from mainspring.core.events import KnownPayload
from mainspring.core.ports import ISOLATED, SandboxInfo
from mainspring.core.tool import Traits
from mainspring.harness.permissions.call_analysis import analyze_call, location_after
from mainspring.harness.permissions.command_location import read_command_location
from mainspring.harness.permissions.engine import PermissionEngine
from mainspring.harness.permissions.policy import Policy, PolicyRule, relocate_policy
from mainspring.harness.permissions.rule import forbids, parse_rule
from mainspring.log.lru_cache import LruCache
from mainspring.runtime.definition_files.settings_file import Preferences
from mainspring.runtime.mcp_server import McpServer
from mainspring.runtime.model_question import make_ask_model
from mainspring.runtime.run_options import RunOptions
from mainspring.runtime.session.session_paths import SessionPaths
from mainspring.runtime.session_context import Models, SetupRequest
from mainspring.runtime.settings.pinned_policy import (
    PinnedPolicy,
    pin_policy,
    reading_rules,
    with_rules,
)
from mainspring.runtime.settings.policy_loader import LoadedPolicy
from mainspring.runtime.thread_setup.ports import Environment, OpenedSandbox, ThreadPorts
from mainspring.runtime.thread_setup.workspace_facts import MAX_CACHED

if TYPE_CHECKING:
    from mainspring.runtime.saved_environments import SavedEnvironment


class SessionRuntime(Struct, Generic[Environment], frozen=True, kw_only=True):
    """What all threads of a session share during a run."""

    pinned_policy: PinnedPolicy
    environment: Environment
    preferences: Preferences
    facts: tuple[KnownPayload, ...] = ()
    """Facts about the rules, to record before the session runs."""
    servers: tuple[McpServer, ...] = ()
    subagent_servers: Mapping[str, tuple[McpServer, ...]] = {}
    """The servers that only one type of subagent has."""
    saved_environment: SavedEnvironment | None = None
    """The saved environment of the session's repository."""

    @property
    def policy(self) -> Policy:
        return self.pinned_policy.policy

    def moved(self, workspace: Path) -> SessionRuntime[Environment]:
        """The same rules for work in a copy of the workspace."""
        policy = relocate_policy(self.policy, workspace.as_posix())
        return replace(self, pinned_policy=replace(self.pinned_policy, policy=policy))


class RunWarnings:
    """Prints each warning once, however many runs a session has."""

    def __init__(self) -> None:
        self._printed: LruCache[str, str] = LruCache(MAX_CACHED)

    def __call__(self, options: RunOptions, warning: str) -> None:
        if self._printed.get(warning) is None:
            self._printed.put(warning, warning)
            options.warn(warning)


class SessionPolicies(Generic[Environment, OpenedSandbox]):
    """Reads the settings of sessions."""

    def __init__(
        self,
        ports: ThreadPorts[Environment, OpenedSandbox],
        warn: RunWarnings,
        loaded: LoadedPolicy | None,
    ) -> None:
        """`loaded`: the settings files as the caller has just read them, for the first run."""
        self._ports = ports
        self._warn = warn
        self._loaded = loaded

    async def open(self, setup: SetupRequest, paths: SessionPaths) -> SessionRuntime[Environment]:
        """Raises: InvalidInput."""
        ports, options, workspace = self._ports, setup.options, paths.workspace
        loaded = self._take_loaded(options, workspace)
        if loaded is None:
            loaded = await to_thread.run_sync(ports.load_policy, workspace, options)
        rules = await pin_policy(setup, paths, loaded, home=ports.home, read_hooks=ports.read_hooks)
        preferences = rules.loaded.preferences
        environment = ports.read_environment(
            {**options.sandbox, **rules.loaded.sandbox}, preferences.sandbox_env
        )
        for warning in (*rules.warnings, *preferences.warnings):
            self._warn(options, warning)
        session = SessionRuntime(
            pinned_policy=with_rules(rules.pinned_policy, reading_rules(setup.agent)),
            environment=environment,
            preferences=preferences,
            facts=rules.facts,
            servers=_named_servers(options, options.servers),
        )
        if options.is_served:
            return session
        saved = await to_thread.run_sync(ports.saved_environment, workspace)
        servers, own = await to_thread.run_sync(ports.user_servers, workspace, rules.loaded)
        return replace(
            session,
            saved_environment=saved,
            servers=_named_servers(options, servers),
            subagent_servers=own,
        )

    def _take_loaded(self, options: RunOptions, workspace: Path) -> LoadedPolicy | None:
        """What the caller has read, once: the files may change before the next run."""
        loaded, self._loaded = self._loaded, None
        if loaded is None or options.is_served or loaded.policy.workspace != workspace.as_posix():
            return None
        is_here = options.agent is None or os.path.realpath(options.agent) == str(workspace)
        return loaded if is_here else None


def _named_servers(options: RunOptions, servers: tuple[McpServer, ...]) -> tuple[McpServer, ...]:
    """Raises: InvalidInput: the session does not have a server that its options name."""
    if options.server_names is None:
        return servers
    missing = set(options.server_names) - {item.name for item in servers}
    if missing:
        raise InvalidInput(f"the agent has no MCP server {sorted(missing)[0]}")
    return tuple(item for item in servers if item.name in options.server_names)


def permission_engine(
    setup: SetupRequest,
    policy: Policy,
    models: Models,
    *,
    sandbox: SandboxInfo | None = None,
    aliases: Collection[str] = (),
) -> PermissionEngine:
    """`aliases`: other names of the workspace's path."""
    location = read_command_location(policy, aliases)
    return PermissionEngine(
        thread=setup.thread,
        policy=policy,
        location=lambda: location,
        clock=clock.now,
        is_sandboxed=sandbox is not None and sandbox.isolation_level in ISOLATED,
        classifier=make_ask_model(models, setup.agent.model),
        ceiling=setup.mode,
        is_headless=setup.options.is_headless,
    )


def hook_fields(
    setup: SetupRequest, authorizer: PermissionEngine, transcript_path: Callable[[str], str]
) -> Mapping[str, object]:
    """The fields that every hook gets about its thread. `transcript_path`: by thread."""
    fields = {
        "session_id": setup.writer.session_id,
        "transcript_path": transcript_path(setup.writer.thread_id),
        "cwd": authorizer.policy.workspace,
        "permission_mode": authorizer.mode,
    }
    if setup.subagent is None:
        return fields
    thread_id = setup.thread.id
    return {
        **fields,
        "agent_id": thread_id,
        "agent_type": setup.subagent,
        "agent_transcript_path": transcript_path(thread_id),
    }


def matches_rule(
    authorizer: PermissionEngine, text: str, tool: str, tool_input: Mapping[str, object]
) -> bool:
    """Whether the text of a rule matches a call."""
    location = location_after(authorizer.thread.session_state.commands, authorizer.location())
    call = analyze_call(tool, tool_input, Traits(), location)
    roots = authorizer.policy.roots(PolicyRule(text=text, behavior="ask"))
    return forbids(parse_rule(text), call, roots, "ask")
