"""The third step of a thread's set-up: what its programs see, and its sandbox. What a sandbox is
made of is decided by `capabilities/sandbox`."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Callable
from contextlib import asynccontextmanager
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Generic

from msgspec import Struct

from mainspring.core.errors import McpFailed, SandboxFailed
from mainspring.core.ports import SandboxInfo
from mainspring.harness.permissions.protected_path_watcher import (
    PROTECTED_PATHS,
    ProtectedPathWatcher,
    find_repositories,
    memory_paths,
)
from mainspring.runtime.agent import skill_folders
from mainspring.runtime.agent_folder.folder_instructions import PathInstructions
from mainspring.runtime.run_options import RunOptions
from mainspring.runtime.session.session_paths import (
    SessionPaths,
    add_protected_paths,
    with_plugin_folders,
)
from mainspring.runtime.session_context import SetupRequest
from mainspring.runtime.thread_setup.ports import (
    Environment,
    FileTree,
    OpenedSandbox,
    SessionSandbox,
    ThreadPorts,
)
from mainspring.runtime.thread_setup.session_policy import RunWarnings, SessionRuntime
from mainspring.runtime.thread_setup.workspace_facts import WorkspaceFacts, sandbox_key

_PROGRAM_TOOLS = frozenset(("bash", "service_start"))


class SandboxFolders(Struct, frozen=True, kw_only=True):
    """What programs see of the files of a session; `SandboxSpec` has the same fields."""

    workspace: Path
    aliases: tuple[Path, ...]
    state: Path
    read_only: tuple[Path, ...]
    distrusted: tuple[Path, ...]
    hidden: tuple[Path, ...]
    private: tuple[Path, ...]
    protected: tuple[Path, ...]


def sandbox_folders(paths: SessionPaths, read_only: tuple[str, ...]) -> SandboxFolders:
    """`read_only`: the folders that the settings name."""
    workspace = paths.workspace
    return SandboxFolders(
        workspace=workspace,
        aliases=tuple(Path(alias) for alias in paths.aliases),
        state=paths.state,
        read_only=(*(Path(item).expanduser().absolute() for item in read_only), *paths.readable),
        distrusted=paths.distrusted,
        hidden=tuple(workspace / item for item in paths.hidden),
        private=paths.private,
        protected=tuple(workspace / item for item in (*PROTECTED_PATHS, *paths.protected)),
    )


class WatchedPaths(Struct, frozen=True):
    watcher: ProtectedPathWatcher
    paths: tuple[Path, ...]
    """Further paths that programs may neither change nor create."""


def watched_paths(paths: SessionPaths) -> WatchedPaths:
    """The paths to protect that depend on what is in the workspace now. Blocks."""
    workspace = paths.workspace
    repositories = paths.git_repositories or find_repositories(workspace, paths.hidden)
    watched = (*repositories.control_files, *paths.watched)
    memories = memory_paths(workspace)
    watcher = ProtectedPathWatcher(workspace, watched, repositories, paths.state)
    return WatchedPaths(watcher, tuple(workspace / path for path in (*watched, *memories)))


class ThreadWorkspace(Struct, Generic[OpenedSandbox], frozen=True, kw_only=True):
    """The folder, sandbox and files that a thread works with."""

    paths: SessionPaths
    sandbox: OpenedSandbox | None
    tree: FileTree
    path_instructions: PathInstructions

    @property
    def sandbox_info(self) -> SandboxInfo | None:
        return None if self.sandbox is None else self.sandbox.box


class ThreadWorkspaces(Generic[Environment, OpenedSandbox]):
    """Opens the workspaces of threads."""

    def __init__(self, ports: ThreadPorts[Environment, OpenedSandbox], warn: RunWarnings) -> None:
        self._ports = ports
        self._warn = warn
        self.facts = WorkspaceFacts(ports.home, ports.paths_named_by_git)

    @asynccontextmanager
    async def open(
        self, setup: SetupRequest, session: SessionRuntime[Environment], paths: SessionPaths
    ) -> AsyncGenerator[ThreadWorkspace[OpenedSandbox], None]:
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
                tree=self._ports.file_tree(paths, session.policy, skills),
                path_instructions=self.facts.path_instructions(setup, paths, session.policy),
            )
        finally:
            if sandbox is not None:
                await self._ports.release_sandbox(key)
            if setup.workspace is not None:  # the folder may no longer exist at the next run
                await self._ports.discard_sandbox(key)

    async def _open_sandbox(
        self,
        options: RunOptions,
        key: str,
        paths: SessionPaths,
        session: SessionRuntime[Environment],
    ) -> OpenedSandbox | None:
        environment, saved = session.environment, session.saved_environment
        if saved is not None:
            environment = environment.with_additions(saved.plan.packages, saved.folder)
        try:
            if environment.has_packages:
                environment = await self._with_packages(options, paths, environment)
            if saved is not None:
                environment = environment.with_programs(saved.programs)
            sandbox = await self._ports.open_sandbox(key, paths, environment, options)
        except SandboxFailed as error:
            self._warn(options, f"no commands can be run here: {error}")
            return None
        if saved is not None:
            try:
                await saved.restore_files(sandbox, paths.workspace, self._ports.captured_text)
            except SandboxFailed as error:
                self._warn(options, str(error))
        return sandbox

    async def _with_packages(
        self, options: RunOptions, paths: SessionPaths, environment: Environment
    ) -> Environment:
        """The environment with its packages installed. If that fails, the run warns and continues
        without them."""
        say = partial(self._warn, options)
        try:
            return await self._ports.with_packages(environment, paths.workspace, say)
        except McpFailed as error:
            say(f"the packages of the environment are missing: {error}")
            return environment


def sandbox_preparation(sandbox: SessionSandbox | None) -> Callable[[str], None] | None:
    """Starts the sandbox while the model is still writing the command."""
    if sandbox is None:
        return None

    def prepare(tool: str) -> None:
        if tool in _PROGRAM_TOOLS:
            sandbox.prepare()

    return prepare
