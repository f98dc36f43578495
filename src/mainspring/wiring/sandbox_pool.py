"""A pool of sandboxes for the sessions of one process, kept between runs, with their network
egress.
"""

from __future__ import annotations

import logging
import shutil
import socket
from collections.abc import Awaitable, Callable, Mapping
from contextlib import AsyncExitStack
from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Self, TypeAlias

import anyio
from anyio import CancelScope, to_thread
from anyio.abc import TaskGroup

from mainspring.capabilities.monty.python_tool import LazyInterpreter
from mainspring.capabilities.sandbox.backend import Backend
from mainspring.capabilities.sandbox.backend_selection import SandboxSettings, select_backend
from mainspring.capabilities.sandbox.readonly_mounts import open_readonly_mount
from mainspring.capabilities.sandbox.sandbox_client import (
    KeeperSandbox,
    SandboxServices,
    close_listener,
)
from mainspring.capabilities.sandbox.sandbox_environment import SandboxEnvironment
from mainspring.capabilities.sandbox.sandbox_session import (
    GIT_VARIABLES,
    SandboxSession,
    check_protected_paths,
)
from mainspring.capabilities.sandbox.stale_keepers import end_stale_keepers
from mainspring.config import Settings
from mainspring.core import clock
from mainspring.core.events import KnownPayload, NetworkRequested
from mainspring.core.lazy_module import LazyModule
from mainspring.harness.permissions.protected_path_watcher import (
    ProtectedPathWatcher,
    find_repositories,
    memory_paths,
    still_protected,
)
from mainspring.runtime.session.session_paths import SessionPaths, thread_sandbox_id
from mainspring.wiring.sandbox_environment import egress_rules, sandbox_site
from mainspring.wiring.user_vault import vault_credentials

if TYPE_CHECKING:
    from mainspring.core.ports import Credential
    from mainspring.wiring import session_egress
else:
    session_egress = LazyModule("mainspring.wiring.session_egress")  # most sessions have none

Serve: TypeAlias = Callable[[socket.socket], Awaitable[None]]
_LOG = logging.getLogger("mainspring.sandbox")
_MAX_NETWORK_FACTS = 200
MAX_IDLE = 8
_UNSANDBOXED_LIFETIME = timedelta(hours=8)


class SandboxPool:
    """Use it with `async with`: no sandbox outlives the block, unless the process is killed.

    Of sessions that do not run, `most_idle` keep their sandboxes and services; those that ran
    longest ago lose theirs, as if the process had ended.
    """

    def __init__(
        self, settings: Settings, *, is_unsandboxed: bool = False, most_idle: int = MAX_IDLE
    ) -> None:
        self.settings = settings
        self._is_unsandboxed = is_unsandboxed
        self._most_idle = most_idle
        self._busy: dict[str, SandboxSession] = {}
        self._idle: dict[str, SandboxSession] = {}
        """The longest idle first."""
        self._changing = anyio.Lock()
        """No sandbox is opened while it is being closed."""
        self._current: set[Path] = set()
        """Folders of states in which no sandbox of another version runs any more."""
        self._stack = AsyncExitStack()
        self._group: TaskGroup | None = None
        self.workers = LazyInterpreter.of(self._stack)
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

    @property
    def group(self) -> TaskGroup:
        """For what runs as long as the pool is open, unless it ends itself."""
        assert self._group is not None
        return self._group

    async def open_session(
        self,
        session_id: str,
        paths: SessionPaths,
        sandbox_environment: SandboxEnvironment,
        credentials: tuple[Credential, ...] | None = None,
    ) -> SandboxSession:
        """For this session alone, until `release`. `credentials`: see `RunOptions`.

        Raises:
            SandboxFailed: this machine cannot isolate programs; the error says what to do.
        """
        async with self._changing:
            sandbox_session = self._busy.get(session_id) or self._idle.pop(session_id, None)
            if sandbox_session is not None and sandbox_session.opened_with != (
                sandbox_environment,
                credentials,
            ):
                self._busy.pop(session_id, None)
                await sandbox_session.close()  # it may not use what was taken away since
                sandbox_session = None
            if sandbox_session is None:
                await self.end_outdated(paths.state.parent)
                backend = await self._backend(sandbox_environment, paths)
                sandbox_session = await self._open(
                    session_id, paths, sandbox_environment, backend, credentials
                )
            self._busy[session_id] = sandbox_session
            return sandbox_session

    async def end_outdated(self, states: Path) -> None:
        """End sandboxes that another version has left running there: they may be less safe. Each
        folder is checked once."""
        if states not in self._current:
            self._current.add(states)
            if count := await to_thread.run_sync(end_stale_keepers, states):
                _LOG.warning("ended %d sandboxes that another version has left running", count)

    async def release(self, session_id: str) -> None:
        """The run has ended; the sandbox stays for a while, so that the next run starts faster."""
        with CancelScope(shield=True):
            async with self._changing:
                if (sandbox_session := self._busy.pop(session_id, None)) is not None:
                    self._idle[session_id] = sandbox_session
                while len(self._idle) > self._most_idle:
                    await self._idle.pop(next(iter(self._idle))).close()

    async def discard(self, session_id: str) -> None:
        """Close the sandbox of a session that will not run again."""
        with CancelScope(shield=True):
            async with self._changing:
                if (sandbox_session := self._idle.pop(session_id, None)) is not None:
                    await sandbox_session.close()

    async def _close_all(self) -> None:
        async with AsyncExitStack() as stack:  # each, even if another one fails
            for sandbox_session in (*self._idle.values(), *self._busy.values()):
                stack.push_async_callback(sandbox_session.close)

    async def _backend(
        self, sandbox_environment: SandboxEnvironment, paths: SessionPaths
    ) -> Backend:
        until = clock.now() + _UNSANDBOXED_LIFETIME if self._is_unsandboxed else None
        return await select_backend(
            SandboxSettings(
                forced=sandbox_environment.backend,
                disabled=frozenset(sandbox_environment.disabled_backends),
                allow_degraded=sandbox_environment.allow_degraded,
                unsandboxed_until=until,
                image=sandbox_environment.image,
            ),
            cache=paths.state.parent / "sandboxes.json",
        )

    async def _open(
        self,
        session_id: str,
        paths: SessionPaths,
        sandbox_environment: SandboxEnvironment,
        backend: Backend,
        credentials: tuple[Credential, ...] | None,
    ) -> SandboxSession:
        side_events: list[KnownPayload] = []
        repositories = paths.git_repositories or await to_thread.run_sync(
            find_repositories, paths.workspace, paths.hidden
        )
        watched = (*repositories.steering, *paths.watched)
        memories = await to_thread.run_sync(memory_paths, paths.workspace)
        paths = replace(paths, protected=(*paths.protected, *watched, *memories))
        watcher = await to_thread.run_sync(
            ProtectedPathWatcher, paths.workspace, watched, repositories, paths.state
        )
        cleanup = AsyncExitStack()
        async with AsyncExitStack() as unless_opened:
            unless_opened.push_async_callback(cleanup.aclose)
            rules = egress_rules(sandbox_environment)
            share = None if rules is None else _open_mount(session_id, cleanup)
            site = sandbox_site(paths, sandbox_environment, session_id=session_id, share=share)
            variables = {**sandbox_environment.variables, **GIT_VARIABLES}
            on_listener: Callable[[socket.socket], None] = close_listener
            proxy = None
            if rules is not None and share is not None:
                proxy, proxy_variables = await session_egress.open_egress(
                    rules,
                    vault_credentials(self.settings, sandbox_environment.secrets)
                    if credentials is None
                    else credentials,
                    share=share,
                    audit=_network_audit(side_events),
                )
                variables |= proxy_variables
                on_listener = self._serving(proxy.serve, cleanup)
            sandbox = KeeperSandbox(site, backend, on_listener=on_listener)
            unless_opened.pop_all()

        def open_another(
            name: str,
            read_only: tuple[Path, ...] = (),
            networking: Mapping[str, object] | None = None,
        ) -> KeeperSandbox:
            listen = on_listener
            if networking is not None and proxy is not None:
                limited = proxy.limited_to(session_egress.parse_rules(networking))
                listen = self._serving(limited.serve, cleanup)
            state = site.state.with_name(thread_sandbox_id(site.state.name, name))
            own = replace(
                site,
                state=state,
                protected=still_protected(site.workspace, site.protected),
                read_only=(*site.read_only, *read_only),
            )
            return KeeperSandbox(own, backend, on_listener=listen)

        services = SandboxServices(site, backend)
        cleanup.callback(check_protected_paths, watcher)
        await cleanup.enter_async_context(sandbox)
        cleanup.push_async_callback(services.close)
        opened_with = (sandbox_environment, credentials)
        return SandboxSession(
            sandbox,
            services,
            variables,
            side_events,
            watcher,
            opened_with,
            paths.workspace,
            open_another,
            self.group,
            cleanup=cleanup,
        )

    def _serving(self, serve: Serve, cleanup: AsyncExitStack) -> Callable[[socket.socket], None]:
        def start(listener: socket.socket) -> None:
            scope = CancelScope()
            cleanup.callback(scope.cancel)
            self.group.start_soon(_serve_in_scope, scope, serve, listener)

        return start


async def _serve_in_scope(scope: CancelScope, serve: Serve, listener: socket.socket) -> None:
    with scope:
        await serve(listener)


def _open_mount(session_id: str, cleanup: AsyncExitStack) -> Path:
    share = open_readonly_mount(session_id)
    cleanup.callback(shutil.rmtree, share, ignore_errors=True)
    return share


def _network_audit(side_events: list[KnownPayload]) -> Callable[[NetworkRequested], None]:
    def audit(request: NetworkRequested) -> None:
        if len(side_events) < _MAX_NETWORK_FACTS:
            side_events.append(request)

    return audit
