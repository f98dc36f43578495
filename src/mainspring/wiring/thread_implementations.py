"""The implementations that the threads of sessions are set up with: see
`runtime/thread_setup/ports.py`."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from contextlib import AsyncExitStack
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec

from mainspring.capabilities.git.git_config import paths_named_by_git
from mainspring.capabilities.monty.python_tool import LazyInterpreter
from mainspring.capabilities.sandbox.backends.confined_process import run_confined
from mainspring.capabilities.sandbox.sandbox_environment import SandboxEnvironment
from mainspring.capabilities.sandbox.sandbox_session import SandboxSession
from mainspring.capabilities.tools.ask_user import ASK_USER, CLIENT_INPUT_CHECKS, EXIT_PLAN
from mainspring.capabilities.tools.shell import captured_text
from mainspring.capabilities.tools.tool_search import ToolLoading, plan_tool_loading
from mainspring.capabilities.workspace.snapshots import WorkspaceSnapshots
from mainspring.config import FOLDER, Settings
from mainspring.core.events import KnownPayload
from mainspring.core.hook import HookEventName, HookSettings
from mainspring.core.lazy_module import LazyModule
from mainspring.core.ports import CapturedOutput, Workspace
from mainspring.core.tool import Tool
from mainspring.harness.authorizer import Authorizer
from mainspring.harness.permissions.engine import PermissionEngine
from mainspring.harness.permissions.policy import Policy
from mainspring.log.lru_cache import LruCache
from mainspring.runtime.mcp_server import McpServer, ServerParts
from mainspring.runtime.run_options import RunOptions
from mainspring.runtime.session.session_paths import SessionPaths
from mainspring.runtime.session_context import Models, SetupRequest
from mainspring.runtime.settings.pinned_policy import PinnedPolicy
from mainspring.runtime.settings.policy_loader import LoadedPolicy
from mainspring.runtime.thread_setup.ports import FileTree, HookPorts, UserServers, Warn
from mainspring.runtime.thread_setup.toolbox_builder import ToolboxBuilder
from mainspring.runtime.thread_setup.workspace_facts import MAX_CACHED
from mainspring.wiring.builtin_tools import (
    built_in_tools,
    session_tree,
    web_tools,
    workspace_tools,
)
from mainspring.wiring.sandbox_settings import read_environment, session_paths
from mainspring.wiring.sandboxes import SandboxPool
from mainspring.wiring.settings_files import load_policy, user_servers
from mainspring.wiring.worktrees import open_worktrees, shared_repository

if TYPE_CHECKING:
    from mainspring.capabilities.hooks import config as hook_config
    from mainspring.capabilities.network.rules import Network
    from mainspring.runtime.export_sessions.transcript_files import TranscriptFiles
    from mainspring.runtime.memory.recall import Recall
    from mainspring.runtime.memory.search import vector_settings
    from mainspring.runtime.memory.session_memory import SessionMemory
    from mainspring.runtime.memory_setup import MemorySources
    from mainspring.runtime.saved_environments import SavedEnvironment
    from mainspring.wiring import mcp_packages, mcp_servers, saved_environment, session_hooks
    from mainspring.wiring import memory as memories
else:
    mcp_servers = LazyModule("mainspring.wiring.mcp_servers")  # most sessions have none
    mcp_packages = LazyModule("mainspring.wiring.mcp_packages")
    memories = LazyModule("mainspring.wiring.memory")
    vector_settings = LazyModule("mainspring.runtime.memory.search.vector_settings")
    saved_environment = LazyModule("mainspring.wiring.saved_environment")
    hook_config = LazyModule("mainspring.capabilities.hooks.config")
    session_hooks = LazyModule("mainspring.wiring.session_hooks")  # most sessions have none


def toolbox_builder(
    settings: Settings,
    models: Models,
    sandboxes: SandboxPool,
    authorizer: Authorizer,
    networks: tuple[Network, ...] = (),
    loaded: LoadedPolicy | None = None,
) -> ToolboxBuilder[SandboxEnvironment, SandboxSession]:
    """`networks`: private addresses that MCP servers of the service's sessions may have. `loaded`:
    the settings files as they were just read, for the first run."""
    implementations = ThreadImplementations(settings, models, sandboxes, networks)
    return ToolboxBuilder(implementations, models, authorizer, loaded)


class ThreadImplementations:
    client_tools = (ASK_USER, EXIT_PLAN)
    client_input_checks = CLIENT_INPUT_CHECKS

    def __init__(
        self,
        settings: Settings,
        models: Models,
        sandboxes: SandboxPool,
        networks: tuple[Network, ...],
    ) -> None:
        self.home = Path(settings.home)
        self.folder = Path(settings.folder)
        self._settings = settings
        self._models = models
        self._sandboxes = sandboxes
        self._networks = networks
        self._interpreter = LazyInterpreter.of(sandboxes.resources)
        """Runs code that needs no sandbox; `None` if it is not installed."""
        self._memory_sources: MemorySources | None = None
        self._transcripts: LruCache[str, TranscriptFiles] = LruCache(MAX_CACHED)

    def load_policy(self, workspace: Path, options: RunOptions) -> LoadedPolicy:
        return load_policy(
            workspace, home=self.home, only_managed=options.is_served, agent=options.agent
        )

    def read_hooks(
        self, settings: Iterable[HookSettings]
    ) -> tuple[tuple[msgspec.Raw, ...], tuple[str, ...]]:
        return hook_config.read_hooks(settings)

    def read_environment(
        self, raw: Mapping[str, object], variables: Mapping[str, str]
    ) -> SandboxEnvironment:
        return read_environment(raw, variables)

    def user_servers(self, workspace: Path, loaded: LoadedPolicy) -> UserServers:
        return user_servers(self._settings, workspace, loaded)

    def saved_environment(self, workspace: Path) -> SavedEnvironment | None:
        if not (self.home / FOLDER / "environments").is_dir():
            return None  # without importing what reads them
        return saved_environment.saved_environments(self.home).find(workspace)

    def session_paths(self, workspace: Path, session_id: str) -> SessionPaths:
        return session_paths(self._settings, workspace, session_id)

    async def paths_named_by_git(
        self, workspace: Path, trees: Sequence[Path], folders: Sequence[Path], /
    ) -> tuple[str, ...]:
        return await paths_named_by_git(
            workspace, trees, folders, home=self.home, run_program=run_confined
        )

    shared_repository = staticmethod(shared_repository)
    worktrees = staticmethod(open_worktrees)

    async def with_packages(
        self, environment: SandboxEnvironment, workspace: Path, warn: Warn
    ) -> SandboxEnvironment:
        return await mcp_packages.with_packages(
            self._settings, self._sandboxes, environment, workspace, warn
        )

    async def open_sandbox(
        self, key: str, paths: SessionPaths, environment: SandboxEnvironment, options: RunOptions
    ) -> SandboxSession:
        return await self._sandboxes.open_session(key, paths, environment, options.credentials)

    async def release_sandbox(self, key: str) -> None:
        await self._sandboxes.release(key)

    async def discard_sandbox(self, key: str) -> None:
        await self._sandboxes.discard(key)

    def captured_text(self, output: CapturedOutput) -> str:
        return captured_text(output)

    def file_tree(self, paths: SessionPaths, policy: Policy, skills: Collection[Path]) -> FileTree:
        tree = session_tree(paths, policy, skills)
        return FileTree(
            workspace=tree, open_snapshots=partial(WorkspaceSnapshots, tree, paths.snapshots)
        )

    def file_tools(self, workspace: Workspace, earlier: Mapping[str, int]) -> list[Tool]:
        return workspace_tools(workspace, earlier)

    def built_in_tools(
        self,
        setup: SetupRequest,
        workspace: Workspace,
        files: Sequence[Tool],
        sandbox: SandboxSession | None,
    ) -> dict[str, Tool]:
        return built_in_tools(setup, workspace, files, sandbox, self._interpreter, self._settings)

    def web_tools(
        self,
        setup: SetupRequest,
        environment: SandboxEnvironment,
        record: Callable[[KnownPayload], None],
    ) -> dict[str, Tool]:
        return web_tools(setup, environment, self._settings, self._models, record)

    def knowledge_tools(self, setup: SetupRequest, workspace: Path) -> dict[str, Tool]:
        return memories.knowledge_tools(self._settings, setup, workspace)

    def memory_sources(self) -> MemorySources:
        """The same for all sessions, so that they share open indexes."""
        if self._memory_sources is None:
            self._memory_sources = memories.memory_sources(self._settings)
            self._sandboxes.resources.callback(self._memory_sources.indexes.open_indexes.close)
        return self._memory_sources

    def recall(self, setup: SetupRequest, memory: SessionMemory) -> Recall:
        return memories.session_recall(self._settings, setup, self._models, memory)

    def tool_loading(self, setup: SetupRequest, tools: Mapping[str, Tool]) -> ToolLoading:
        facts = self._models.facts(setup.agent.model)
        loaded = setup.thread.session_state.loaded_tools
        return plan_tool_loading(
            tools, loaded, facts, lambda: vector_settings.open_encode(self.home)
        )

    async def attach_hooks(
        self,
        stack: AsyncExitStack,
        pinned_policy: PinnedPolicy,
        setup: SetupRequest,
        authorizer: PermissionEngine,
        hook_ports: HookPorts,
    ) -> frozenset[HookEventName]:
        machine = session_hooks.HookMachine(
            self._settings, self._models, self._transcripts, hook_ports
        )
        return await session_hooks.attach_hooks(stack, pinned_policy, setup, authorizer, machine)

    async def open_servers(
        self,
        setup: SetupRequest,
        servers: tuple[McpServer, ...],
        own: tuple[McpServer, ...],
        sandbox: SandboxSession | None,
        stack: AsyncExitStack,
        warn: Warn,
    ) -> ServerParts:
        opener = mcp_servers.ThreadServers(
            self._settings, self._networks, self._models, self._sandboxes
        )
        return await opener.open(setup, servers, own, sandbox, stack, warn)
