"""A session's kit, put together: rules and hooks, workspace and sandbox, built-in tools."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec
from anyio import to_thread

from mainspring.capabilities.tools.ask import ASK_USER, EXIT_PLAN
from mainspring.capabilities.workspace.snapshots import WorkspaceSnapshots
from mainspring.capabilities.workspace.tree import Tree
from mainspring.config import Settings
from mainspring.core import clock
from mainspring.core.envelope import KnownPayload
from mainspring.core.errors import InvalidInput, SandboxFailed
from mainspring.core.facts import SandboxOpened
from mainspring.core.latest import Latest
from mainspring.core.lazy import LazyModule
from mainspring.core.tool import Tool
from mainspring.harness.gatekeeper import Gatekeeper
from mainspring.harness.gates import Gates
from mainspring.harness.permissions.names import ALIASES
from mainspring.harness.permissions.policy import Policy, moved, remove_denied
from mainspring.runtime.agent import Agent
from mainspring.runtime.folder.surroundings import Surroundings
from mainspring.runtime.kit import Kit, Opening, Outfit, Worktrees, bare
from mainspring.runtime.skills.by_path import brought_by_path
from mainspring.runtime.skills.using import folders_of, reading_rules
from mainspring.wiring.adopted import Adopted, adopt, with_rules
from mainspring.wiring.built_ins import built_in_tools, wanted_of, web_tools, workspace_tools
from mainspring.wiring.command_place import place_of
from mainspring.wiring.deferring import deferred_of, loading
from mainspring.wiring.environment import (
    WORKSPACE_ALIASES,
    Environment,
    Places,
    apart,
    apart_from,
    places_of,
    read_environment,
    with_protected,
    without_denied,
)
from mainspring.wiring.files_read import files_read
from mainspring.wiring.git_config import with_repositories
from mainspring.wiring.hands import Bench, Hands
from mainspring.wiring.models import Shelf
from mainspring.wiring.preferences import Preferences
from mainspring.wiring.session_tree import session_tree
from mainspring.wiring.surrounding import look_around, with_surroundings
from mainspring.wiring.verdicts import asked_of
from mainspring.wiring.wish import Wish, Wishes

if TYPE_CHECKING:
    from mainspring.runtime.export_sessions.transcript_files import TranscriptFiles
    from mainspring.wiring import hooks, worktrees
else:
    worktrees = LazyModule("mainspring.wiring.worktrees")
    hooks = LazyModule("mainspring.wiring.hooks")  # most sessions have none


_MOST_KNOWN = 1000
"""Sessions, and warnings, that are remembered from one run to the next."""
_ELSEWHERE = "/workspace"
"""What stands for the folder of a client with hands of its own; nobody looks into it here."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _Shared:
    """What all threads of a session have in common."""

    wish: Wish
    adopted: Adopted
    environment: Environment
    preferences: Preferences

    @property
    def policy(self) -> Policy:
        return self.adopted.policy

    def moved(self, workspace: Path) -> _Shared:
        """For work in a copy of the workspace: the same rules hold there."""
        policy = moved(self.policy, workspace.as_posix())
        return replace(self, adopted=msgspec.structs.replace(self.adopted, policy=policy))


@dataclass(frozen=True, slots=True, kw_only=True)
class _Station:
    """A folder to work in, and hands there."""

    places: Places
    hands: Hands | None
    tree: Tree
    surroundings: Surroundings


class Outfitter:
    """An `Outfit`. Agents without built-in tools get the given gates and nothing else."""

    def __init__(
        self, settings: Settings, shelf: Shelf, bench: Bench, wishes: Wishes, gates: Gates
    ) -> None:
        self._settings = settings
        self._shelf = shelf
        self._bench = bench
        self._wishes = wishes
        self._bare = bare(gates)
        self._files: Latest[str, list[Tool]] = Latest(_MOST_KNOWN)
        self._known_around: Latest[str, Surroundings] = Latest(_MOST_KNOWN)
        self._looked: Latest[tuple[Places, Policy], Places] = Latest(_MOST_KNOWN)
        self._surveyed: Latest[Places, Places] = Latest(_MOST_KNOWN)
        self._warned: Latest[str, str] = Latest(_MOST_KNOWN)
        self._transcripts: Latest[str, TranscriptFiles] = Latest(_MOST_KNOWN)

    @asynccontextmanager
    async def __call__(self, opening: Opening) -> AsyncGenerator[Kit, None]:
        wish = self._wishes(opening)
        places = self._places(opening, wish) if _has_hands(opening.agent) else None
        if places is None:
            async with self._handless(opening, wish)(opening) as kit:
                yield kit
            return
        places = await self._with_repositories(places)
        rules = await adopt(self._settings, opening, places, wish)
        preferences = rules.loaded.preferences
        environment = read_environment(
            {**wish.sandbox, **rules.loaded.sandbox}, preferences.sandbox_env
        )
        for warning in (*rules.warnings, *preferences.warnings):
            self._warn(wish, warning)
        shared = _Shared(
            wish=wish,
            adopted=with_rules(rules.adopted, reading_rules(opening.agent)),
            environment=environment,
            preferences=preferences,
        )
        async with self._station(opening, shared, places) as station:
            opened = _opened(opening, places, station.hands)
            async with self._kit(opening, shared, station, facts=(*rules.facts, *opened)) as kit:
                yield kit
            if station.hands is not None:
                await station.hands.forget_all()

    @asynccontextmanager
    async def _station(
        self, opening: Opening, shared: _Shared, places: Places
    ) -> AsyncGenerator[_Station, None]:
        """Hands and files in one folder, for as long as somebody works there."""
        key = _key(opening)
        skills = [each for each in folders_of(opening.agent) if places.lacks(each)]
        places = replace(places, beside=(*places.beside, *skills))
        places = await self._without_denied(places, shared.policy)
        places = with_protected(places, shared.policy)
        hands = await self._hands(key, places, shared)
        try:
            yield _Station(
                places=places,
                hands=hands,
                tree=session_tree(places, shared.policy, skills),
                surroundings=await self._around(opening, places, shared),
            )
        finally:
            if hands is not None:
                await self._bench.rest(key)
            if opening.workspace is not None:  # the folder may be gone when it works there again
                await self._bench.dismiss(key)

    @asynccontextmanager
    async def _kit(
        self,
        opening: Opening,
        shared: _Shared,
        station: _Station,
        facts: tuple[KnownPayload, ...] = (),
    ) -> AsyncGenerator[Kit, None]:
        """What one thread works with."""
        hands, policy, wish = station.hands, shared.policy, shared.wish
        overheard: list[KnownPayload] = [] if hands is None else hands.overheard
        gates = self._gatekeeper(opening, policy, station, wish)
        gates.on_compaction = partial(station.surroundings.forget, opening.thread.id)
        async with AsyncExitStack() as stack:
            if shared.adopted.hooks:
                ports = hooks.HookPorts(
                    settings=self._settings,
                    preferences=shared.preferences,
                    ask=asked_of(self._shelf, opening.agent.model),
                    overheard=overheard,
                    transcripts=self._transcripts,
                    folder=station.places.transcripts,
                    warn=partial(self._warn, wish),
                )
                await hooks.enter_hooks(stack, shared.adopted, opening, gates, ports)
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
            tools = wanted_of(remove_denied(tools, policy), opening.agent.built_ins)
            tools = with_surroundings(tools, station.surroundings)
            brought = {tool.spec.name: tool for tool in opening.agent.tools}
            offered = remove_denied(brought, policy)
            deferred = deferred_of(offered)
            yield Kit(
                gates=gates,
                tools=[*tools.values(), *loading(deferred)],
                denied=frozenset(brought.keys() - offered.keys()),
                deferred=frozenset(deferred),
                client_tools=[ASK_USER, EXIT_PLAN] if wish.is_attended else [],
                aliases=ALIASES,
                box=None if hands is None else hands.box,
                snapshots=WorkspaceSnapshots(station.tree, station.places.snapshots),
                environment=_told(station.places, shared, hands),
                overheard=overheard,
                facts=facts,
                for_thread=partial(self._for_thread, shared, station),
                worktrees=self._worktrees(opening, station),
            )

    @asynccontextmanager
    async def _for_thread(
        self, shared: _Shared, station: _Station, opening: Opening
    ) -> AsyncGenerator[Kit, None]:
        """In the same folder with the same hands; or in one of its own."""
        if opening.workspace is None:
            async with AsyncExitStack() as stack:
                if station.hands is not None:
                    hands = station.hands.beside(opening.thread.id)
                    station = replace(station, hands=await stack.enter_async_context(hands))
                yield await stack.enter_async_context(self._kit(opening, shared, station))
            return
        repository = await worktrees.repository_of(station.places.workspace)
        places = apart_from(station.places, opening.workspace, opening.thread.id, repository)
        moved = shared.moved(opening.workspace)
        async with (
            self._station(opening, moved, places) as elsewhere,
            self._kit(opening, moved, elsewhere) as kit,
        ):
            yield kit

    def _handless(self, opening: Opening, wish: Wish) -> Outfit:
        """A client of the service may have hands of its own: the rules hold for those as well."""
        if not wish.is_served:
            return self._bare
        policy = Policy(workspace=_ELSEWHERE, home="/root", rules=wish.rules, mode=wish.mode)
        return bare(self._gatekeeper(opening, policy, None, wish))

    def _places(self, opening: Opening, wish: Wish) -> Places | None:
        """Where it works; `None`, with a warning, if that is no place for an agent.

        Raises:
            InvalidInput: it is none, and the agent has tools of its own: no rules would hold.
        """
        known = opening.thread.gear.workspace or self._settings.folder
        workspace = wish.workspace or Path(known)
        try:
            places = places_of(self._settings, workspace, opening.writer.session_id)
            return replace(places, aliases=WORKSPACE_ALIASES) if wish.is_served else places
        except InvalidInput as error:
            if opening.agent.tools:
                raise  # they would run without any rules
            self._warn(wish, "; ".join([str(error), *error.fix]))
            return None

    async def _with_repositories(self, places: Places) -> Places:
        """Looked up once for each session: it goes through the whole workspace."""
        if (known := self._surveyed.get(places)) is not None:
            return known
        surveyed = await with_repositories(places, Path(self._settings.home))
        self._surveyed.put(places, surveyed)
        return surveyed

    async def _without_denied(self, places: Places, policy: Policy) -> Places:
        """Looked up once for each session and its rules: it goes through the whole workspace."""
        if (known := self._looked.get((places, policy))) is not None:
            return known
        found = await to_thread.run_sync(without_denied, places, policy)
        self._looked.put((places, policy), found)
        return found

    async def _hands(self, key: str, places: Places, shared: _Shared) -> Hands | None:
        try:
            wish = shared.wish
            return await self._bench.hands(key, places, shared.environment, wish.credentials)
        except SandboxFailed as error:
            self._warn(shared.wish, f"no commands can be run here: {error}")
            return None

    def _worktrees(self, opening: Opening, station: _Station) -> Worktrees | None:
        """Of the session's own workspace; who works apart from it has none to give."""
        if opening.workspace is not None:
            return None
        places = station.places
        place = worktrees.place_of(places, opening.writer.session_id)
        return worktrees.GitWorktrees(places.workspace, place)

    async def _around(self, opening: Opening, places: Places, shared: _Shared) -> Surroundings:
        """Those of its last run, which know what was shown."""
        key = _key(opening)
        if (known := self._known_around.get(key)) is not None:
            return known
        found = await look_around(
            self._settings,
            places,
            shared.policy,
            is_served=shared.wish.is_served,
            also=[brought_by_path(opening.agent.skills)],
        )
        self._known_around.put(key, found)
        return found

    async def _on_files(self, opening: Opening, station: _Station) -> list[Tool]:
        """Those of its last run, which know what was read; else the log knows it."""
        session_id, thread_id = opening.writer.session_id, opening.thread.id
        key = f"{session_id}/{thread_id}"
        if (tools := self._files.get(key)) is None:
            earlier = await files_read(opening.log, session_id, thread_id)
            tools = workspace_tools(station.tree, earlier)
        self._files.put(key, tools)
        return tools

    def _warn(self, wish: Wish, warning: str) -> None:
        """Once each, however many runs a session has."""
        if self._warned.get(warning) is None:
            self._warned.put(warning, warning)
            wish.warn(warning)

    def _gatekeeper(
        self, opening: Opening, policy: Policy, station: _Station | None, wish: Wish
    ) -> Gatekeeper:
        hands = None if station is None else station.hands
        place = place_of(policy, () if station is None else station.places.aliases)
        is_isolated = hands is not None and hands.box.level == "isolated"
        return Gatekeeper(
            thread=opening.thread,
            policy=policy,
            place=lambda: place,
            clock=clock.now,
            is_sandboxed=is_isolated,
            classifier=asked_of(self._shelf, opening.agent.model),
            ceiling=opening.mode,
            is_headless=wish.is_headless,
        )


def _has_hands(agent: Agent) -> bool:
    """Whether it, or somebody whom it may call, works in a folder."""
    called = any(each.own is not None and each.own.built_ins for each in agent.subagents)
    return bool(agent.built_ins) or called


def _opened(opening: Opening, places: Places, hands: Hands | None) -> tuple[KnownPayload, ...]:
    """What the log has to know of the sandbox, whenever it is another than before."""
    if hands is None:
        return ()
    fact = SandboxOpened(
        backend=hands.box.backend,
        level=hands.box.level,
        flags_hash=hands.box.flags_hash,
        workspace=str(places.workspace),
    )
    return () if opening.thread.gear.sandbox == fact else (fact,)


def _key(opening: Opening) -> str:
    """Whose hands they are: the session's, or a thread's that works apart."""
    session_id = opening.writer.session_id
    return session_id if opening.workspace is None else apart(session_id, opening.thread.id)


def _told(places: Places, shared: _Shared, hands: Hands | None) -> str:
    """What the model is told about where it works."""
    lines = [f"Your workspace is {places.workspace}; you can touch nothing outside it."]
    if hands is None:
        lines.append("No commands can be run here: there is no sandbox.")
    elif shared.environment.rules is None:
        lines.append("Commands run in a sandbox without any network.")
    else:
        lines.append("Commands run in a sandbox; its only way out is a proxy with a list of hosts.")
    return "\n".join((*lines, *shared.wish.notes))
