"""The folder, sandbox and file tree that a thread of a session works with."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Callable, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec
from anyio import to_thread

from mainspring.capabilities.sandbox.sandbox_environment import (
    EnvironmentPackages,
    SandboxEnvironment,
)
from mainspring.capabilities.sandbox.sandbox_session import SandboxSession
from mainspring.capabilities.workspace.folder_workspace import FolderWorkspace
from mainspring.core.envelope import KnownPayload
from mainspring.core.errors import McpFailed, SandboxFailed
from mainspring.core.events import SandboxOpened
from mainspring.core.lazy_module import LazyModule
from mainspring.harness.permissions.policy import Policy, relocate_policy
from mainspring.log.lru_cache import LruCache
from mainspring.runtime.agent import skill_folders
from mainspring.runtime.agent_folder.folder_instructions import (
    PathInstructions,
    load_path_instructions,
    skills_for_path,
)
from mainspring.runtime.definition_files.scopes import MANAGED, Scopes
from mainspring.runtime.definition_files.settings_file import Preferences
from mainspring.runtime.mcp_server import McpServer
from mainspring.runtime.run_options import RunOptions
from mainspring.runtime.session.session_paths import (
    SessionPaths,
    add_protected_paths,
    hide_denied_paths,
    thread_sandbox_id,
    with_plugin_folders,
)
from mainspring.runtime.session_context import SetupRequest
from mainspring.runtime.settings.pinned_policy import PinnedPolicy
from mainspring.wiring.builtin_tools import session_tree
from mainspring.wiring.sandbox_pool import SandboxPool
from mainspring.wiring.session_repositories import add_repositories

if TYPE_CHECKING:
    from mainspring.runtime.saved_environments import SavedEnvironment
    from mainspring.wiring import mcp_packages, saved_environment
else:
    saved_environment = LazyModule("mainspring.wiring.saved_environment")
    mcp_packages = LazyModule("mainspring.wiring.mcp_packages")  # most sessions have none

_MAX_CACHED = 1000
_PROGRAM_TOOLS = frozenset(("bash", "service_start"))


@dataclass(frozen=True, slots=True, kw_only=True)
class SessionRuntime:
    """What all threads of a session share during a run."""

    pinned_policy: PinnedPolicy
    sandbox_environment: SandboxEnvironment
    preferences: Preferences
    servers: tuple[McpServer, ...] = ()
    subagent_servers: Mapping[str, tuple[McpServer, ...]] = field(
        default_factory=dict[str, tuple[McpServer, ...]]
    )
    """Those that only one type of subagent has."""
    saved_environment: SavedEnvironment | None = None
    """Of the repository that the session works in."""

    @property
    def policy(self) -> Policy:
        return self.pinned_policy.policy

    def moved(self, workspace: Path) -> SessionRuntime:
        """For work in a copy of the workspace, where the same rules apply."""
        policy = relocate_policy(self.policy, workspace.as_posix())
        return replace(
            self, pinned_policy=msgspec.structs.replace(self.pinned_policy, policy=policy)
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class ThreadWorkspace:
    paths: SessionPaths
    sandbox: SandboxSession | None
    folder_workspace: FolderWorkspace
    path_instructions: PathInstructions


class ThreadWorkspaces:
    """Opens workspaces; caches what it takes a walk through the workspace to find."""

    def __init__(
        self, sandboxes: SandboxPool, home: Path, warn: Callable[[RunOptions, str], None]
    ) -> None:
        self._sandboxes = sandboxes
        self._home = home
        self._warn = warn
        self._instructions: LruCache[str, PathInstructions] = LruCache(_MAX_CACHED)
        self._without_denied: LruCache[tuple[SessionPaths, Policy], SessionPaths] = LruCache(
            _MAX_CACHED
        )
        self._with_repositories: LruCache[SessionPaths, SessionPaths] = LruCache(_MAX_CACHED)

    async def find_repositories(self, paths: SessionPaths) -> SessionPaths:
        """Raises: InvalidInput: a git configuration cannot be read."""
        if (cached := self._with_repositories.get(paths)) is not None:
            return cached
        complete = await add_repositories(paths, self._home)
        self._with_repositories.put(paths, complete)
        return complete

    @asynccontextmanager
    async def open(
        self, setup: SetupRequest, session: SessionRuntime, paths: SessionPaths
    ) -> AsyncGenerator[ThreadWorkspace, None]:
        """With a sandbox, which is released at the end of the block."""
        key = _sandbox_key(setup)
        skills = [folder for folder in skill_folders(setup.agent) if paths.needs_mount(folder)]
        paths = with_plugin_folders(
            replace(paths, beside=(*paths.beside, *skills)), session.servers
        )
        paths = await self._hide_denied(paths, session.policy)
        paths = add_protected_paths(paths, session.policy)
        sandbox = await self._open_sandbox(setup.options, key, paths, session)
        try:
            yield ThreadWorkspace(
                paths=paths,
                sandbox=sandbox,
                folder_workspace=session_tree(paths, session.policy, skills),
                path_instructions=await self._path_instructions(setup, paths, session),
            )
        finally:
            if sandbox is not None:
                await self._sandboxes.release(key)
            if setup.workspace is not None:  # the folder may be gone at the next run
                await self._sandboxes.discard(key)

    async def _hide_denied(self, paths: SessionPaths, policy: Policy) -> SessionPaths:
        if (cached := self._without_denied.get((paths, policy))) is not None:
            return cached
        visible = await to_thread.run_sync(hide_denied_paths, paths, policy)
        self._without_denied.put((paths, policy), visible)
        return visible

    async def _open_sandbox(
        self, options: RunOptions, key: str, paths: SessionPaths, session: SessionRuntime
    ) -> SandboxSession | None:
        saved = session.saved_environment
        try:
            environment = await self._with_packages(options, paths, session)
            if saved is not None:
                environment = saved_environment.with_programs(environment, saved)
            sandbox = await self._sandboxes.open_session(
                key, paths, environment, options.credentials
            )
            if saved is not None:
                await saved_environment.restore_files(sandbox, saved)
        except SandboxFailed as error:
            self._warn(options, f"no commands can be run here: {error}")
            return None
        return sandbox

    async def _with_packages(
        self, options: RunOptions, paths: SessionPaths, session: SessionRuntime
    ) -> SandboxEnvironment:
        """Without its packages if they cannot be installed: the run says so and goes on."""
        environment = session.sandbox_environment
        if environment.packages == EnvironmentPackages():
            return environment
        say = partial(self._warn, options)
        try:
            return await mcp_packages.with_packages(
                self._sandboxes.settings, self._sandboxes, environment, paths.workspace, say
            )
        except McpFailed as error:
            say(f"the packages of the environment are missing: {error}")
            return environment

    async def _path_instructions(
        self, setup: SetupRequest, paths: SessionPaths, session: SessionRuntime
    ) -> PathInstructions:
        """Those of the last run remember what the model has seen."""
        key = _sandbox_key(setup)
        if (cached := self._instructions.get(key)) is not None:
            return cached
        home = None if setup.options.is_served else self._home
        instructions = await load_path_instructions(
            Scopes(folder=paths.workspace, home=home, managed=MANAGED),
            policy=session.policy,
            hidden=paths.hidden,
            also=[skills_for_path(setup.agent.skills)],
        )
        self._instructions.put(key, instructions)
        return instructions


def _sandbox_key(setup: SetupRequest) -> str:
    """The id of the session's sandbox, or of a thread's own one in a worktree."""
    session_id = setup.writer.session_id
    return session_id if setup.workspace is None else thread_sandbox_id(session_id, setup.thread.id)


def sandbox_opened(
    setup: SetupRequest, paths: SessionPaths, sandbox: SandboxSession | None
) -> tuple[KnownPayload, ...]:
    """The fact for the log, if the sandbox is not the one of the last run."""
    if sandbox is None:
        return ()
    fact = SandboxOpened(
        backend=sandbox.box.backend,
        level=sandbox.box.isolation_level,
        flags_hash=sandbox.box.flags_hash,
        workspace=str(paths.workspace),
    )
    return () if setup.thread.session_state.sandbox == fact else (fact,)


def workspace_note(
    setup: SetupRequest, thread_workspace: ThreadWorkspace, session: SessionRuntime
) -> str:
    """What the model needs to know about its environment."""
    workspace = thread_workspace.paths.workspace
    lines = [f"Your workspace is {workspace}; you can touch nothing outside it."]
    if thread_workspace.sandbox is None:
        lines.append("No commands can be run here: there is no sandbox.")
    elif not session.sandbox_environment.networking:
        lines.append("Commands run in a sandbox without any network.")
    else:
        lines.append("Commands run in a sandbox; its only way out is a proxy with a list of hosts.")
    if session.saved_environment is not None:
        lines.append(session.saved_environment.note)
    return "\n".join((*lines, *setup.options.notes))


def sandbox_preparation(sandbox: SandboxSession | None) -> Callable[[str], None] | None:
    """Starts the sandbox while the model still writes what is to run in it."""
    if sandbox is None:
        return None

    def prepare(tool: str) -> None:
        if tool in _PROGRAM_TOOLS:
            sandbox.prepare()

    return prepare
