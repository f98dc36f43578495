"""Build a session's toolbox: rules and hooks, workspace and sandbox, built-in tools."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from anyio import to_thread

from mainspring.capabilities.tools.ask_user import ASK_USER, EXIT_PLAN
from mainspring.capabilities.tools.deferred_tools import deferred_tools, tool_search_tools
from mainspring.capabilities.workspace.snapshots import WorkspaceSnapshots
from mainspring.config import Settings
from mainspring.core import clock
from mainspring.core.envelope import KnownPayload
from mainspring.core.errors import InvalidInput, SandboxFailed
from mainspring.core.lazy_module import LazyModule
from mainspring.core.lru_cache import LruCache
from mainspring.core.tool import Tool
from mainspring.harness.authorizer import Authorizer
from mainspring.harness.file_read_history import file_read_times
from mainspring.harness.permissions.command_location import read_command_location
from mainspring.harness.permissions.engine import PermissionEngine
from mainspring.harness.permissions.policy import Policy, remove_denied
from mainspring.harness.permissions.tool_names import ALIASES
from mainspring.runtime.agent import skill_folders
from mainspring.runtime.agent_folder.folder_instructions import PathInstructions
from mainspring.runtime.agent_folder.skill_rules import reading_rules
from mainspring.runtime.session.toolbox import (
    SetupRequest,
    Toolbox,
    ToolboxFactory,
    Worktrees,
    toolbox_without_tools,
)
from mainspring.runtime.skills.path_skills import skills_for_path
from mainspring.wiring.builtin_tools import (
    built_in_tools,
    select_tools,
    session_tree,
    web_tools,
    workspace_tools,
)
from mainspring.wiring.git_config import with_repositories
from mainspring.wiring.model_question import make_ask_model
from mainspring.wiring.model_registry import ModelRegistry
from mainspring.wiring.nested_instructions import add_nested_instructions, load_nested_instructions
from mainspring.wiring.pinned_policy import pin_policy, with_rules
from mainspring.wiring.run_options import RunOptions, RunOptionsFor
from mainspring.wiring.sandbox_environment import (
    WORKSPACE_ALIASES,
    SessionPaths,
    add_protected_paths,
    hide_denied_paths,
    read_environment,
    session_paths,
    worktree_paths,
)
from mainspring.wiring.sandbox_pool import SandboxPool, SandboxSession
from mainspring.wiring.thread_workspace import (
    SessionShared,
    ThreadWorkspace,
    needs_sandbox,
    sandbox_key,
    sandbox_opened,
    workspace_note,
)

if TYPE_CHECKING:
    from mainspring.runtime.export_sessions.transcript_files import TranscriptFiles
    from mainspring.wiring import session_hooks, worktrees
else:
    worktrees = LazyModule("mainspring.wiring.worktrees")
    session_hooks = LazyModule("mainspring.wiring.session_hooks")  # most sessions have none


_MAX_REMEMBERED = 1000
"""Sessions, and warnings, that are remembered from one run to the next."""
_CLIENT_WORKSPACE = "/workspace"
"""What stands for the folder of a client with hands of its own; nobody looks into it here."""


class ToolboxBuilder:
    """An `Outfit`. Agents without built-in tools get the given gates and nothing else."""

    def __init__(
        self,
        settings: Settings,
        models: ModelRegistry,
        sandboxes: SandboxPool,
        run_options_for: RunOptionsFor,
        authorizer: Authorizer,
    ) -> None:
        self._settings = settings
        self._models = models
        self._sandboxes = sandboxes
        self._run_options_for = run_options_for
        self._bare = toolbox_without_tools(authorizer)
        self._files: LruCache[str, list[Tool]] = LruCache(_MAX_REMEMBERED)
        self._known_around: LruCache[str, PathInstructions] = LruCache(_MAX_REMEMBERED)
        self._looked: LruCache[tuple[SessionPaths, Policy], SessionPaths] = LruCache(
            _MAX_REMEMBERED
        )
        self._surveyed: LruCache[SessionPaths, SessionPaths] = LruCache(_MAX_REMEMBERED)
        self._warned: LruCache[str, str] = LruCache(_MAX_REMEMBERED)
        self._transcripts: LruCache[str, TranscriptFiles] = LruCache(_MAX_REMEMBERED)

    @asynccontextmanager
    async def __call__(self, setup: SetupRequest) -> AsyncGenerator[Toolbox, None]:
        options = self._run_options_for(setup)
        places = self._places(setup, options) if needs_sandbox(setup.agent) else None
        if places is None:
            async with self._handless(setup, options)(setup) as toolbox:
                yield toolbox
            return
        places = await self._with_repositories(places)
        rules = await pin_policy(self._settings, setup, places, options)
        preferences = rules.loaded.preferences
        environment = read_environment(
            {**options.sandbox, **rules.loaded.sandbox}, preferences.sandbox_env
        )
        for warning in (*rules.warnings, *preferences.warnings):
            self._warn(options, warning)
        shared = SessionShared(
            options=options,
            pinned_policy=with_rules(rules.pinned_policy, reading_rules(setup.agent)),
            sandbox_environment=environment,
            preferences=preferences,
        )
        async with self._thread_workspace(setup, shared, places) as thread_workspace:
            opened = sandbox_opened(setup, places, thread_workspace.sandbox)
            async with self._toolbox(
                setup, shared, thread_workspace, facts=(*rules.facts, *opened)
            ) as toolbox:
                yield toolbox
            if thread_workspace.sandbox is not None:
                await thread_workspace.sandbox.forget_all()

    @asynccontextmanager
    async def _thread_workspace(
        self, setup: SetupRequest, session_shared: SessionShared, paths: SessionPaths
    ) -> AsyncGenerator[ThreadWorkspace, None]:
        """Hands and files in one folder, for as long as somebody works there."""
        key = sandbox_key(setup)
        skills = [
            skill_folder
            for skill_folder in skill_folders(setup.agent)
            if paths.needs_mount(skill_folder)
        ]
        paths = replace(paths, beside=(*paths.beside, *skills))
        paths = await self._without_denied(paths, session_shared.policy)
        paths = add_protected_paths(paths, session_shared.policy)
        sandbox_session = await self._sandbox_session(key, paths, session_shared)
        try:
            yield ThreadWorkspace(
                paths=paths,
                sandbox=sandbox_session,
                folder_workspace=session_tree(paths, session_shared.policy, skills),
                path_instructions=await self._around(setup, paths, session_shared),
            )
        finally:
            if sandbox_session is not None:
                await self._sandboxes.release(key)
            if setup.workspace is not None:  # the folder may be gone when it works there again
                await self._sandboxes.discard(key)

    @asynccontextmanager
    async def _toolbox(
        self,
        setup: SetupRequest,
        session_shared: SessionShared,
        thread_workspace: ThreadWorkspace,
        facts: tuple[KnownPayload, ...] = (),
    ) -> AsyncGenerator[Toolbox, None]:
        """What one thread works with."""
        sandbox_session, policy, options = (
            thread_workspace.sandbox,
            session_shared.policy,
            session_shared.options,
        )
        side_events: list[KnownPayload] = (
            [] if sandbox_session is None else sandbox_session.network_facts
        )
        authorizer = self._gatekeeper(setup, policy, thread_workspace, options)
        authorizer.on_compaction = partial(
            thread_workspace.path_instructions.forget, setup.thread.id
        )
        async with AsyncExitStack() as stack:
            if session_shared.pinned_policy.hooks:
                ports = session_hooks.SessionHookPorts(
                    settings=self._settings,
                    preferences=session_shared.preferences,
                    ask_model=make_ask_model(self._models, setup.agent.model),
                    side_events=side_events,
                    transcripts=self._transcripts,
                    folder=thread_workspace.paths.transcripts,
                    warn=partial(self._warn, options),
                )
                await session_hooks.attach_hooks(
                    stack, session_shared.pinned_policy, setup, authorizer, ports
                )
            tools = {
                **built_in_tools(
                    setup,
                    thread_workspace.folder_workspace,
                    await self._on_files(setup, thread_workspace),
                    sandbox_session,
                    self._sandboxes.workers,
                ),
                **web_tools(
                    setup, session_shared.sandbox_environment, options.web_fetch, side_events.append
                ),
            }
            tools = select_tools(remove_denied(tools, policy), setup.agent.built_ins)
            tools = add_nested_instructions(tools, thread_workspace.path_instructions)
            brought = {tool.spec.name: tool for tool in setup.agent.tools}
            offered = remove_denied(brought, policy)
            deferred = deferred_tools(offered)
            yield Toolbox(
                authorizer=authorizer,
                tools=[*tools.values(), *tool_search_tools(deferred)],
                denied=frozenset(brought.keys() - offered.keys()),
                deferred=frozenset(deferred),
                client_tools=[ASK_USER, EXIT_PLAN] if options.is_attended else [],
                aliases=ALIASES,
                sandbox_info=None if sandbox_session is None else sandbox_session.box,
                snapshots=WorkspaceSnapshots(
                    thread_workspace.folder_workspace, thread_workspace.paths.snapshots
                ),
                environment=workspace_note(thread_workspace.paths, session_shared, sandbox_session),
                pending_facts=side_events,
                facts=facts,
                for_thread=partial(self._for_thread, session_shared, thread_workspace),
                worktrees=self._worktrees(setup, thread_workspace),
            )

    @asynccontextmanager
    async def _for_thread(
        self,
        session_shared: SessionShared,
        thread_workspace: ThreadWorkspace,
        setup: SetupRequest,
    ) -> AsyncGenerator[Toolbox, None]:
        """In the same folder with the same hands; or in one of its own."""
        if setup.workspace is None:
            async with AsyncExitStack() as stack:
                if thread_workspace.sandbox is not None:
                    sandbox_session = thread_workspace.sandbox.for_thread(setup.thread.id)
                    thread_workspace = replace(
                        thread_workspace, sandbox=await stack.enter_async_context(sandbox_session)
                    )
                yield await stack.enter_async_context(
                    self._toolbox(setup, session_shared, thread_workspace)
                )
            return
        repository = await worktrees.repository_of(thread_workspace.paths.workspace)
        places = worktree_paths(
            thread_workspace.paths, setup.workspace, setup.thread.id, repository
        )
        moved = session_shared.moved(setup.workspace)
        async with (
            self._thread_workspace(setup, moved, places) as elsewhere,
            self._toolbox(setup, moved, elsewhere) as toolbox,
        ):
            yield toolbox

    def _handless(self, setup: SetupRequest, options: RunOptions) -> ToolboxFactory:
        """A client of the service may have hands of its own: the rules hold for those as well."""
        if not options.is_served:
            return self._bare
        policy = Policy(
            workspace=_CLIENT_WORKSPACE, home="/root", rules=options.rules, mode=options.mode
        )
        return toolbox_without_tools(self._gatekeeper(setup, policy, None, options))

    def _places(self, setup: SetupRequest, options: RunOptions) -> SessionPaths | None:
        """Where it works; `None`, with a warning, if that is no place for an agent.

        Raises:
            InvalidInput: it is none, and the agent has tools of its own: no rules would hold.
        """
        known = setup.thread.session_state.workspace or self._settings.folder
        workspace = options.workspace or Path(known)
        try:
            places = session_paths(self._settings, workspace, setup.writer.session_id)
            return replace(places, aliases=WORKSPACE_ALIASES) if options.is_served else places
        except InvalidInput as error:
            if setup.agent.tools:
                raise  # they would run without any rules
            self._warn(options, "; ".join([str(error), *error.fix]))
            return None

    async def _with_repositories(self, paths: SessionPaths) -> SessionPaths:
        """Looked up once for each session: it goes through the whole workspace."""
        if (known := self._surveyed.get(paths)) is not None:
            return known
        surveyed = await with_repositories(paths, Path(self._settings.home))
        self._surveyed.put(paths, surveyed)
        return surveyed

    async def _without_denied(self, paths: SessionPaths, policy: Policy) -> SessionPaths:
        """Looked up once for each session and its rules: it goes through the whole workspace."""
        if (known := self._looked.get((paths, policy))) is not None:
            return known
        found = await to_thread.run_sync(hide_denied_paths, paths, policy)
        self._looked.put((paths, policy), found)
        return found

    async def _sandbox_session(
        self, key: str, paths: SessionPaths, session_shared: SessionShared
    ) -> SandboxSession | None:
        try:
            options = session_shared.options
            return await self._sandboxes.open_session(
                key, paths, session_shared.sandbox_environment, options.credentials
            )
        except SandboxFailed as error:
            self._warn(session_shared.options, f"no commands can be run here: {error}")
            return None

    def _worktrees(
        self, setup: SetupRequest, thread_workspace: ThreadWorkspace
    ) -> Worktrees | None:
        """Of the session's own workspace; who works apart from it has none to give."""
        if setup.workspace is not None:
            return None
        places = thread_workspace.paths
        place = worktrees.worktrees_folder(places, setup.writer.session_id)
        return worktrees.GitWorktrees(places.workspace, place)

    async def _around(
        self, setup: SetupRequest, paths: SessionPaths, session_shared: SessionShared
    ) -> PathInstructions:
        """Those of its last run, which know what was shown."""
        key = sandbox_key(setup)
        if (known := self._known_around.get(key)) is not None:
            return known
        found = await load_nested_instructions(
            self._settings,
            paths,
            session_shared.policy,
            is_served=session_shared.options.is_served,
            also=[skills_for_path(setup.agent.skills)],
        )
        self._known_around.put(key, found)
        return found

    async def _on_files(self, setup: SetupRequest, thread_workspace: ThreadWorkspace) -> list[Tool]:
        """Those of its last run, which know what was read; else the log knows it."""
        session_id, thread_id = setup.writer.session_id, setup.thread.id
        key = f"{session_id}/{thread_id}"
        if (tools := self._files.get(key)) is None:
            earlier = await file_read_times(setup.log, session_id, thread_id)
            tools = workspace_tools(thread_workspace.folder_workspace, earlier)
        self._files.put(key, tools)
        return tools

    def _warn(self, options: RunOptions, warning: str) -> None:
        """Once each, however many runs a session has."""
        if self._warned.get(warning) is None:
            self._warned.put(warning, warning)
            options.warn(warning)

    def _gatekeeper(
        self,
        setup: SetupRequest,
        policy: Policy,
        thread_workspace: ThreadWorkspace | None,
        options: RunOptions,
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
            is_headless=options.is_headless,
        )
