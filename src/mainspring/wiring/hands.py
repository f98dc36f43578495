"""The hands of the sessions of one process: sandboxes and their ways out, kept between runs."""

from __future__ import annotations

import logging
import shutil
import socket
from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from dataclasses import dataclass, field, replace
from datetime import timedelta
from functools import partial
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Self

import anyio
from anyio import CancelScope, to_thread
from anyio.abc import TaskGroup

from mainspring.capabilities.sandbox.cage import Backend
from mainspring.capabilities.sandbox.choose import SandboxSettings, choose
from mainspring.capabilities.sandbox.client import KeptSandbox, unwanted_listener
from mainspring.capabilities.sandbox.outdated import end_outdated_keepers
from mainspring.capabilities.sandbox.services import Services
from mainspring.config import Settings
from mainspring.core import clock
from mainspring.core.envelope import KnownPayload
from mainspring.core.errors import HandsError
from mainspring.core.facts import NetworkRequested
from mainspring.core.hands import Box, Exec, Ran, unheard_output
from mainspring.core.lazy import LazyModule
from mainspring.wiring.environment import Environment, Places, apart, site_of
from mainspring.wiring.lookout import Lookout, find_repositories, noted
from mainspring.wiring.monty import Workers
from mainspring.wiring.shares import open_share
from mainspring.wiring.vaults import credentials as kept_credentials

if TYPE_CHECKING:
    from mainspring.capabilities.network.placeholders import Credential
    from mainspring.wiring import network
else:
    network = LazyModule("mainspring.wiring.network")  # most sessions have none

_LOG = logging.getLogger("mainspring.sandbox")
_MOST_OVERHEARD = 200
MOST_IDLE = 8
_PARTING_SECONDS = 30.0
_GIT = {
    "GIT_CONFIG_COUNT": "2",
    "GIT_CONFIG_KEY_0": "safe.bareRepository",
    "GIT_CONFIG_VALUE_0": "explicit",
    "GIT_CONFIG_KEY_1": "safe.directory",
    "GIT_CONFIG_VALUE_1": "*",
}
"""A folder that looks like a bare repository cannot have git run what its config says; that the
workspace is another user's is what a sandbox with a uid of its own looks like."""
_UNSANDBOXED = timedelta(hours=8)


class LateSandbox:
    """One more sandbox over the same workspace, made when it is first used: most threads of a
    session run no program."""

    def __init__(self, box: Box, make: Callable[[], KeptSandbox]) -> None:
        self.box = box
        self._make = make
        self._made: KeptSandbox | None = None

    @property
    def _sandbox(self) -> KeptSandbox:
        self._made = self._made or self._make()
        return self._made

    async def run(self, wanted: Exec, hear: Callable[[bytes], None] = unheard_output) -> Ran:
        return await self._sandbox.run(wanted, hear)

    async def found(self, key: str) -> Ran | None:
        return await self._sandbox.found(key)

    async def forget(self, key: str) -> None:
        await self._sandbox.forget(key)

    async def close(self) -> None:
        if self._made is not None:
            await self._made.close()


@dataclass(frozen=True, slots=True)
class Hands:
    """A `Sandbox` for tools: programs find the variables of this session."""

    sandbox: KeptSandbox | LateSandbox
    services: Services
    variables: Mapping[str, str]
    overheard: list[KnownPayload]
    """What programs did on the network, for the log."""
    lookout: Lookout
    equipment: tuple[Environment, tuple[Credential, ...] | None]
    """What they were opened with."""
    another: Callable[[str], KeptSandbox]
    """One more sandbox over the same workspace, by a name: each runs one program at a time."""
    ran: set[str] = field(default_factory=set[str])
    """Keys of what the sandbox still keeps the results of."""
    parting: AsyncExitStack = field(default_factory=AsyncExitStack)
    """What is to be undone when they are let go."""

    @property
    def box(self) -> Box:
        return self.sandbox.box

    async def run(self, wanted: Exec, hear: Callable[[bytes], None] = unheard_output) -> Ran:
        self.ran.add(wanted.key)
        has_more_to_protect = self.lookout.begin()
        set_aside: list[str] = []
        try:
            if has_more_to_protect:
                await self.sandbox.close()  # what is mounted when it starts again, is all of it
            ran = await self.sandbox.run(self._equipped(wanted), hear)
        finally:
            set_aside = self.lookout.end()
        return noted(ran, set_aside)

    async def found(self, key: str) -> Ran | None:
        return await self.sandbox.found(key)

    async def forget(self, key: str) -> None:
        self.ran.discard(key)
        await self.sandbox.forget(key)

    async def forget_all(self) -> None:
        """All of a run is in the log, without secrets; nothing else is to be left of it."""
        while self.ran:
            with suppress(HandsError):  # it is kept for longer than it need be
                await self.forget(self.ran.pop())

    @asynccontextmanager
    async def beside(self, thread_id: str) -> AsyncGenerator[Hands, None]:
        """The same for another thread: its programs do not wait for those of others."""
        sandbox = LateSandbox(self.box, partial(self.another, thread_id))
        own = replace(self, sandbox=sandbox, ran=set[str]())
        try:
            yield own
            await own.forget_all()
        finally:
            with CancelScope(shield=True):
                await sandbox.close()

    async def close(self) -> None:
        with CancelScope(shield=True), anyio.move_on_after(_PARTING_SECONDS):
            await self.parting.aclose()

    def _equipped(self, wanted: Exec) -> Exec:
        return replace(wanted, env={**self.variables, **wanted.env})


class Bench:
    """Use it with `async with`: no sandbox outlives the block, unless the process is killed.

    Of sessions that do not run, `most_idle` keep their sandboxes and services; those that ran
    longest ago lose theirs, as if the process had ended.
    """

    def __init__(
        self, settings: Settings, *, is_unsandboxed: bool = False, most_idle: int = MOST_IDLE
    ) -> None:
        self._settings = settings
        self._is_unsandboxed = is_unsandboxed
        self._most_idle = most_idle
        self._busy: dict[str, Hands] = {}
        self._idle: dict[str, Hands] = {}
        """The longest idle first."""
        self._changing = anyio.Lock()
        """A sandbox that is being ended is not to be opened again meanwhile."""
        self._current: set[Path] = set()
        """Folders of states in which nothing runs any more that another version has started."""
        self._stack = AsyncExitStack()
        self._group: TaskGroup | None = None
        self.workers = Workers.of(self._stack)
        """For programs that need no sandbox; `None` if they are not installed."""

    async def __aenter__(self) -> Self:
        self._group = await self._stack.enter_async_context(anyio.create_task_group())
        self._stack.callback(self._group.cancel_scope.cancel)
        self._stack.push_async_callback(self._close_all)
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        await self._stack.__aexit__(kind, error, traceback)

    async def hands(
        self,
        session_id: str,
        places: Places,
        environment: Environment,
        credentials: tuple[Credential, ...] | None = None,
    ) -> Hands:
        """The session's own until it is said to `rest`. `credentials`: see `Wish`.

        Raises:
            SandboxFailed: there is no isolation to be had; it says what to do about it.
        """
        async with self._changing:
            hands = self._busy.get(session_id) or self._idle.pop(session_id, None)
            if hands is not None and hands.equipment != (environment, credentials):
                self._busy.pop(session_id, None)
                await hands.close()  # what was taken from it meanwhile is not to be used again
                hands = None
            if hands is None:
                await self.end_outdated(places.state.parent)
                backend = await self._backend(environment, places)
                hands = await self._open(session_id, places, environment, backend, credentials)
            self._busy[session_id] = hands
            return hands

    async def end_outdated(self, states: Path) -> None:
        """Sandboxes that another version has left running there are not as tight as they ought to
        be; looked for once."""
        if states not in self._current:
            self._current.add(states)
            if count := await to_thread.run_sync(end_outdated_keepers, states):
                _LOG.warning("ended %d sandboxes that another version has left running", count)

    async def rest(self, session_id: str) -> None:
        """Its run has ended; the next one is quicker to begin if its sandbox is still there."""
        with CancelScope(shield=True):
            async with self._changing:
                if (hands := self._busy.pop(session_id, None)) is not None:
                    self._idle[session_id] = hands
                while len(self._idle) > self._most_idle:
                    await self._idle.pop(next(iter(self._idle))).close()

    async def dismiss(self, session_id: str) -> None:
        """It will not run again: its sandbox is not kept any longer."""
        with CancelScope(shield=True):
            async with self._changing:
                if (hands := self._idle.pop(session_id, None)) is not None:
                    await hands.close()

    async def _close_all(self) -> None:
        async with AsyncExitStack() as stack:  # each, whatever comes of the others
            for hands in (*self._idle.values(), *self._busy.values()):
                stack.push_async_callback(hands.close)

    async def _backend(self, environment: Environment, places: Places) -> Backend:
        until = clock.now() + _UNSANDBOXED if self._is_unsandboxed else None
        return await choose(
            SandboxSettings(
                forced=environment.backend,
                disabled=frozenset(environment.disabled_backends),
                allow_degraded=environment.allow_degraded,
                unsandboxed_until=until,
                image=environment.image,
            ),
            cache=places.state.parent / "sandboxes.json",
        )

    async def _open(
        self,
        session_id: str,
        places: Places,
        environment: Environment,
        backend: Backend,
        credentials: tuple[Credential, ...] | None,
    ) -> Hands:
        overheard: list[KnownPayload] = []
        found = places.repositories or await to_thread.run_sync(
            find_repositories, places.workspace, places.hidden
        )
        watched = (*found.steering, *places.watched)
        places = replace(places, protected=(*places.protected, *watched))
        lookout = await to_thread.run_sync(Lookout, places.workspace, watched, found, places.state)
        parting = AsyncExitStack()
        async with AsyncExitStack() as unless_opened:
            unless_opened.push_async_callback(parting.aclose)
            share = None if environment.rules is None else _share(session_id, parting)
            site = site_of(places, environment, session_id=session_id, share=share)
            variables = {**environment.variables, **_GIT}
            welcome: Callable[[socket.socket], None] = unwanted_listener
            if environment.rules is not None and share is not None:
                way_out = await network.open_way_out(
                    environment.rules,
                    _usable(self._settings, environment) if credentials is None else credentials,
                    share=share,
                    audit=_heard_by(overheard),
                )
                variables |= way_out.variables
                welcome = self._serving(way_out, parting)
            sandbox = KeptSandbox(site, backend, on_listener=welcome)
            unless_opened.pop_all()

        def another(thread_id: str) -> KeptSandbox:
            state = site.state.with_name(apart(site.state.name, thread_id))
            return KeptSandbox(replace(site, state=state), backend, on_listener=welcome)

        services = Services(site, backend)
        parting.callback(_look_around, lookout)  # last: a service may have left something
        await parting.enter_async_context(sandbox)
        parting.push_async_callback(services.close)
        equipment = (environment, credentials)
        return Hands(
            sandbox, services, variables, overheard, lookout, equipment, another, parting=parting
        )

    def _serving(
        self, way_out: network.WayOut, parting: AsyncExitStack
    ) -> Callable[[socket.socket], None]:
        def serve(listener: socket.socket) -> None:
            assert self._group is not None
            scope = CancelScope()
            parting.callback(scope.cancel)
            self._group.start_soon(_within, scope, way_out.serve, listener)

        return serve


def _usable(settings: Settings, environment: Environment) -> tuple[Credential, ...]:
    """Of this user's vault, those that are named; all that have hosts, unless any is."""
    wanted = environment.secrets
    kept = kept_credentials(settings)
    return tuple(each for each in kept if wanted is None or each.name in wanted)


async def _within(
    scope: CancelScope, serve: Callable[[socket.socket], Awaitable[None]], listener: socket.socket
) -> None:
    with scope:
        await serve(listener)


def _share(session_id: str, parting: AsyncExitStack) -> Path:
    share = open_share(session_id)
    parting.callback(shutil.rmtree, share, ignore_errors=True)
    return share


def _heard_by(overheard: list[KnownPayload]) -> Callable[[NetworkRequested], None]:
    def audit(request: NetworkRequested) -> None:
        if len(overheard) < _MOST_OVERHEARD:
            overheard.append(request)

    return audit


def _look_around(lookout: Lookout) -> None:
    lookout.begin()
    with suppress(HandsError):  # nobody is left to be told
        lookout.end()
