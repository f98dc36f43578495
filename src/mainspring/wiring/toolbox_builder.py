"""Builds a session's toolbox: rules and hooks, workspace and sandbox, built-in tools."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Mapping
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from anyio import to_thread

from mainspring.capabilities.monty.python_tool import LazyInterpreter
from mainspring.capabilities.sandbox.sandbox_session import SandboxSession
from mainspring.capabilities.tools.ask_user import ASK_USER, CLIENT_INPUT_CHECKS, EXIT_PLAN
from mainspring.capabilities.tools.tool_search import ToolLoading, plan_tool_loading
from mainspring.capabilities.workspace.snapshots import WorkspaceSnapshots
from mainspring.config import Settings
from mainspring.core.errors import InvalidInput
from mainspring.core.events import KnownPayload
from mainspring.core.hook import HookEventName
from mainspring.core.lazy_module import LazyModule
from mainspring.core.tool import Tool
from mainspring.harness.authorizer import Authorizer
from mainspring.harness.file_read_history import file_read_times
from mainspring.harness.permissions.policy import Policy, remove_denied
from mainspring.harness.permissions.tool_names import ALIASES, select_tools
from mainspring.harness.toolbox import FindToolChanges, Toolbox
from mainspring.log.lru_cache import LruCache
from mainspring.runtime.agent_folder.folder_instructions import with_path_instructions
from mainspring.runtime.mcp_server import McpServer, ServerParts
from mainspring.runtime.run_options import RunOptions
from mainspring.runtime.session.session_paths import (
    WORKSPACE_ALIASES,
    SessionPaths,
    has_memories,
    worktree_paths,
)
from mainspring.runtime.session_context import Models, SetupRequest, toolbox_without_tools
from mainspring.runtime.settings.pinned_policy import pin_policy, reading_rules, with_rules
from mainspring.runtime.thread_setup import (
    MAX_CACHED,
    permission_engine,
    sandbox_opened,
    workspace_note,
)
from mainspring.wiring.builtin_tools import built_in_tools, web_tools, workspace_tools
from mainspring.wiring.sandbox_environment import read_environment, session_paths
from mainspring.wiring.sandbox_pool import SandboxPool
from mainspring.wiring.settings_files import load_policy, user_servers
from mainspring.wiring.thread_workspace import (
    SessionRuntime,
    ThreadWorkspace,
    ThreadWorkspaces,
    open_worktrees,
    sandbox_preparation,
    shared_repository,
)

if TYPE_CHECKING:
    from mainspring.capabilities.hooks import config as hook_config
    from mainspring.capabilities.network.rules import Network
    from mainspring.runtime.export_sessions.transcript_files import TranscriptFiles
    from mainspring.runtime.memory import memory_tools, vector_settings
    from mainspring.wiring import mcp_servers, session_hooks
    from mainspring.wiring import memory as memories
else:
    mcp_servers = LazyModule("mainspring.wiring.mcp_servers")  # most sessions have none
    memories = LazyModule("mainspring.wiring.memory")
    memory_tools = LazyModule("mainspring.runtime.memory.memory_tools")
    vector_settings = LazyModule("mainspring.runtime.memory.vector_settings")
    hook_config = LazyModule("mainspring.capabilities.hooks.config")
    session_hooks = LazyModule("mainspring.wiring.session_hooks")  # most sessions have none

_FILE_TOOLS = frozenset(("read", "edit", "write"))
_CLIENT_WORKSPACE = "/workspace"
"""The assumed folder of a client that runs tools itself; it is not accessed here."""


class ToolboxBuilder:
    """A `ToolboxFactory`. The toolbox of an agent without built-in tools has only the given
    authorizer."""

    def __init__(
        self,
        settings: Settings,
        models: Models,
        sandboxes: SandboxPool,
        authorizer: Authorizer,
        networks: tuple[Network, ...] = (),
    ) -> None:
        """`networks`: private addresses that MCP servers of the service's sessions may have."""
        self._settings = settings
        self._home = Path(settings.home)
        self._models = models
        self._sandboxes = sandboxes
        self._networks = networks
        self._interpreter = LazyInterpreter.of(sandboxes.resources)
        """Runs code that needs no sandbox; `None` if it is not installed."""
        self._authorizer = authorizer
        self._files: LruCache[str, list[Tool]] = LruCache(MAX_CACHED)
        self._workspaces = ThreadWorkspaces(settings, sandboxes, self._warn)
        self._warned: LruCache[str, str] = LruCache(MAX_CACHED)
        self._transcripts: LruCache[str, TranscriptFiles] = LruCache(MAX_CACHED)

    @asynccontextmanager
    async def __call__(self, setup: SetupRequest) -> AsyncGenerator[Toolbox, None]:
        options = setup.options
        paths = self._session_paths(setup) if setup.agent.needs_workspace else None
        if paths is None:
            without_tools = toolbox_without_tools(self._authorizer)
            open_toolbox = self._toolbox_of_client if options.is_served else without_tools
            async with open_toolbox(setup) as toolbox:
                yield toolbox
            return
        paths = await self._workspaces.facts.with_repositories(paths)
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
        saved = await self._workspaces.saved_environment(options, paths.workspace)
        servers, own_servers = options.servers, dict[str, tuple[McpServer, ...]]()
        if not options.is_served:
            servers, own_servers = await to_thread.run_sync(
                user_servers, self._settings, paths.workspace, rules.loaded
            )
        session = SessionRuntime(
            pinned_policy=with_rules(rules.pinned_policy, reading_rules(setup.agent)),
            sandbox_environment=environment,
            preferences=preferences,
            servers=servers,
            subagent_servers=own_servers,
            saved_environment=saved,
        )
        async with self._workspaces.open(setup, session, paths) as thread_workspace:
            event = sandbox_opened(setup, paths.workspace, thread_workspace.sandbox_info)
            async with self._toolbox(
                setup, session, thread_workspace, facts=(*rules.facts, *event)
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
        authorizer = permission_engine(
            setup,
            policy,
            self._models,
            sandbox=thread_workspace.sandbox_info,
            aliases=thread_workspace.paths.aliases,
        )
        instructions = thread_workspace.path_instructions
        authorizer.on_compaction = partial(instructions.forget, setup.thread.id)
        hook_tools, hook_events = dict[str, Tool](), frozenset[HookEventName]()
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
                hook_events = await session_hooks.attach_hooks(
                    stack, session.pinned_policy, setup, authorizer, ports
                )
            tools = {
                **built_in_tools(
                    setup,
                    thread_workspace.folder_workspace,
                    await self._file_tools(setup, thread_workspace),
                    sandbox_session,
                    self._interpreter,
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
            workspace, worktrees = thread_workspace.paths.workspace, None
            if setup.workspace is None:  # a thread in a worktree cannot have worktrees
                place = thread_workspace.paths.worktrees(setup.writer.session_id)
                worktrees = open_worktrees(workspace, place)
            memory = None
            if setup.options.memory or setup.subagent_memory or has_memories(workspace, self._home):
                memory = memories.memory_sources(self._settings).of_thread(setup, workspace, stack)
            extra_tools: dict[str, Tool] = (
                {} if memory is None else memory_tools.memory_tools(memory)
            )
            own = {} if setup.subagent is None else extra_tools  # its file gives it memory tools
            if (workspace / "knowledge").is_dir():
                extra_tools = extra_tools | memories.knowledge_tools(
                    self._settings, setup, workspace
                )
            tools |= remove_denied(
                {**select_tools(extra_tools, setup.agent.built_ins), **own}, policy
            )
            if memory is not None:
                facts += tuple(await memory.wake_up() if setup.thread.messages == 0 else ())
            own_servers = session.subagent_servers.get(setup.subagent or "", ())
            servers = await self._open_servers(
                setup, session.servers, own_servers, sandbox_session, stack
            )
            authorizer.add_rules(servers.rules)
            foreign = remove_denied(servers.tools, policy)
            note = workspace_note(
                setup,
                workspace,
                has_sandbox=sandbox_session is not None,
                has_network=bool(session.sandbox_environment.networking),
                saved=session.saved_environment,
            )
            agent_tools = {tool.spec.name: tool for tool in setup.agent.tools}
            loading = self._tool_loading(setup, {**remove_denied(agent_tools, policy), **foreign})
            yield Toolbox(
                authorizer=authorizer,
                tools=[*tools.values(), *foreign.values(), *loading.search_tools],
                denied=frozenset(agent_tools.keys() - remove_denied(agent_tools, policy).keys()),
                deferred=loading.deferred,
                client_tools=[ASK_USER, EXIT_PLAN] if options.is_attended else [],
                client_input_checks=CLIENT_INPUT_CHECKS,
                aliases=ALIASES,
                sandbox_info=thread_workspace.sandbox_info,
                snapshots=WorkspaceSnapshots(
                    thread_workspace.folder_workspace, thread_workspace.paths.snapshots
                ),
                environment="\n".join((note, *servers.notes)),
                pending_facts=side_events,
                facts=(*facts, *servers.facts, *loading.facts),
                recall=memory
                and memories.session_recall(self._settings, setup, self._models, memory),
                before_compact=memory and memory.before_compact,
                for_thread=partial(self._for_thread, session, thread_workspace),
                on_call_announced=sandbox_preparation(sandbox_session),
                hook_events=hook_events,
                worktrees=worktrees,
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
        """The toolbox of a subagent's thread: in the session's folder with the same environment, or
        in a worktree."""
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
        moved_session = session.moved(setup.workspace)
        async with (
            self._workspaces.open(setup, moved_session, paths) as worktree,
            self._toolbox(setup, moved_session, worktree) as toolbox,
        ):
            yield toolbox

    @asynccontextmanager
    async def _toolbox_of_client(self, setup: SetupRequest) -> AsyncGenerator[Toolbox, None]:
        """The toolbox for a client that runs tools itself: no built-in tools, same rules."""
        opt = setup.options
        policy = Policy(workspace=_CLIENT_WORKSPACE, home="/root", rules=opt.rules, mode=opt.mode)
        async with AsyncExitStack() as stack:
            servers = await self._open_servers(setup, opt.servers, (), None, stack)
            foreign = remove_denied(servers.tools, policy)
            loading = self._tool_loading(setup, foreign)
            authorizer = permission_engine(setup, policy, self._models)
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

    def _session_paths(self, setup: SetupRequest) -> SessionPaths | None:
        """The folders of the session; `None`, after a warning, if an agent cannot work there.

        Raises:
            InvalidInput: it cannot, and the agent's own tools would run without rules.
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

    async def _open_servers(
        self,
        setup: SetupRequest,
        servers: tuple[McpServer, ...],
        own: tuple[McpServer, ...],
        sandbox: SandboxSession | None,
        stack: AsyncExitStack,
    ) -> ServerParts:
        if not servers and not own:
            return ServerParts()
        opener = mcp_servers.ThreadServers(
            self._settings, self._networks, self._models, self._sandboxes
        )
        warn = partial(self._warn, setup.options)
        return await opener.open(setup, servers, own, sandbox, stack, warn)

    def _tool_loading(self, setup: SetupRequest, tools: Mapping[str, Tool]) -> ToolLoading:
        facts = self._models.facts(setup.agent.model)
        loaded = setup.thread.session_state.loaded_tools
        home = Path(self._settings.home)
        return plan_tool_loading(tools, loaded, facts, lambda: vector_settings.open_encode(home))

    async def _file_tools(
        self, setup: SetupRequest, thread_workspace: ThreadWorkspace
    ) -> list[Tool]:
        """The tools of the thread's last run, which remember the files that it has read; otherwise
        new ones that take this from the log."""
        session_id, thread_id = setup.writer.session_id, setup.thread.id
        key = f"{session_id}/{thread_id}"
        if (tools := self._files.get(key)) is None:
            earlier = await file_read_times(setup.log, session_id, thread_id)
            tools = workspace_tools(thread_workspace.folder_workspace, earlier)
        self._files.put(key, tools)
        return tools

    def _warn(self, options: RunOptions, warning: str) -> None:
        """Print each warning once, however many runs a session has."""
        if self._warned.get(warning) is None:
            self._warned.put(warning, warning)
            options.warn(warning)


def _tool_changes(servers: ServerParts, policy: Policy, loading: ToolLoading) -> FindToolChanges:
    return servers.tool_changes(partial(remove_denied, policy=policy), loading.make_search)
