"""Build a session's toolbox: rules and hooks, workspace and sandbox, built-in tools."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec
from anyio import to_thread

from mainspring.capabilities.tools.ask_user import ASK_USER, EXIT_PLAN
from mainspring.capabilities.tools.deferred_tools import deferred_tools, tool_search_tools
from mainspring.capabilities.workspace.folder_workspace import FolderWorkspace
from mainspring.capabilities.workspace.snapshots import WorkspaceSnapshots
from mainspring.config import Settings
from mainspring.core import clock
from mainspring.core.envelope import KnownPayload
from mainspring.core.errors import InvalidInput, SandboxFailed
from mainspring.core.facts import SandboxOpened
from mainspring.core.lazy_module import LazyModule
from mainspring.core.lru_cache import LruCache
from mainspring.core.tool import Tool
from mainspring.harness.authorizer import Authorizer
from mainspring.harness.file_read_history import file_read_times
from mainspring.harness.permissions.command_location import read_command_location
from mainspring.harness.permissions.engine import PermissionEngine
from mainspring.harness.permissions.policy import Policy, relocate_policy, remove_denied
from mainspring.harness.permissions.tool_names import ALIASES
from mainspring.runtime.agent import Agent
from mainspring.runtime.agent_folder.folder_instructions import PathInstructions
from mainspring.runtime.session.toolbox import (
    SetupRequest,
    Toolbox,
    ToolboxFactory,
    Worktrees,
    toolbox_without_tools,
)
from mainspring.runtime.settings.settings_file import Preferences
from mainspring.runtime.skills.catalogue import skills_for_path
from mainspring.runtime.skills.skill_tool import reading_rules, skill_folders
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
from mainspring.wiring.pinned_policy import PinnedPolicy, pin_policy, with_rules
from mainspring.wiring.run_options import RunOptions, RunOptionsFor
from mainspring.wiring.sandbox_environment import (
    WORKSPACE_ALIASES,
    SandboxEnvironment,
    SessionPaths,
    add_protected_paths,
    hide_denied_paths,
    read_environment,
    session_paths,
    thread_sandbox_id,
    worktree_paths,
)
from mainspring.wiring.sandbox_pool import SandboxPool, SandboxSession

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


@dataclass(frozen=True, slots=True, kw_only=True)
class _SessionShared:
    """What all threads of a session have in common."""

    options: RunOptions
    pinned_policy: PinnedPolicy
    environment: SandboxEnvironment
    preferences: Preferences

    @property
    def policy(self) -> Policy:
        return self.pinned_policy.policy

    def moved(self, workspace: Path) -> _SessionShared:
        """For work in a copy of the workspace: the same rules hold there."""
        policy = relocate_policy(self.policy, workspace.as_posix())
        return replace(self, adopted=msgspec.structs.replace(self.pinned_policy, policy=policy))


@dataclass(frozen=True, slots=True, kw_only=True)
class _ThreadWorkspace:
    """A folder to work in, and hands there."""

    places: SessionPaths
    hands: SandboxSession | None
    tree: FolderWorkspace
    surroundings: PathInstructions


class ToolboxBuilder:
    """An `Outfit`. Agents without built-in tools get the given gates and nothing else."""

    def __init__(
        self,
        settings: Settings,
        shelf: ModelRegistry,
        bench: SandboxPool,
        wishes: RunOptionsFor,
        gates: Authorizer,
    ) -> None:
        self._settings = settings
        self._shelf = shelf
        self._bench = bench
        self._wishes = wishes
        self._bare = toolbox_without_tools(gates)
        self._files: LruCache[str, list[Tool]] = LruCache(_MAX_REMEMBERED)
        self._known_around: LruCache[str, PathInstructions] = LruCache(_MAX_REMEMBERED)
        self._looked: LruCache[tuple[SessionPaths, Policy], SessionPaths] = LruCache(
            _MAX_REMEMBERED
        )
        self._surveyed: LruCache[SessionPaths, SessionPaths] = LruCache(_MAX_REMEMBERED)
        self._warned: LruCache[str, str] = LruCache(_MAX_REMEMBERED)
        self._transcripts: LruCache[str, TranscriptFiles] = LruCache(_MAX_REMEMBERED)

    @asynccontextmanager
    async def __call__(self, opening: SetupRequest) -> AsyncGenerator[Toolbox, None]:
        wish = self._wishes(opening)
        places = self._places(opening, wish) if _needs_sandbox(opening.agent) else None
        if places is None:
            async with self._handless(opening, wish)(opening) as kit:
                yield kit
            return
        places = await self._with_repositories(places)
        rules = await pin_policy(self._settings, opening, places, wish)
        preferences = rules.loaded.preferences
        environment = read_environment(
            {**wish.sandbox, **rules.loaded.sandbox}, preferences.sandbox_env
        )
        for warning in (*rules.warnings, *preferences.warnings):
            self._warn(wish, warning)
        shared = _SessionShared(
            options=wish,
            pinned_policy=with_rules(rules.pinned_policy, reading_rules(opening.agent)),
            environment=environment,
            preferences=preferences,
        )
        async with self._station(opening, shared, places) as station:
            opened = _sandbox_opened(opening, places, station.hands)
            async with self._kit(opening, shared, station, facts=(*rules.facts, *opened)) as kit:
                yield kit
            if station.hands is not None:
                await station.hands.forget_all()

    @asynccontextmanager
    async def _station(
        self, opening: SetupRequest, shared: _SessionShared, places: SessionPaths
    ) -> AsyncGenerator[_ThreadWorkspace, None]:
        """Hands and files in one folder, for as long as somebody works there."""
        key = _sandbox_key(opening)
        skills = [each for each in skill_folders(opening.agent) if places.needs_mount(each)]
        places = replace(places, beside=(*places.beside, *skills))
        places = await self._without_denied(places, shared.policy)
        places = add_protected_paths(places, shared.policy)
        hands = await self._hands(key, places, shared)
        try:
            yield _ThreadWorkspace(
                places=places,
                hands=hands,
                tree=session_tree(places, shared.policy, skills),
                surroundings=await self._around(opening, places, shared),
            )
        finally:
            if hands is not None:
                await self._bench.release(key)
            if opening.workspace is not None:  # the folder may be gone when it works there again
                await self._bench.discard(key)

    @asynccontextmanager
    async def _kit(
        self,
        opening: SetupRequest,
        shared: _SessionShared,
        station: _ThreadWorkspace,
        facts: tuple[KnownPayload, ...] = (),
    ) -> AsyncGenerator[Toolbox, None]:
        """What one thread works with."""
        hands, policy, wish = station.hands, shared.policy, shared.options
        overheard: list[KnownPayload] = [] if hands is None else hands.network_facts
        gates = self._gatekeeper(opening, policy, station, wish)
        gates.on_compaction = partial(station.surroundings.forget, opening.thread.id)
        async with AsyncExitStack() as stack:
            if shared.pinned_policy.hooks:
                ports = session_hooks.SessionHookPorts(
                    settings=self._settings,
                    preferences=shared.preferences,
                    ask=make_ask_model(self._shelf, opening.agent.model),
                    overheard=overheard,
                    transcripts=self._transcripts,
                    folder=station.places.transcripts,
                    warn=partial(self._warn, wish),
                )
                await session_hooks.attach_hooks(stack, shared.pinned_policy, opening, gates, ports)
            tools = {
                **built_in_tools(
                    opening,
                    station.tree,
                    await self._on_files(opening, station),
                    hands,
                    self._bench.workers,
                ),
                **web_tools(opening, shared.environment, wish.web_fetch, overheard.append),
            }
            tools = select_tools(remove_denied(tools, policy), opening.agent.built_ins)
            tools = add_nested_instructions(tools, station.surroundings)
            brought = {tool.spec.name: tool for tool in opening.agent.tools}
            offered = remove_denied(brought, policy)
            deferred = deferred_tools(offered)
            yield Toolbox(
                authorizer=gates,
                tools=[*tools.values(), *tool_search_tools(deferred)],
                denied=frozenset(brought.keys() - offered.keys()),
                deferred=frozenset(deferred),
                client_tools=[ASK_USER, EXIT_PLAN] if wish.is_attended else [],
                aliases=ALIASES,
                sandbox_info=None if hands is None else hands.box,
                snapshots=WorkspaceSnapshots(station.tree, station.places.snapshots),
                environment=_workspace_note(station.places, shared, hands),
                pending_facts=overheard,
                facts=facts,
                for_thread=partial(self._for_thread, shared, station),
                worktrees=self._worktrees(opening, station),
            )

    @asynccontextmanager
    async def _for_thread(
        self, shared: _SessionShared, station: _ThreadWorkspace, opening: SetupRequest
    ) -> AsyncGenerator[Toolbox, None]:
        """In the same folder with the same hands; or in one of its own."""
        if opening.workspace is None:
            async with AsyncExitStack() as stack:
                if station.hands is not None:
                    hands = station.hands.for_thread(opening.thread.id)
                    station = replace(station, hands=await stack.enter_async_context(hands))
                yield await stack.enter_async_context(self._kit(opening, shared, station))
            return
        repository = await worktrees.repository_of(station.places.workspace)
        places = worktree_paths(station.places, opening.workspace, opening.thread.id, repository)
        moved = shared.moved(opening.workspace)
        async with (
            self._station(opening, moved, places) as elsewhere,
            self._kit(opening, moved, elsewhere) as kit,
        ):
            yield kit

    def _handless(self, opening: SetupRequest, wish: RunOptions) -> ToolboxFactory:
        """A client of the service may have hands of its own: the rules hold for those as well."""
        if not wish.is_served:
            return self._bare
        policy = Policy(workspace=_CLIENT_WORKSPACE, home="/root", rules=wish.rules, mode=wish.mode)
        return toolbox_without_tools(self._gatekeeper(opening, policy, None, wish))

    def _places(self, opening: SetupRequest, wish: RunOptions) -> SessionPaths | None:
        """Where it works; `None`, with a warning, if that is no place for an agent.

        Raises:
            InvalidInput: it is none, and the agent has tools of its own: no rules would hold.
        """
        known = opening.thread.session_state.workspace or self._settings.folder
        workspace = wish.workspace or Path(known)
        try:
            places = session_paths(self._settings, workspace, opening.writer.session_id)
            return replace(places, aliases=WORKSPACE_ALIASES) if wish.is_served else places
        except InvalidInput as error:
            if opening.agent.tools:
                raise  # they would run without any rules
            self._warn(wish, "; ".join([str(error), *error.fix]))
            return None

    async def _with_repositories(self, places: SessionPaths) -> SessionPaths:
        """Looked up once for each session: it goes through the whole workspace."""
        if (known := self._surveyed.get(places)) is not None:
            return known
        surveyed = await with_repositories(places, Path(self._settings.home))
        self._surveyed.put(places, surveyed)
        return surveyed

    async def _without_denied(self, places: SessionPaths, policy: Policy) -> SessionPaths:
        """Looked up once for each session and its rules: it goes through the whole workspace."""
        if (known := self._looked.get((places, policy))) is not None:
            return known
        found = await to_thread.run_sync(hide_denied_paths, places, policy)
        self._looked.put((places, policy), found)
        return found

    async def _hands(
        self, key: str, places: SessionPaths, shared: _SessionShared
    ) -> SandboxSession | None:
        try:
            wish = shared.options
            return await self._bench.open_session(key, places, shared.environment, wish.credentials)
        except SandboxFailed as error:
            self._warn(shared.options, f"no commands can be run here: {error}")
            return None

    def _worktrees(self, opening: SetupRequest, station: _ThreadWorkspace) -> Worktrees | None:
        """Of the session's own workspace; who works apart from it has none to give."""
        if opening.workspace is not None:
            return None
        places = station.places
        place = worktrees.worktrees_folder(places, opening.writer.session_id)
        return worktrees.GitWorktrees(places.workspace, place)

    async def _around(
        self, opening: SetupRequest, places: SessionPaths, shared: _SessionShared
    ) -> PathInstructions:
        """Those of its last run, which know what was shown."""
        key = _sandbox_key(opening)
        if (known := self._known_around.get(key)) is not None:
            return known
        found = await load_nested_instructions(
            self._settings,
            places,
            shared.policy,
            is_served=shared.options.is_served,
            also=[skills_for_path(opening.agent.skills)],
        )
        self._known_around.put(key, found)
        return found

    async def _on_files(self, opening: SetupRequest, station: _ThreadWorkspace) -> list[Tool]:
        """Those of its last run, which know what was read; else the log knows it."""
        session_id, thread_id = opening.writer.session_id, opening.thread.id
        key = f"{session_id}/{thread_id}"
        if (tools := self._files.get(key)) is None:
            earlier = await file_read_times(opening.log, session_id, thread_id)
            tools = workspace_tools(station.tree, earlier)
        self._files.put(key, tools)
        return tools

    def _warn(self, wish: RunOptions, warning: str) -> None:
        """Once each, however many runs a session has."""
        if self._warned.get(warning) is None:
            self._warned.put(warning, warning)
            wish.warn(warning)

    def _gatekeeper(
        self,
        opening: SetupRequest,
        policy: Policy,
        station: _ThreadWorkspace | None,
        wish: RunOptions,
    ) -> PermissionEngine:
        hands = None if station is None else station.hands
        place = read_command_location(policy, () if station is None else station.places.aliases)
        is_isolated = hands is not None and hands.box.level == "isolated"
        return PermissionEngine(
            thread=opening.thread,
            policy=policy,
            location=lambda: place,
            clock=clock.now,
            is_sandboxed=is_isolated,
            classifier=make_ask_model(self._shelf, opening.agent.model),
            ceiling=opening.mode,
            is_headless=wish.is_headless,
        )


def _needs_sandbox(agent: Agent) -> bool:
    """Whether it, or somebody whom it may call, works in a folder."""
    called = any(each.own is not None and each.own.built_ins for each in agent.subagents)
    return bool(agent.built_ins) or called


def _sandbox_opened(
    opening: SetupRequest, places: SessionPaths, hands: SandboxSession | None
) -> tuple[KnownPayload, ...]:
    """What the log has to know of the sandbox, whenever it is another than before."""
    if hands is None:
        return ()
    fact = SandboxOpened(
        backend=hands.box.backend,
        level=hands.box.level,
        flags_hash=hands.box.flags_hash,
        workspace=str(places.workspace),
    )
    return () if opening.thread.session_state.sandbox == fact else (fact,)


def _sandbox_key(opening: SetupRequest) -> str:
    """Whose hands they are: the session's, or a thread's that works apart."""
    session_id = opening.writer.session_id
    return (
        session_id
        if opening.workspace is None
        else thread_sandbox_id(session_id, opening.thread.id)
    )


def _workspace_note(
    places: SessionPaths, shared: _SessionShared, hands: SandboxSession | None
) -> str:
    """What the model is told about where it works."""
    lines = [f"Your workspace is {places.workspace}; you can touch nothing outside it."]
    if hands is None:
        lines.append("No commands can be run here: there is no sandbox.")
    elif shared.environment.rules is None:
        lines.append("Commands run in a sandbox without any network.")
    else:
        lines.append("Commands run in a sandbox; its only way out is a proxy with a list of hosts.")
    return "\n".join((*lines, *shared.options.notes))
