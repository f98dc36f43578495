"""The hands of the sessions of one process: sandboxes and their ways out, kept between runs."""

from __future__ import annotations

import socket
from collections.abc import Callable, Mapping
from contextlib import AsyncExitStack
from dataclasses import dataclass, replace
from datetime import timedelta
from types import TracebackType
from typing import Self, cast

import anyio
from anyio import to_thread
from anyio.abc import TaskGroup

from mainspring.capabilities.network.authority import Authority
from mainspring.capabilities.network.placeholders import Credential
from mainspring.capabilities.network.proxy import EgressProxy
from mainspring.capabilities.sandbox.cage import Backend
from mainspring.capabilities.sandbox.choose import BackendName, SandboxSettings, choose
from mainspring.capabilities.sandbox.client import KeptSandbox, unwanted_listener
from mainspring.capabilities.sandbox.services import Services
from mainspring.config import Settings
from mainspring.core import clock
from mainspring.core.envelope import KnownPayload
from mainspring.core.errors import SandboxFailed
from mainspring.core.facts import NetworkRequested
from mainspring.core.hands import Box, Captured, Exec, Ran, unheard_output
from mainspring.wiring.environment import Environment, Places, site_of
from mainspring.wiring.vaults import credentials

_PROXY = "127.0.0.1:3128"
"""Where programs in a sandbox find the proxy; its agent listens there."""
_MOST_OVERHEARD = 200
_UNSANDBOXED = timedelta(hours=8)
_SERVICE_SECONDS = 24 * 3600.0


@dataclass(frozen=True, slots=True)
class Hands:
    """A `Sandbox` and `Services` for tools: programs find the variables of this session."""

    sandbox: KeptSandbox
    services: Services
    variables: Mapping[str, str]
    overheard: list[KnownPayload]
    """What programs did on the network, for the log."""

    @property
    def box(self) -> Box:
        return self.sandbox.box

    async def run(self, wanted: Exec, hear: Callable[[bytes], None] = unheard_output) -> Ran:
        return await self.sandbox.run(self._equipped(wanted), hear)

    async def found(self, key: str) -> Ran | None:
        return await self.sandbox.found(key)

    async def forget(self, key: str) -> None:
        await self.sandbox.forget(key)

    async def start_service(self, name: str, argv: tuple[str, ...]) -> None:
        wanted = Exec(key=f"service {name}", argv=argv, wall_seconds=_SERVICE_SECONDS)
        await self.services.start(name, self._equipped(wanted))

    async def service_output(self, name: str) -> tuple[Captured, int | None]:
        progress = await self.services.output(name)
        if progress is None:
            raise SandboxFailed(f"there is no service {name!r}")
        return progress.ran.stdout, None if progress.is_running else progress.ran.status

    async def stop_service(self, name: str) -> None:
        if await self.services.stop(name) is None:
            raise SandboxFailed(f"there is no service {name!r}")

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
                forced=cast("BackendName | None", environment.backend),
                disabled=cast("frozenset[BackendName]", frozenset(environment.disabled_backends)),
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
        share = places.state.parent / f"{places.state.name}.share"
        await to_thread.run_sync(lambda: share.mkdir(mode=0o755, parents=True, exist_ok=True))
        site = site_of(places, environment, session_id=session_id, share=share)
        variables: Mapping[str, str] = {}
        welcome: Callable[[socket.socket], None] = unwanted_listener
        if environment.rules is not None:
            proxy = await self._proxy(environment, overheard)
            bundle = share / "certificates.pem"
            await to_thread.run_sync(proxy.authority.write_bundle, bundle)
            names = [each.name for each in self._credentials(environment)]
            variables = proxy.environment(names, address=_PROXY, bundle=bundle)
            welcome = self._serving(proxy)
        sandbox = KeptSandbox(site, backend, on_listener=welcome)
        services = Services(site, backend)
        await self._stack.enter_async_context(sandbox)
        self._stack.push_async_callback(services.close)
        return Hands(sandbox, services, variables, overheard)

    async def _proxy(self, environment: Environment, overheard: list[KnownPayload]) -> EgressProxy:
        assert environment.rules is not None

        def audit(request: NetworkRequested) -> None:
            if len(overheard) < _MOST_OVERHEARD:
                overheard.append(request)

        authority = await to_thread.run_sync(Authority, clock.now)
        return EgressProxy(environment.rules, self._credentials(environment), authority, audit)

    def _credentials(self, environment: Environment) -> list[Credential]:
        wanted = environment.secrets
        return [
            each for each in credentials(self._settings) if wanted is None or each.name in wanted
        ]

    def _serving(self, proxy: EgressProxy) -> Callable[[socket.socket], None]:
        def serve(listener: socket.socket) -> None:
            assert self._group is not None
            self._group.start_soon(proxy.serve, listener)

        return serve
