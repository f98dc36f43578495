"""The last step of a thread's set-up: its toolbox."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Generic

import msgspec

from mainspring.core.errors import InvalidInput
from mainspring.core.events import KnownPayload, SandboxOpened
from mainspring.core.hook import HookEventName
from mainspring.core.ports import SandboxInfo
from mainspring.core.tool import Tool
from mainspring.core.workspace_aliases import WORKSPACE_ALIASES
from mainspring.harness.authorizer import Authorizer
from mainspring.harness.permissions.engine import PermissionEngine
from mainspring.harness.permissions.policy import Policy, remove_denied
from mainspring.harness.permissions.tool_names import ALIASES
from mainspring.harness.toolbox import Toolbox
from mainspring.log.task_groups import awaited_tasks
from mainspring.runtime.mcp_server import McpServer, ServerParts
from mainspring.runtime.session.session_paths import (
    SessionPaths,
    worktree_paths,
)
from mainspring.runtime.session_context import Models, SetupRequest, toolbox_without_tools
from mainspring.runtime.settings.policy_loader import LoadedPolicy
from mainspring.runtime.thread_setup.ports import (
    Environment,
    HookPorts,
    OpenedSandbox,
    ThreadPorts,
)
from mainspring.runtime.thread_setup.sandbox_plan import (
    ThreadWorkspace,
    ThreadWorkspaces,
    sandbox_preparation,
)
from mainspring.runtime.thread_setup.session_policy import (
    RunWarnings,
    SessionPolicies,
    SessionRuntime,
    permission_engine,
)
from mainspring.runtime.thread_setup.thread_tools import (
    ThreadTools,
    add_path_instructions,
    tool_changes,
)

if TYPE_CHECKING:
    from mainspring.runtime.saved_environments import SavedEnvironment

_CLIENT_WORKSPACE = "/workspace"
"""The assumed folder of a client that runs tools itself; it is not accessed here."""


class ToolboxBuilder(Generic[Environment, OpenedSandbox]):
    """A `ToolboxFactory`. The toolbox of an agent without built-in tools has only the given
    authorizer."""

    def __init__(
        self,
        ports: ThreadPorts[Environment, OpenedSandbox],
        models: Models,
        authorizer: Authorizer,
        loaded: LoadedPolicy | None = None,
    ) -> None:
        """`loaded`: see `SessionPolicies`."""
        self._ports = ports
        self._models = models
        self._authorizer = authorizer
        self._warn = RunWarnings()
        self._policies = SessionPolicies(ports, self._warn, loaded)
        self._workspaces = ThreadWorkspaces(ports, self._warn)
        self._tools = ThreadTools(ports)

    @asynccontextmanager
    async def __call__(self, setup: SetupRequest) -> AsyncGenerator[Toolbox, None]:
        paths = self._session_paths(setup) if setup.agent.needs_workspace else None
        if paths is None:
            without_tools = toolbox_without_tools(self._authorizer)
            open_toolbox = self._toolbox_of_client if setup.options.is_served else without_tools
            async with open_toolbox(setup) as toolbox:
                yield toolbox
            return
        paths = await self._workspaces.facts.with_repositories(paths)
        session = await self._policies.open(setup, paths)
        async with self._workspaces.open(setup, session, paths) as workspace:
            event = sandbox_opened(setup, paths.workspace, workspace.sandbox_info)
            facts = (*session.facts, *event)
            async with self._toolbox(setup, session, workspace, facts) as toolbox:
                yield toolbox
            if workspace.sandbox is not None:
                await workspace.sandbox.forget_all()

    @asynccontextmanager
    async def _toolbox(
        self,
        setup: SetupRequest,
        session: SessionRuntime[Environment],
        workspace: ThreadWorkspace[OpenedSandbox],
        facts: tuple[KnownPayload, ...] = (),
    ) -> AsyncGenerator[Toolbox, None]:
        """The toolbox of one thread."""
        sandbox, policy, folder = workspace.sandbox, session.policy, workspace.paths.workspace
        side_events = list[KnownPayload]() if sandbox is None else sandbox.network_facts
        authorizer = permission_engine(
            setup,
            policy,
            self._models,
            sandbox=workspace.sandbox_info,
            aliases=workspace.paths.aliases,
        )
        authorizer.on_compaction = partial(workspace.path_instructions.forget, setup.thread.id)
        hook_tools = dict[str, Tool]()
        async with AsyncExitStack() as stack:
            hook_events = await self._attach_hooks(
                stack,
                setup,
                session,
                authorizer,
                HookPorts(
                    preferences=session.preferences,
                    tools=hook_tools,
                    side_events=side_events,
                    folder=workspace.paths.transcripts,
                    warn=partial(self._warn, setup.options),
                ),
            )
            tools = await self._tools.of_workspace(setup, session, workspace, side_events.append)
            hook_tools.update(tools)
            tools = add_path_instructions(tools, workspace)
            worktrees = None
            if setup.workspace is None:  # a thread in a worktree cannot have worktrees
                place = workspace.paths.worktrees(setup.writer.session_id)
                worktrees = self._ports.worktrees(folder, place)
            memory = self._tools.memory(setup, folder, stack)
            tools |= self._tools.of_memory(setup, policy, folder, memory)
            if memory is not None:
                if setup.agent.learning.by == "model":
                    memory.background = await stack.enter_async_context(awaited_tasks())
                facts += tuple(await memory.wake_up() if setup.thread.messages == 0 else ())
            own_servers = session.subagent_servers.get(setup.subagent or "", ())
            servers = await self._open_servers(setup, session.servers, own_servers, sandbox, stack)
            authorizer.add_rules(servers.rules)
            foreign = remove_denied(servers.tools, policy)
            note = workspace_note(
                setup,
                folder,
                has_sandbox=sandbox is not None,
                has_network=bool(session.environment.networking),
                saved=session.saved_environment,
            )
            agent_tools = {tool.spec.name: tool for tool in setup.agent.tools}
            allowed = remove_denied(agent_tools, policy)
            loading = self._ports.tool_loading(setup, {**allowed, **foreign})
            yield Toolbox(
                authorizer=authorizer,
                tools=[*tools.values(), *foreign.values(), *loading.search_tools],
                denied=frozenset(agent_tools.keys() - allowed.keys()),
                deferred=loading.deferred,
                client_tools=self._ports.client_tools if setup.options.is_attended else [],
                client_input_checks=self._ports.client_input_checks,
                aliases=ALIASES,
                sandbox_info=workspace.sandbox_info,
                snapshots=workspace.tree.open_snapshots(),
                environment="\n".join((note, *servers.notes)),
                pending_facts=side_events,
                facts=(*facts, *servers.facts, *loading.facts),
                recall=memory and self._ports.recall(setup, memory),
                before_compact=memory and memory.before_compact,
                for_thread=partial(self._for_thread, session, workspace),
                on_call_announced=sandbox_preparation(sandbox),
                hook_events=hook_events,
                worktrees=worktrees,
                changes=tool_changes(servers, policy, loading),
                message_context=servers.message_context,
            )

    @asynccontextmanager
    async def _for_thread(
        self,
        session: SessionRuntime[Environment],
        workspace: ThreadWorkspace[OpenedSandbox],
        setup: SetupRequest,
    ) -> AsyncGenerator[Toolbox, None]:
        """The toolbox of a subagent's thread: in the session's folder with the same environment, or
        in a worktree."""
        if setup.workspace is None:
            async with AsyncExitStack() as stack:
                if workspace.sandbox is not None:
                    sandbox = workspace.sandbox.for_thread(setup.thread.id)
                    workspace = msgspec.structs.replace(
                        workspace, sandbox=await stack.enter_async_context(sandbox)
                    )
                yield await stack.enter_async_context(self._toolbox(setup, session, workspace))
            return
        repository = await self._ports.shared_repository(workspace.paths.workspace)
        paths = worktree_paths(workspace.paths, setup.workspace, setup.thread.id, repository)
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
            loading = self._ports.tool_loading(setup, foreign)
            authorizer = permission_engine(setup, policy, self._models)
            authorizer.add_rules(servers.rules)
            yield Toolbox(
                authorizer=authorizer,
                tools=[*foreign.values(), *loading.search_tools],
                deferred=loading.deferred,
                environment="\n".join(servers.notes),
                facts=(*servers.facts, *loading.facts),
                for_thread=self._toolbox_of_client if opt.servers else None,
                changes=tool_changes(servers, policy, loading),
                message_context=servers.message_context,
            )

    def _session_paths(self, setup: SetupRequest) -> SessionPaths | None:
        """The folders of the session; `None`, after a warning, if an agent cannot work there.

        Raises:
            InvalidInput: it cannot, and the agent's own tools would run without rules.
        """
        options = setup.options
        folder = setup.thread.session_state.workspace or self._ports.folder
        workspace = options.workspace or Path(folder)
        try:
            paths = self._ports.session_paths(workspace, setup.writer.session_id)
            return replace(paths, aliases=WORKSPACE_ALIASES) if options.is_served else paths
        except InvalidInput as error:
            if setup.agent.tools:
                raise
            self._warn(options, "; ".join([str(error), *error.fix]))
            return None

    async def _attach_hooks(
        self,
        stack: AsyncExitStack,
        setup: SetupRequest,
        session: SessionRuntime[Environment],
        authorizer: PermissionEngine,
        hook_ports: HookPorts,
    ) -> frozenset[HookEventName]:
        if not session.pinned_policy.hooks:
            return frozenset()
        return await self._ports.attach_hooks(
            stack, session.pinned_policy, setup, authorizer, hook_ports
        )

    async def _open_servers(
        self,
        setup: SetupRequest,
        servers: tuple[McpServer, ...],
        own: tuple[McpServer, ...],
        sandbox: OpenedSandbox | None,
        stack: AsyncExitStack,
    ) -> ServerParts:
        if not servers and not own:
            return ServerParts()
        warn = partial(self._warn, setup.options)
        return await self._ports.open_servers(setup, servers, own, sandbox, stack, warn)


def sandbox_opened(
    setup: SetupRequest, workspace: Path, sandbox: SandboxInfo | None
) -> tuple[KnownPayload, ...]:
    """The event for the log, if the last run had another sandbox."""
    if sandbox is None:
        return ()
    fact = SandboxOpened(
        backend=sandbox.backend,
        level=sandbox.isolation_level,
        flags_hash=sandbox.flags_hash,
        workspace=str(workspace),
    )
    return () if setup.thread.session_state.sandbox == fact else (fact,)


def workspace_note(
    setup: SetupRequest,
    workspace: Path,
    *,
    has_sandbox: bool,
    has_network: bool,
    saved: SavedEnvironment | None = None,
) -> str:
    """The note for the model about its environment."""
    lines = [f"Your workspace is {workspace}; you cannot access anything outside it."]
    if not has_sandbox:
        lines.append("No commands can be run here: there is no sandbox.")
    elif not has_network:
        lines.append("Commands run in a sandbox without any network.")
    else:
        lines.append("Commands run in a sandbox; its only way out is a proxy with a list of hosts.")
    if saved is not None:
        lines.append(saved.note)
    return "\n".join((*lines, *setup.options.notes))
