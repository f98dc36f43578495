"""A pool of sandboxes for the sessions of one process. The first program that a session runs opens
its sandbox, which stays open between runs. The caller prepares the files that a session sees in it.
"""

from __future__ import annotations

import logging
import socket
from collections.abc import Awaitable, Callable, Mapping
from contextlib import AsyncExitStack
from dataclasses import replace
from datetime import timedelta
from functools import partial
from pathlib import Path
from types import TracebackType
from typing import Generic, Protocol, Self, TypeAlias, TypeVar

import anyio
from anyio import CancelScope, to_thread
from anyio.abc import TaskGroup
from msgspec import Struct, field

from mainspring.capabilities.sandbox.backend import Backend, SandboxSpec, describe_sandbox
from mainspring.capabilities.sandbox.backend_selection import SandboxSettings, select_backend
from mainspring.capabilities.sandbox.keeper_process.stale_keepers import end_stale_keepers
from mainspring.capabilities.sandbox.sandbox_client import (
    KeeperSandbox,
    SandboxServices,
    check_spec,
    close_listener,
    is_in_use,
)
from mainspring.capabilities.sandbox.sandbox_environment import SandboxEnvironment
from mainspring.capabilities.sandbox.sandbox_session import (
    GIT_VARIABLES,
    OpenedSandbox,
    PathWatcher,
    SandboxedServices,
    SandboxOpening,
    SandboxSession,
    check_protected_paths,
)
from mainspring.core import clock
from mainspring.core.errors import InvalidInput, SandboxFailed
from mainspring.core.events import KnownPayload, NetworkRequested
from mainspring.core.ports import Credential

Serve: TypeAlias = Callable[[socket.socket], Awaitable[None]]
_LOG = logging.getLogger("mainspring.sandbox")
_MAX_NETWORK_FACTS = 200  # requests of programs that wait to be written to the log
MAX_IDLE = 8  # sandboxes kept between runs; each is a few processes and a mount tree
_UNSANDBOXED_LIFETIME = timedelta(hours=8)  # a working day; then a person has to say it again


class StatePaths(Protocol):
    @property
    def state(self) -> Path: ...
    @property
    def workspace(self) -> Path: ...


Paths = TypeVar("Paths", bound=StatePaths)


class SandboxRequest(Struct, Generic[Paths], frozen=True, kw_only=True):
    """A sandbox that a session may need."""

    session_id: str
    paths: Paths
    environment: SandboxEnvironment
    credentials: tuple[Credential, ...] | None
    network_facts: list[KnownPayload] = field(default_factory=list[KnownPayload])
    """What programs did on the network, for the log."""

    def audit(self, request: NetworkRequested) -> None:
        if len(self.network_facts) < _MAX_NETWORK_FACTS:
            self.network_facts.append(request)


class Proxy(Protocol):
    """The proxy through which programs reach hosts."""

    async def serve(self, listening: socket.socket, /) -> None: ...

    def limited_to(self, networking: Mapping[str, object], /) -> Proxy:
        """A proxy for programs that may reach only some of the hosts. Raises: InvalidInput."""
        ...


class PreparedSandbox(Struct, frozen=True, kw_only=True):
    spec: SandboxSpec
    spec_of_another: Callable[[str], SandboxSpec]
    """The spec of a further sandbox, by name: see `OpenSandbox`."""
    path_watcher: PathWatcher
    variables: Mapping[str, str]
    """Environment variables that point programs to the proxy."""
    proxy: Proxy | None
    """`None`: programs have no network."""


class SandboxPlans(Protocol[Paths]):
    """What a session sees in its sandbox."""

    def spec(self, request: SandboxRequest[Paths], /) -> SandboxSpec:
        """The part that is known before the sandbox opens; the fingerprint depends only on it."""
        ...

    def end_abandoned_guards(self, states: Path, /) -> list[str]:
        """Set aside what programs created after their process was killed; returns the paths.
        Blocks."""
        ...

    async def prepare(
        self, request: SandboxRequest[Paths], spec: SandboxSpec, cleanup: AsyncExitStack, /
    ) -> PreparedSandbox:
        """Prepare to open it. `cleanup` undoes everything when the sandbox is closed.

        Raises: InvalidInput, OSError.
        """
        ...


class SandboxPool(Generic[Paths]):
    """Use it with `async with`: no sandbox outlives the block, unless the process is killed.

    Of sessions that do not run, `most_idle` keep their sandboxes and services; those that
    have been idle longest lose theirs, as if the process had ended.
    """

    def __init__(
        self,
        plans: SandboxPlans[Paths],
        *,
        cache: Path,
        is_unsandboxed: bool = False,
        container_is_boundary: bool = False,
        most_idle: int = MAX_IDLE,
    ) -> None:
        """`cache`: see `select_backend`; `container_is_boundary`: see `SandboxSettings`."""
        self._plans = plans
        self._cache = cache
        self._is_unsandboxed = is_unsandboxed
        self._container_is_boundary = container_is_boundary
        self._most_idle = most_idle
        self._busy: dict[str, SandboxSession] = {}
        self._idle: dict[str, SandboxSession] = {}
        """The longest idle first."""
        self._sessions_lock = anyio.Lock()
        """Serializes changes of which sessions are busy and idle."""
        self._checked_states: set[Path] = set()
        """Folders of states in which sandboxes of other versions have been ended."""
        self.resources = AsyncExitStack()
        """Resources that are closed with the pool."""
        self.group: TaskGroup
        """For tasks that run while the pool is open."""

    async def __aenter__(self) -> Self:
        self.group = await self.resources.enter_async_context(anyio.create_task_group())
        self.resources.callback(self.group.cancel_scope.cancel)
        self.resources.push_async_callback(self._close_all)
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        await self.resources.__aexit__(kind, error, traceback)

    async def open_session(
        self,
        session_id: str,
        paths: Paths,
        environment: SandboxEnvironment,
        credentials: tuple[Credential, ...] | None = None,
    ) -> SandboxSession:
        """The sandbox of this session, until `release`: opened by its first program, or at once if
        an earlier process may have left programs running in it. `credentials`: see `RunOptions`.

        Raises:
            SandboxFailed: this machine cannot isolate programs; the error says what to do.
        """
        async with self._sessions_lock:
            session = self._busy.get(session_id) or self._idle.pop(session_id, None)
            if session is not None and session.opened_with != (environment, credentials):
                self._busy.pop(session_id, None)
                await session.close()  # its old credentials may have been revoked
                session = None
            if session is None:
                self.group.start_soon(self.end_outdated, paths.state.parent)
                backend = await self._backend(environment)
                request = SandboxRequest(
                    session_id=session_id,
                    paths=paths,
                    environment=environment,
                    credentials=credentials,
                )
                session = self._session(request, backend)
                if is_in_use(paths.state):
                    await session.open()
            self._busy[session_id] = session
            return session

    async def end_outdated(self, states: Path) -> None:
        """End what processes that were killed have left in this folder: sandboxes of another
        version, which may be less safe, and guards. Each folder is checked once."""
        if states not in self._checked_states:
            self._checked_states.add(states)
            if count := await to_thread.run_sync(end_stale_keepers, states):
                _LOG.warning("ended %d sandboxes that another version has left running", count)
            if paths := await to_thread.run_sync(self._plans.end_abandoned_guards, states):
                _LOG.warning("set aside what a program had created: %s", ", ".join(paths))

    async def release(self, session_id: str) -> None:
        """The run has ended; the sandbox stays for a while, so that the next run starts faster."""
        with CancelScope(shield=True):
            async with self._sessions_lock:
                if (session := self._busy.pop(session_id, None)) is not None:
                    session.check_protected_paths()
                    self._idle[session_id] = session
                while len(self._idle) > self._most_idle:
                    await self._idle.pop(next(iter(self._idle))).close()

    async def discard(self, session_id: str) -> None:
        """Close the sandbox of a session that will not run again."""
        with CancelScope(shield=True):
            async with self._sessions_lock:
                if (session := self._idle.pop(session_id, None)) is not None:
                    await session.close()

    async def _close_all(self) -> None:
        async with AsyncExitStack() as stack:  # closes each, even if another one fails
            for session in (*self._idle.values(), *self._busy.values()):
                stack.push_async_callback(session.close)

    async def _backend(self, environment: SandboxEnvironment) -> Backend:
        until = clock.now() + _UNSANDBOXED_LIFETIME if self._is_unsandboxed else None
        return await select_backend(
            SandboxSettings(
                forced=environment.backend,
                disabled=frozenset(environment.disabled_backends),
                allow_degraded=environment.allow_degraded,
                container_is_boundary=self._container_is_boundary,
                unsandboxed_until=until,
                image=environment.image,
            ),
            cache=self._cache,
        )

    def _session(self, request: SandboxRequest[Paths], backend: Backend) -> SandboxSession:
        """Raises: SandboxFailed: the backend cannot isolate programs as the request says."""
        spec = check_spec(self._plans.spec(request))
        opening = SandboxOpening(partial(self._open, request, spec, backend))
        return SandboxSession(
            box=describe_sandbox(backend, spec),
            open=opening,
            sandbox_services=SandboxedServices(opening),
            network_facts=request.network_facts,
            opened_with=(request.environment, request.credentials),
            workspace=request.paths.workspace,
            group=self.group,
        )

    async def _open(
        self,
        request: SandboxRequest[Paths],
        spec: SandboxSpec,
        backend: Backend,
        cleanup: AsyncExitStack,
    ) -> OpenedSandbox:
        try:
            prepared = await self._plans.prepare(request, spec, cleanup)
        except (InvalidInput, OSError) as error:
            raise SandboxFailed(f"not run: the sandbox cannot be opened: {error}") from error
        on_listener: Callable[[socket.socket], None] = close_listener
        if prepared.proxy is not None:
            on_listener = self._start_serving(prepared.proxy.serve, cleanup)

        def open_another(
            name: str,
            read_only: tuple[Path, ...] = (),
            networking: Mapping[str, object] | None = None,
        ) -> KeeperSandbox:
            spec, listen = prepared.spec_of_another(name), on_listener
            if networking is not None and prepared.proxy is not None:
                listen = self._start_serving(prepared.proxy.limited_to(networking).serve, cleanup)
            own = replace(spec, read_only=(*spec.read_only, *read_only))
            return KeeperSandbox(own, backend, on_listener=listen)

        services = SandboxServices(prepared.spec, backend)
        cleanup.callback(check_protected_paths, prepared.path_watcher)
        sandbox = KeeperSandbox(prepared.spec, backend, on_listener=on_listener)
        await cleanup.enter_async_context(sandbox)
        cleanup.push_async_callback(services.close)
        return OpenedSandbox(
            sandbox=sandbox,
            variables={**request.environment.variables, **GIT_VARIABLES, **prepared.variables},
            path_watcher=prepared.path_watcher,
            open_another=open_another,
            services=services,
        )

    def _start_serving(
        self, serve: Serve, cleanup: AsyncExitStack
    ) -> Callable[[socket.socket], None]:
        def start(listener: socket.socket) -> None:
            scope = CancelScope()
            cleanup.callback(scope.cancel)
            self.group.start_soon(_serve_in_scope, scope, serve, listener)

        return start


async def _serve_in_scope(scope: CancelScope, serve: Serve, listener: socket.socket) -> None:
    with scope:
        await serve(listener)
