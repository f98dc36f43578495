"""Build a session's toolbox: rules and hooks, workspace and sandbox, built-in tools."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Mapping
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from anyio import to_thread

from mainspring.capabilities.providers.model_registry import ModelRegistry
from mainspring.capabilities.tools.ask_user import ASK_USER, CLIENT_INPUT_CHECKS, EXIT_PLAN
from mainspring.capabilities.tools.tool_search import ToolLoading, plan_tool_loading, tool_search
from mainspring.capabilities.workspace.snapshots import WorkspaceSnapshots
from mainspring.config import FOLDER, Settings
from mainspring.core import clock
from mainspring.core.errors import InvalidInput
from mainspring.core.events import KnownPayload
from mainspring.core.hook import HookEventName
from mainspring.core.lazy_module import LazyModule
from mainspring.core.ports import Worktrees
from mainspring.core.tool import Tool
from mainspring.harness.authorizer import Authorizer
from mainspring.harness.file_read_history import file_read_times
from mainspring.harness.permissions.command_location import read_command_location
from mainspring.harness.permissions.engine import PermissionEngine
from mainspring.harness.permissions.policy import Policy, remove_denied
from mainspring.harness.permissions.tool_names import ALIASES
from mainspring.harness.toolbox import FindToolChanges, Toolbox
from mainspring.log.lru_cache import LruCache
from mainspring.runtime.agent_folder.folder_instructions import with_path_instructions
from mainspring.runtime.mcp_server import ServerParts
from mainspring.runtime.model_question import make_ask_model
from mainspring.runtime.run_options import RunOptions
from mainspring.runtime.session.session_paths import (
    WORKSPACE_ALIASES,
    SessionPaths,
    memory_places,
    worktree_paths,
)
from mainspring.runtime.session_context import SetupRequest, toolbox_without_tools
from mainspring.runtime.settings.pinned_policy import pin_policy, reading_rules, with_rules
from mainspring.wiring.builtin_tools import built_in_tools, select_tools, web_tools, workspace_tools
from mainspring.wiring.sandbox_environment import read_environment, session_paths
from mainspring.wiring.sandbox_pool import SandboxPool
from mainspring.wiring.session_repositories import open_worktrees, shared_repository
from mainspring.wiring.settings_files import load_policy
from mainspring.wiring.thread_servers import ThreadServers
from mainspring.wiring.thread_workspace import (
    SessionRuntime,
    ThreadWorkspace,
    ThreadWorkspaces,
    sandbox_opened,
    sandbox_preparation,
    workspace_note,
)

if TYPE_CHECKING:
    from mainspring.capabilities.hooks import config as hook_config
    from mainspring.capabilities.network.rules import Network
    from mainspring.runtime.export_sessions.transcript_files import TranscriptFiles
    from mainspring.runtime.memory import memory_tools
    from mainspring.runtime.saved_environments import SavedEnvironment
    from mainspring.wiring import memory as memories
    from mainspring.wiring import saved_environment, session_hooks
else:
    saved_environment = LazyModule("mainspring.wiring.saved_environment")  # most folders have none
    memories = LazyModule("mainspring.wiring.memory")  # most sessions have none
    memory_tools = LazyModule("mainspring.runtime.memory.memory_tools")
    hook_config = LazyModule("mainspring.capabilities.hooks.config")
    session_hooks = LazyModule("mainspring.wiring.session_hooks")  # most sessions have none

_MAX_CACHED = 1000
"""Sessions and warnings that are remembered between runs."""
_FILE_TOOLS = frozenset(("read", "edit", "write"))
_CLIENT_WORKSPACE = "/workspace"
"""Stands for the folder of a client that runs tools itself; it is not accessed here."""


class ToolboxBuilder:
    """A `ToolboxFactory`. Agents without built-in tools only get the given authorizer."""

    def __init__(
        self,
        settings: Settings,
        models: ModelRegistry,
        sandboxes: SandboxPool,
        authorizer: Authorizer,
        networks: tuple[Network, ...] = (),
    ) -> None:
        """`networks`: addresses that are not public and that the MCP servers of a session of the
        service may have all the same."""
        self._settings = settings
        self._home = Path(settings.home)
        self._models = models
        self._sandboxes = sandboxes
        self._servers = ThreadServers(settings, networks, models, sandboxes, self._warn)
        self._bare = toolbox_without_tools(authorizer)
        self._files: LruCache[str, list[Tool]] = LruCache(_MAX_CACHED)
        self._workspaces = ThreadWorkspaces(sandboxes, self._home, self._warn)
        self._warned: LruCache[str, str] = LruCache(_MAX_CACHED)
        self._transcripts: LruCache[str, TranscriptFiles] = LruCache(_MAX_CACHED)

    @asynccontextmanager
    async def __call__(self, setup: SetupRequest) -> AsyncGenerator[Toolbox, None]:
        options = setup.options
        paths = self._session_paths(setup) if setup.agent.needs_workspace else None
        if paths is None:
            open_toolbox = self._toolbox_of_client if options.is_served else self._bare
            async with open_toolbox(setup) as toolbox:
                yield toolbox
            return
        paths = await self._workspaces.find_repositories(paths)
        loaded = await to_thread.run_sync(
            lambda: load_policy(
                paths.workspace,
                home=self._home,
                only_managed=options.is_served,
                agent=options.agent,
            )
        )
        rules = await pin_policy(
            setup,
            paths,
            loaded,
            home=self._home,
            read_hooks=lambda hooks: hook_config.read_hooks(hooks),  # noqa: PLW0108 (imported late)
        )
        preferences = rules.loaded.preferences
        environment = read_environment(
            {**options.sandbox, **rules.loaded.sandbox}, preferences.sandbox_env
        )
        for warning in (*rules.warnings, *preferences.warnings):
            self._warn(options, warning)
        saved = await self._saved_environment(options, paths.workspace)
        if saved is not None:
            environment = saved_environment.with_saved(environment, saved)
        session = SessionRuntime(
            pinned_policy=with_rules(rules.pinned_policy, reading_rules(setup.agent)),
            sandbox_environment=environment,
            preferences=preferences,
            saved_environment=saved,
        )
        session = await self._servers.add_to(session, options, paths, rules.loaded)
        async with self._workspaces.open(setup, session, paths) as thread_workspace:
            opened = sandbox_opened(setup, paths, thread_workspace.sandbox)
            async with self._toolbox(
                setup, session, thread_workspace, facts=(*rules.facts, *opened)
            ) as toolbox:
                yield toolbox
            if thread_workspace.sandbox is not None:
                await thread_workspace.sandbox.forget_all()

    @asynccontextmanager
    async def _toolbox(
        self,
        setup: SetupRequest,
        session: SessionRuntime,
        thread_workspace: ThreadWorkspace,
        facts: tuple[KnownPayload, ...] = (),
    ) -> AsyncGenerator[Toolbox, None]:
        """The toolbox of one thread."""
        sandbox_session, policy, options = thread_workspace.sandbox, session.policy, setup.options
        side_events = sandbox_session.network_facts if sandbox_session else list[KnownPayload]()
        authorizer = self._permission_engine(setup, policy, thread_workspace)
        instructions = thread_workspace.path_instructions
        authorizer.on_compaction = partial(instructions.forget, setup.thread.id)
        hook_tools, hooked = dict[str, Tool](), frozenset[HookEventName]()
        async with AsyncExitStack() as stack:
            if session.pinned_policy.hooks:
                ports = session_hooks.SessionHookPorts(
                    settings=self._settings,
                    preferences=session.preferences,
                    models=self._models,
                    tools=hook_tools,
                    side_events=side_events,
                    transcripts=self._transcripts,
                    folder=thread_workspace.paths.transcripts,
                    warn=partial(self._warn, options),
                    show=options.warn,
                )
                hooked = await session_hooks.attach_hooks(
                    stack, session.pinned_policy, setup, authorizer, ports
                )
            tools = {
                **built_in_tools(
                    setup,
                    thread_workspace.folder_workspace,
                    await self._file_tools(setup, thread_workspace),
                    sandbox_session,
                    self._sandboxes.workers,
                    self._settings,
                ),
                **web_tools(
                    setup,
                    session.sandbox_environment,
                    self._settings,
                    self._models,
                    side_events.append,
                ),
            }
            tools = select_tools(remove_denied(tools, policy), setup.agent.built_ins)
            hook_tools.update(tools)
            for name in _FILE_TOOLS & tools.keys():
                tools[name] = with_path_instructions(tools[name], instructions)
            workspace = thread_workspace.paths.workspace
            memory = None
            if setup.options.memory or any(
                place.is_dir() for place in memory_places(workspace, self._home)
            ):
                memory = memories.session_memory(self._settings, setup, workspace, stack)
            more: dict[str, Tool] = {} if memory is None else memory_tools.memory_tools(memory)
            if (workspace / "knowledge").is_dir():
                more |= memories.knowledge_tools(self._settings, setup, workspace)
            tools |= remove_denied(select_tools(more, setup.agent.built_ins), policy)
            if memory is not None:
                facts += tuple(await memory.wake_up() if setup.thread.messages == 0 else ())
            servers = await self._servers.open(
                setup, session.servers, sandbox_session, stack, session.subagent_servers
            )
            authorizer.add_rules(servers.rules)
            foreign = remove_denied(servers.tools, policy)
            brought = {tool.spec.name: tool for tool in setup.agent.tools}
            loading = self._tool_loading(setup, {**remove_denied(brought, policy), **foreign})
            yield Toolbox(
                authorizer=authorizer,
                tools=[*tools.values(), *foreign.values(), *loading.search_tools],
                denied=frozenset(brought.keys() - remove_denied(brought, policy).keys()),
                deferred=loading.deferred,
                client_tools=[ASK_USER, EXIT_PLAN] if options.is_attended else [],
                client_input_checks=CLIENT_INPUT_CHECKS,
                aliases=ALIASES,
                sandbox_info=None if sandbox_session is None else sandbox_session.box,
                snapshots=WorkspaceSnapshots(
                    thread_workspace.folder_workspace, thread_workspace.paths.snapshots
                ),
                environment="\n".join(
                    (workspace_note(setup, thread_workspace, session), *servers.notes)
                ),
                pending_facts=side_events,
                facts=(*facts, *servers.facts, *loading.facts),
                recall=memory
                and memories.session_recall(self._settings, setup, self._models, memory),
                for_thread=partial(self._for_thread, session, thread_workspace),
                on_call_announced=sandbox_preparation(sandbox_session),
                hook_events=hooked,
                worktrees=self._worktrees(setup, thread_workspace),
                changes=_tool_changes(servers, policy, loading),
                message_context=servers.message_context,
            )

    @asynccontextmanager
    async def _for_thread(
        self,
        session: SessionRuntime,
        thread_workspace: ThreadWorkspace,
        setup: SetupRequest,
    ) -> AsyncGenerator[Toolbox, None]:
        """In the folder of the session with the same environment, or in a worktree."""
        if setup.workspace is None:
            async with AsyncExitStack() as stack:
                if thread_workspace.sandbox is not None:
                    sandbox_session = thread_workspace.sandbox.for_thread(setup.thread.id)
                    thread_workspace = replace(
                        thread_workspace,
                        sandbox=await stack.enter_async_context(sandbox_session),
                    )
                yield await stack.enter_async_context(
                    self._toolbox(setup, session, thread_workspace)
                )
            return
        repository = await shared_repository(thread_workspace.paths.workspace)
        paths = worktree_paths(thread_workspace.paths, setup.workspace, setup.thread.id, repository)
        moved = session.moved(setup.workspace)
        async with (
            self._workspaces.open(setup, moved, paths) as elsewhere,
            self._toolbox(setup, moved, elsewhere) as toolbox,
        ):
            yield toolbox

    @asynccontextmanager
    async def _toolbox_of_client(self, setup: SetupRequest) -> AsyncGenerator[Toolbox, None]:
        """Without built-in tools; the rules bind a client that runs tools itself, too."""
        opt = setup.options
        policy = Policy(workspace=_CLIENT_WORKSPACE, home="/root", rules=opt.rules, mode=opt.mode)
        async with AsyncExitStack() as stack:
            servers = await self._servers.open(setup, opt.servers, None, stack)
            foreign = remove_denied(servers.tools, policy)
            loading = self._tool_loading(setup, foreign)
            authorizer = self._permission_engine(setup, policy, None)
            authorizer.add_rules(servers.rules)
            yield Toolbox(
                authorizer=authorizer,
                tools=[*foreign.values(), *loading.search_tools],
                deferred=loading.deferred,
                environment="\n".join(servers.notes),
                facts=(*servers.facts, *loading.facts),
                for_thread=self._toolbox_of_client if opt.servers else None,
                changes=_tool_changes(servers, policy, loading),
                message_context=servers.message_context,
            )

    async def _saved_environment(
        self, options: RunOptions, workspace: Path
    ) -> SavedEnvironment | None:
        if options.is_served or not (self._home / FOLDER / "environments").is_dir():
            return None
        environments = saved_environment.saved_environments(self._home)
        return await to_thread.run_sync(environments.find, workspace)

    def _session_paths(self, setup: SetupRequest) -> SessionPaths | None:
        """The folders of the session; `None`, with a warning, if an agent cannot work there.

        Raises:
            InvalidInput: it cannot, and the agent has its own tools, which would run without rules.
        """
        options = setup.options
        folder = setup.thread.session_state.workspace or self._settings.folder
        workspace = options.workspace or Path(folder)
        try:
            paths = session_paths(self._settings, workspace, setup.writer.session_id)
            return replace(paths, aliases=WORKSPACE_ALIASES) if options.is_served else paths
        except InvalidInput as error:
            if setup.agent.tools:
                raise
            self._warn(options, "; ".join([str(error), *error.fix]))
            return None

    def _tool_loading(self, setup: SetupRequest, tools: Mapping[str, Tool]) -> ToolLoading:
        facts = self._models.facts(setup.agent.model)
        return plan_tool_loading(tools, setup.thread.session_state.loaded_tools, facts)

    def _worktrees(
        self, setup: SetupRequest, thread_workspace: ThreadWorkspace
    ) -> Worktrees | None:
        """Only for the session's own workspace: threads in a worktree have none."""
        if setup.workspace is not None:
            return None
        paths = thread_workspace.paths
        return open_worktrees(paths.workspace, paths.worktrees(setup.writer.session_id))

    async def _file_tools(
        self, setup: SetupRequest, thread_workspace: ThreadWorkspace
    ) -> list[Tool]:
        """Those of its last run remember which files were read; otherwise the log tells."""
        session_id, thread_id = setup.writer.session_id, setup.thread.id
        key = f"{session_id}/{thread_id}"
        if (tools := self._files.get(key)) is None:
            earlier = await file_read_times(setup.log, session_id, thread_id)
            tools = workspace_tools(thread_workspace.folder_workspace, earlier)
        self._files.put(key, tools)
        return tools

    def _warn(self, options: RunOptions, warning: str) -> None:
        """Each warning once, however many runs a session has."""
        if self._warned.get(warning) is None:
            self._warned.put(warning, warning)
            options.warn(warning)

    def _permission_engine(
        self,
        setup: SetupRequest,
        policy: Policy,
        thread_workspace: ThreadWorkspace | None,
    ) -> PermissionEngine:
        sandbox_session = None if thread_workspace is None else thread_workspace.sandbox
        place = read_command_location(
            policy, () if thread_workspace is None else thread_workspace.paths.aliases
        )
        is_isolated = (
            sandbox_session is not None and sandbox_session.box.isolation_level == "isolated"
        )
        return PermissionEngine(
            thread=setup.thread,
            policy=policy,
            location=lambda: place,
            clock=clock.now,
            is_sandboxed=is_isolated,
            classifier=make_ask_model(self._models, setup.agent.model),
            ceiling=setup.mode,
            is_headless=setup.options.is_headless,
        )


def _tool_changes(servers: ServerParts, policy: Policy, loading: ToolLoading) -> FindToolChanges:
    search = tool_search if loading.search_tools else None
    return servers.tool_changes(partial(remove_denied, policy=policy), search)
