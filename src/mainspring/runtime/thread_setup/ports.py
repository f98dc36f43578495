"""What the set-up of a thread needs from implementations: settings files, sandboxes, tools, hooks
and servers. `wiring` fills these ports."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Collection, Iterable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, AsyncExitStack
from pathlib import Path
from typing import TYPE_CHECKING, Protocol, Self, TypeAlias, TypeVar

import msgspec
from msgspec import Struct

from mainspring.core.events import KnownPayload
from mainspring.core.hook import HookEventName, HookSettings
from mainspring.core.model import ToolSpec
from mainspring.core.ports import CapturedOutput, Sandbox, Snapshots, Workspace, Worktrees
from mainspring.core.tool import Tool
from mainspring.harness.permissions.engine import PermissionEngine
from mainspring.harness.permissions.policy import Policy
from mainspring.runtime.definition_files.settings_file import Preferences
from mainspring.runtime.mcp_server import McpServer, ServerParts
from mainspring.runtime.run_options import RunOptions
from mainspring.runtime.session.session_paths import SessionPaths
from mainspring.runtime.session_context import SetupRequest
from mainspring.runtime.settings.pinned_policy import PinnedPolicy
from mainspring.runtime.settings.policy_loader import LoadedPolicy

if TYPE_CHECKING:
    from mainspring.runtime.memory.session_memory import SessionMemory
    from mainspring.runtime.memory_setup import MemorySources
    from mainspring.runtime.saved_environments import SavedEnvironment

Warn: TypeAlias = Callable[[str], None]
UserServers: TypeAlias = tuple[tuple[McpServer, ...], Mapping[str, tuple[McpServer, ...]]]
"""The MCP servers of a session, and those that only one type of subagent has."""
PathsNamedByGit: TypeAlias = Callable[
    [Path, Sequence[Path], Sequence[Path]], Awaitable[tuple[str, ...]]
]
"""Takes a workspace with its trees and bare repositories; returns the files in the workspace that
their configurations name. Raises: InvalidInput: one cannot be read."""


class SessionEnvironment(Protocol):
    """The settings of a session's sandbox."""

    @property
    def networking(self) -> Mapping[str, object]: ...

    @property
    def has_packages(self) -> bool: ...

    def with_additions(self, packages: Mapping[str, Sequence[str]], folder: str) -> Self:
        """The environment with more packages, by manager, and a folder that programs may read."""
        ...

    def with_programs(self, folder: str | Path) -> Self:
        """The environment with a folder at the start of `PATH`."""
        ...


class SessionSandbox(Sandbox, Protocol):
    """The sandbox of a session, which the first program opens."""

    @property
    def network_facts(self) -> list[KnownPayload]:
        """Events about network use of programs, for the log."""
        ...

    def prepare(self) -> None:
        """Start it in the background, since a program is about to run."""
        ...

    async def forget_all(self) -> None:
        """Delete the stored results of a run: the log has everything."""
        ...

    def for_thread(self, thread_id: str) -> AbstractAsyncContextManager[Self]:
        """The same sandbox for another thread."""
        ...


Environment = TypeVar("Environment", bound=SessionEnvironment)
OpenedSandbox = TypeVar("OpenedSandbox", bound=SessionSandbox)


class ToolPresentation(Protocol):
    """Which tools the model must search for, and the tool that finds them."""

    @property
    def deferred(self) -> frozenset[str]: ...
    @property
    def facts(self) -> Sequence[KnownPayload]: ...
    @property
    def search_tools(self) -> Sequence[Tool]: ...
    @property
    def make_search(self) -> Callable[[Sequence[ToolSpec]], Tool] | None: ...


class FileTree(Struct, frozen=True, kw_only=True):
    """The files that the tools of a thread may reach."""

    workspace: Workspace
    open_snapshots: Callable[[], Snapshots]


class HookPorts(Struct, frozen=True, kw_only=True):
    """What the hooks of one thread may use."""

    preferences: Preferences
    tools: Mapping[str, Tool]
    """The tools of agent hooks; filled before any hook runs."""
    side_events: list[KnownPayload]
    """Collects the cost of the models that hooks call."""
    folder: Path
    """The folder of transcripts."""
    warn: Warn
    """Prints each text once."""


class ThreadPorts(Protocol[Environment, OpenedSandbox]):
    """The implementations that a thread is set up with."""

    @property
    def home(self) -> Path:
        """The user's home folder."""
        ...

    @property
    def folder(self) -> Path:
        """Where sessions work by default."""
        ...

    @property
    def client_tools(self) -> Sequence[ToolSpec]:
        """The tools with which the model asks a person."""
        ...

    @property
    def client_input_checks(self) -> Mapping[str, Callable[[Mapping[str, object]], str | None]]: ...

    # Settings files; these methods block.

    def load_policy(self, workspace: Path, options: RunOptions) -> LoadedPolicy:
        """Raises: InvalidInput."""
        ...

    def read_hooks(
        self, settings: Iterable[HookSettings]
    ) -> tuple[tuple[msgspec.Raw, ...], tuple[str, ...]]:
        """See `ReadHooks`."""
        ...

    def read_environment(
        self, raw: Mapping[str, object], variables: Mapping[str, str]
    ) -> Environment:
        """Raises: InvalidInput."""
        ...

    def user_servers(self, workspace: Path, loaded: LoadedPolicy) -> UserServers:
        """Raises: InvalidInput."""
        ...

    def saved_environment(self, workspace: Path) -> SavedEnvironment | None:
        """The saved environment of the repository that the workspace belongs to."""
        ...

    # Paths and sandboxes

    def session_paths(self, workspace: Path, session_id: str) -> SessionPaths:
        """Raises: InvalidInput: the workspace does not exist, or is too large to work in."""
        ...

    async def paths_named_by_git(
        self, workspace: Path, trees: Sequence[Path], folders: Sequence[Path], /
    ) -> tuple[str, ...]:
        """See `PathsNamedByGit`."""
        ...

    async def shared_repository(self, workspace: Path) -> Path:
        """The repository that all worktrees of a workspace share. Raises: ToolEnvironmentError."""
        ...

    def worktrees(self, workspace: Path, place: Path) -> Worktrees:
        """Worktrees of a workspace, each in a folder below `place`."""
        ...

    async def with_packages(
        self, environment: Environment, workspace: Path, warn: Warn
    ) -> Environment:
        """The environment with its packages installed. Raises: McpFailed, SandboxFailed."""
        ...

    async def open_sandbox(
        self, key: str, paths: SessionPaths, environment: Environment, options: RunOptions
    ) -> OpenedSandbox:
        """Raises: SandboxFailed: this machine cannot isolate programs."""
        ...

    async def release_sandbox(self, key: str) -> None:
        """The run has ended."""
        ...

    async def discard_sandbox(self, key: str) -> None:
        """Close the sandbox of a thread that will not run again."""
        ...

    def captured_text(self, output: CapturedOutput) -> str: ...

    # Tools

    def file_tree(
        self, paths: SessionPaths, policy: Policy, skills: Collection[Path]
    ) -> FileTree: ...

    def file_tools(self, workspace: Workspace, earlier: Mapping[str, int]) -> list[Tool]:
        """`earlier`: when the model knew each file."""
        ...

    def built_in_tools(
        self,
        setup: SetupRequest,
        workspace: Workspace,
        files: Sequence[Tool],
        sandbox: OpenedSandbox | None,
    ) -> dict[str, Tool]:
        """The tools by name. Without a sandbox, none of them runs programs."""
        ...

    def web_tools(
        self,
        setup: SetupRequest,
        environment: Environment,
        record: Callable[[KnownPayload], None],
    ) -> dict[str, Tool]: ...

    def knowledge_tools(self, setup: SetupRequest, workspace: Path) -> dict[str, Tool]: ...

    def memory_sources(self) -> MemorySources: ...

    def recall(
        self, setup: SetupRequest, memory: SessionMemory
    ) -> Callable[[str], Awaitable[Sequence[KnownPayload]]]:
        """Finds memories about a message of the user."""
        ...

    def tool_loading(self, setup: SetupRequest, tools: Mapping[str, Tool]) -> ToolPresentation: ...

    async def attach_hooks(
        self,
        stack: AsyncExitStack,
        pinned_policy: PinnedPolicy,
        setup: SetupRequest,
        authorizer: PermissionEngine,
        hook_ports: HookPorts,
    ) -> frozenset[HookEventName]:
        """Let the authorizer run the session's hooks until the stack closes. Returns the events
        that they handle."""
        ...

    async def open_servers(
        self,
        setup: SetupRequest,
        servers: tuple[McpServer, ...],
        own: tuple[McpServer, ...],
        sandbox: OpenedSandbox | None,
        stack: AsyncExitStack,
        warn: Warn,
    ) -> ServerParts:
        """The tools of MCP servers: those of the session, and those that only the thread's
        subagent has."""
        ...
