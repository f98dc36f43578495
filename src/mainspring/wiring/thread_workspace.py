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

from mainspring.capabilities.git.git_config import paths_named_by_git
from mainspring.capabilities.git.untrusted_git import open_repository
from mainspring.capabilities.git.worktrees import GitWorktrees
from mainspring.capabilities.sandbox.confined_process import run_confined
from mainspring.capabilities.sandbox.readonly_mounts import remove_folder
from mainspring.capabilities.sandbox.sandbox_environment import (
    EnvironmentPackages,
    SandboxEnvironment,
)
from mainspring.capabilities.sandbox.sandbox_session import SandboxSession
from mainspring.capabilities.tools.shell import captured_text
from mainspring.capabilities.workspace.folder_workspace import FolderWorkspace
from mainspring.config import FOLDER, Settings
from mainspring.core.errors import McpFailed, SandboxFailed
from mainspring.core.lazy_module import LazyModule
from mainspring.core.ports import SandboxInfo
from mainspring.harness.permissions.policy import Policy, relocate_policy
from mainspring.runtime.agent import skill_folders
from mainspring.runtime.agent_folder.folder_instructions import PathInstructions
from mainspring.runtime.definition_files.settings_file import Preferences
from mainspring.runtime.mcp_server import McpServer
from mainspring.runtime.run_options import RunOptions
from mainspring.runtime.session.session_paths import (
    SessionPaths,
    add_protected_paths,
    with_plugin_folders,
)
from mainspring.runtime.session_context import SetupRequest
from mainspring.runtime.settings.pinned_policy import PinnedPolicy
from mainspring.runtime.thread_setup import WorkspaceFacts, sandbox_key
from mainspring.wiring.builtin_tools import session_tree
from mainspring.wiring.sandbox_pool import SandboxPool

if TYPE_CHECKING:
    from mainspring.runtime.saved_environments import SavedEnvironment
    from mainspring.wiring import mcp_packages, saved_environment
else:
    saved_environment = LazyModule("mainspring.wiring.saved_environment")
    mcp_packages = LazyModule("mainspring.wiring.mcp_packages")  # most sessions have none

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
    """The servers that only one type of subagent has."""
    saved_environment: SavedEnvironment | None = None
    """The saved environment of the session's repository."""

    @property
    def policy(self) -> Policy:
        return self.pinned_policy.policy

    def moved(self, workspace: Path) -> SessionRuntime:
        """The same rules for work in a copy of the workspace."""
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

    @property
    def sandbox_info(self) -> SandboxInfo | None:
        return None if self.sandbox is None else self.sandbox.box


class ThreadWorkspaces:
    """Opens the workspaces of threads."""

    def __init__(
        self, settings: Settings, sandboxes: SandboxPool, warn: Callable[[RunOptions, str], None]
    ) -> None:
        home = Path(settings.home)
        self._settings = settings
        self._sandboxes = sandboxes
        self._warn = warn
        self.facts = WorkspaceFacts(
            home, partial(paths_named_by_git, home=home, run_program=run_confined)
        )

    @asynccontextmanager
    async def open(
        self, setup: SetupRequest, session: SessionRuntime, paths: SessionPaths
    ) -> AsyncGenerator[ThreadWorkspace, None]:
        """Open a workspace with a sandbox, which is released when the block ends."""
        key = sandbox_key(setup)
        skills = [folder for folder in skill_folders(setup.agent) if paths.needs_mount(folder)]
        paths = with_plugin_folders(
            replace(paths, readable=(*paths.readable, *skills)), session.servers
        )
        paths = await self.facts.without_denied(paths, session.policy)
        paths = add_protected_paths(paths, session.policy)
        sandbox = await self._open_sandbox(setup.options, key, paths, session)
        try:
            yield ThreadWorkspace(
                paths=paths,
                sandbox=sandbox,
                folder_workspace=session_tree(paths, session.policy, skills),
                path_instructions=self.facts.path_instructions(setup, paths, session.policy),
            )
        finally:
            if sandbox is not None:
                await self._sandboxes.release(key)
            if setup.workspace is not None:  # the folder may no longer exist at the next run
                await self._sandboxes.discard(key)

    async def _open_sandbox(
        self, options: RunOptions, key: str, paths: SessionPaths, session: SessionRuntime
    ) -> SandboxSession | None:
        environment, saved = session.sandbox_environment, session.saved_environment
        if saved is not None:
            environment = environment.with_additions(saved.plan.packages, saved.folder)
        try:
            if environment.packages != EnvironmentPackages():
                environment = await self._with_packages(options, paths, environment)
            if saved is not None:
                environment = environment.with_programs(saved.programs)
            sandbox = await self._sandboxes.open_session(
                key, paths, environment, options.credentials
            )
        except SandboxFailed as error:
            self._warn(options, f"no commands can be run here: {error}")
            return None
        if saved is not None:
            try:
                await saved.restore_files(sandbox, paths.workspace, captured_text)
            except SandboxFailed as error:
                self._warn(options, str(error))
        return sandbox

    async def saved_environment(
        self, options: RunOptions, workspace: Path
    ) -> SavedEnvironment | None:
        """The saved environment of the repository that a session of this user works in."""
        home = Path(self._settings.home)
        if options.is_served or not (home / FOLDER / "environments").is_dir():
            return None
        environments = saved_environment.saved_environments(home)
        return await to_thread.run_sync(environments.find, workspace)

    async def _with_packages(
        self, options: RunOptions, paths: SessionPaths, environment: SandboxEnvironment
    ) -> SandboxEnvironment:
        """The environment with its packages installed. If that fails, the run warns and continues
        without them."""
        say = partial(self._warn, options)
        try:
            return await mcp_packages.with_packages(
                self._settings, self._sandboxes, environment, paths.workspace, say
            )
        except McpFailed as error:
            say(f"the packages of the environment are missing: {error}")
            return environment


def sandbox_preparation(sandbox: SandboxSession | None) -> Callable[[str], None] | None:
    """Starts the sandbox while the model is still writing the command."""
    if sandbox is None:
        return None

    def prepare(tool: str) -> None:
        if tool in _PROGRAM_TOOLS:
            sandbox.prepare()

    return prepare


def open_worktrees(workspace: Path, place: Path) -> GitWorktrees:
    """Worktrees of a workspace, each in a folder below `place`."""
    return GitWorktrees(
        workspace,
        place,
        run_program=run_confined,
        remove_folder=remove_folder,
        private_folder=FOLDER,
    )


async def shared_repository(workspace: Path) -> Path:
    """The folder of the repository that all worktrees of a workspace share.

    Raises: ToolEnvironmentError.
    """
    return (await open_repository(workspace, run_confined)).common
