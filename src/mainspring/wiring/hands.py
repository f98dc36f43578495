"""The hands of the sessions of one process: sandboxes and their ways out, kept between runs."""

from __future__ import annotations

import os
import shutil
import socket
from collections.abc import Callable, Mapping
from contextlib import AsyncExitStack, suppress
from dataclasses import dataclass, field, replace
from datetime import timedelta
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Self

import anyio
from anyio.abc import TaskGroup

from mainspring.capabilities.sandbox.cage import Backend
from mainspring.capabilities.sandbox.choose import SandboxSettings, choose
from mainspring.capabilities.sandbox.client import KeptSandbox, unwanted_listener
from mainspring.capabilities.sandbox.services import Services
from mainspring.config import Settings
from mainspring.core import clock
from mainspring.core.envelope import KnownPayload
from mainspring.core.errors import HandsError
from mainspring.core.facts import NetworkRequested
from mainspring.core.hands import Box, Exec, Ran, unheard_output
from mainspring.core.lazy import LazyModule
from mainspring.wiring.environment import Environment, Places, site_of
from mainspring.wiring.monty import Workers
from mainspring.wiring.shares import open_share

if TYPE_CHECKING:
    from mainspring.wiring import network
else:
    network = LazyModule("mainspring.wiring.network")  # most sessions have none

_MOST_OVERHEARD = 200
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


@dataclass(frozen=True, slots=True)
class Hands:
    """A `Sandbox` for tools: programs find the variables of this session."""

    sandbox: KeptSandbox
    services: Services
    variables: Mapping[str, str]
    overheard: list[KnownPayload]
    """What programs did on the network, for the log."""
    workspace: Path
    ran: set[str] = field(default_factory=set[str])
    """Keys of what the sandbox still keeps the results of."""

    @property
    def box(self) -> Box:
        return self.sandbox.box

    async def run(self, wanted: Exec, hear: Callable[[bytes], None] = unheard_output) -> Ran:
        self.ran.add(wanted.key)
        try:
            return await self.sandbox.run(self._equipped(wanted), hear)
        finally:
            disarm(self.workspace)

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

    def _equipped(self, wanted: Exec) -> Exec:
        return replace(wanted, env={**self.variables, **wanted.env})


class Bench:
    """Use it with `async with`: no sandbox outlives the block, unless the process is killed."""

    def __init__(self, settings: Settings, *, is_unsandboxed: bool = False) -> None:
        self._settings = settings
        self._is_unsandboxed = is_unsandboxed
        self._made: dict[str, Hands] = {}
        self._stack = AsyncExitStack()
        self._group: TaskGroup | None = None
        self.workers = Workers.of(self._stack)
        """For programs that need no sandbox; `None` if they are not installed."""

    async def __aenter__(self) -> Self:
        self._group = await self._stack.enter_async_context(anyio.create_task_group())
        self._stack.callback(self._group.cancel_scope.cancel)
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self._made.clear()
        await self._stack.__aexit__(kind, error, traceback)

    async def hands(self, session_id: str, places: Places, environment: Environment) -> Hands:
        """
        Raises:
            SandboxFailed: there is no isolation to be had; it says what to do about it.
        """
        if session_id not in self._made:
            backend = await self._backend(environment, places)
            self._made[session_id] = await self._open(session_id, places, environment, backend)
        return self._made[session_id]

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
        self, session_id: str, places: Places, environment: Environment, backend: Backend
    ) -> Hands:
        overheard: list[KnownPayload] = []
        share = None if environment.rules is None else self._share(session_id)
        site = site_of(places, environment, session_id=session_id, share=share)
        variables = dict(_GIT)
        welcome: Callable[[socket.socket], None] = unwanted_listener
        if environment.rules is not None and share is not None:
            way_out = await network.open_way_out(
                self._settings,
                environment.rules,
                environment.secrets,
                share=share,
                audit=_heard_by(overheard),
            )
            variables |= way_out.variables
            welcome = self._serving(way_out)
        sandbox = KeptSandbox(site, backend, on_listener=welcome)
        services = Services(site, backend)
        self._stack.callback(disarm, places.workspace)  # last: a service may have left something
        await self._stack.enter_async_context(sandbox)
        self._stack.push_async_callback(services.close)
        return Hands(sandbox, services, variables, overheard, places.workspace)

    def _share(self, session_id: str) -> Path:
        share = open_share(session_id)
        self._stack.callback(shutil.rmtree, share, ignore_errors=True)
        return share

    def _serving(self, way_out: network.WayOut) -> Callable[[socket.socket], None]:
        def serve(listener: socket.socket) -> None:
            assert self._group is not None
            self._group.start_soon(way_out.serve, listener)

        return serve


def _heard_by(overheard: list[KnownPayload]) -> Callable[[NetworkRequested], None]:
    def audit(request: NetworkRequested) -> None:
        if len(overheard) < _MOST_OVERHEARD:
            overheard.append(request)

    return audit


def disarm(workspace: Path) -> None:
    """Take away what would have git, outside of the sandbox, believe another config than the one
    that programs cannot change. Git itself makes it in linked worktrees only, which have no folder
    `.git`; where there is none, nothing can be mounted over it."""
    with suppress(OSError):
        folder = os.open(workspace / ".git", os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW)
        try:
            os.unlink("commondir", dir_fd=folder)
        finally:
            os.close(folder)
