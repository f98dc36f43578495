"""The sandbox of a session as tools use it: opened by the first call that needs it, with its
variables, and with protected paths checked around every program.
"""

from __future__ import annotations

import logging
from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Protocol

import anyio
from anyio import CancelScope
from anyio.abc import TaskGroup
from msgspec import Struct, field, structs

from mainspring.capabilities.sandbox.attached_program import SandboxedProgram, attach_program
from mainspring.capabilities.sandbox.sandbox_client import (
    ExecutionProgress,
    KeeperSandbox,
    SandboxServices,
)
from mainspring.capabilities.sandbox.sandbox_environment import SandboxEnvironment
from mainspring.core.errors import SandboxFailed, ToolEnvironmentError
from mainspring.core.events import KnownPayload
from mainspring.core.ports import ExecRequest, ExecResult, SandboxInfo, ignore_output

_LOG = logging.getLogger("mainspring.sandbox")
_CLOSE_SECONDS = 30.0  # for all that a session holds: servers, proxy and sandbox
_WATCH_SECONDS = 1.0  # between looks at whether a guarded name has appeared
GIT_VARIABLES = {
    "GIT_CONFIG_COUNT": "2",
    "GIT_CONFIG_KEY_0": "safe.bareRepository",
    "GIT_CONFIG_VALUE_0": "explicit",
    "GIT_CONFIG_KEY_1": "safe.directory",
    "GIT_CONFIG_VALUE_1": "*",
}
"""Git must not use the configuration of a folder that looks like a bare repository. The workspace
may belong to another user, since a sandbox can have its own uid."""


class PathWatcher(Protocol):
    """Guards protected paths while programs run."""

    def begin(self) -> bool:
        """Call before a program runs: whether more paths must be protected than before."""
        ...

    def end(self) -> list[str]:
        """Call after the program has ended: the protected paths it created, which were moved away.

        Raises: SandboxFailed."""
        ...

    def check(self) -> list[str]:
        """Call while programs run: the protected paths they created, which were moved away.

        Raises: SandboxFailed."""
        ...


class OpenSandbox(Protocol):
    def __call__(
        self,
        name: str,
        read_only: tuple[Path, ...] = (),
        networking: Mapping[str, object] | None = None,
    ) -> KeeperSandbox:
        """Open another sandbox over the same workspace, by a name: each runs one program at a time.
        `read_only`: further folders that it can read. `networking`: which of the session's hosts it
        may reach.

        Raises:
            InvalidInput: `networking` cannot be enforced.
        """
        ...


class OpenedSandbox(Struct, frozen=True, kw_only=True):
    """An open sandbox and what belongs to it."""

    sandbox: KeeperSandbox
    variables: Mapping[str, str]
    """For its programs."""
    path_watcher: PathWatcher
    open_another: OpenSandbox
    services: SandboxServices


class SandboxOpening:
    """Opens a sandbox when it is first needed, once, however many calls need it at the same time.
    A failed or interrupted opening leaves nothing behind, and the next call tries again.
    """

    def __init__(self, open_sandbox: Callable[[AsyncExitStack], Awaitable[OpenedSandbox]]) -> None:
        self._open = open_sandbox
        self._lock = anyio.Lock()
        self._opened: OpenedSandbox | None = None
        self._cleanup = AsyncExitStack()
        self._is_closed = False

    async def __call__(self) -> OpenedSandbox:
        """Raises: SandboxFailed."""
        async with self._lock:
            if self._is_closed:
                raise SandboxFailed("not run: the sandbox was closed")
            if self._opened is None:
                try:
                    self._opened = await self._open(self._cleanup)
                except BaseException:
                    with CancelScope(shield=True):
                        await self._cleanup.aclose()
                    raise
            return self._opened

    async def close(self) -> None:
        """Close the sandbox, after an opening in progress. It cannot be opened again."""
        async with self._lock:
            self._is_closed = True
            await self._cleanup.aclose()


class SandboxedServices:
    """The services of a session; the first call opens its sandbox. See `SandboxServices`."""

    def __init__(self, opening: SandboxOpening) -> None:
        self._open = opening

    async def start(self, name: str, request: ExecRequest) -> None:
        opened = await self._open()
        opened.path_watcher.begin()
        try:
            await opened.services.start(name, request)
        finally:
            opened.path_watcher.end()

    async def output(self, name: str) -> ExecutionProgress | None:
        return await (await self._open()).services.output(name)

    async def stop(self, name: str) -> ExecResult | None:
        return await (await self._open()).services.stop(name)


class SandboxSession(Struct, frozen=True, kw_only=True):
    """A `Sandbox` for tools; its programs get the variables of this session."""

    box: SandboxInfo
    open: SandboxOpening
    sandbox_services: SandboxedServices
    network_facts: list[KnownPayload]
    """Events about network use of programs, for the log."""
    opened_with: tuple[SandboxEnvironment, object]
    """Its settings and credentials."""
    workspace: Path
    group: TaskGroup
    """For tasks that continue between runs."""
    ran: set[str] = field(default_factory=set[str])
    """Keys of programs whose results the sandbox still stores."""
    watchers: list[PathWatcher] = field(default_factory=list[PathWatcher])
    """One for each attached program."""
    set_aside: list[str] = field(default_factory=list[str])
    """What attached programs have created, until the model has been told."""
    cleanup: AsyncExitStack = field(default_factory=AsyncExitStack)
    """What to close with the session, before its sandbox."""

    async def run(
        self, request: ExecRequest, on_output: Callable[[bytes], None] = ignore_output
    ) -> ExecResult:
        opened = await self.open()
        self.ran.add(request.key)
        has_more_to_protect = opened.path_watcher.begin()
        set_aside: list[str] = []
        try:
            if has_more_to_protect:
                await opened.sandbox.close()  # the restarted sandbox mounts all of it
            ran = await opened.sandbox.run(_with_variables(request, opened), on_output)
        finally:
            set_aside = [*self.set_aside, *opened.path_watcher.end()]
            self.set_aside.clear()
        return _with_removal_note(ran, set_aside)

    async def attach(
        self,
        name: str,
        request: ExecRequest,
        read_only: tuple[Path, ...] = (),
        networking: Mapping[str, object] | None = None,
    ) -> SandboxedProgram:
        """Start a program that the harness talks to, in its own sandbox: see `OpenSandbox`.

        Raises: SandboxFailed, InvalidInput.
        """
        opened = await self.open()
        sandbox = opened.open_another(name, read_only, networking)
        ended = anyio.Event()
        opened.path_watcher.begin()
        self.watchers.append(opened.path_watcher)
        self.group.start_soon(self._watch, opened.path_watcher, ended)

        def on_end() -> None:
            ended.set()
            self.watchers.remove(opened.path_watcher)
            self._set_aside(opened.path_watcher.end)

        return await attach_program(sandbox, _with_variables(request, opened), on_end)

    def check_protected_paths(self) -> None:
        """Set aside what attached programs have created, before the next run reads the folder."""
        for path_watcher in self.watchers[:1]:
            self._set_aside(path_watcher.check)

    async def _watch(self, path_watcher: PathWatcher, ended: anyio.Event) -> None:
        """Guard protected paths while an attached program runs: it may run for days."""
        while not ended.is_set():
            with anyio.move_on_after(_WATCH_SECONDS):
                await ended.wait()
            self._set_aside(path_watcher.check)

    def _set_aside(self, check: Callable[[], list[str]]) -> None:
        try:
            paths = check()
        except SandboxFailed as error:
            _LOG.warning("%s", error)
            return
        if paths:
            self.set_aside.extend(paths)
            _LOG.warning("set aside what an MCP server has created: %s", ", ".join(paths))

    def prepare(self) -> None:
        """Start the sandbox in the background, since a program is about to run; no effect if one
        has run in it."""
        if not self.ran:
            self.group.start_soon(self._prepare)

    async def _prepare(self) -> None:
        with suppress(SandboxFailed):  # `run` tries again, and reports the reason
            await (await self.open()).sandbox.prepare()

    async def find_result(self, key: str) -> ExecResult | None:
        return await (await self.open()).sandbox.find_result(key)

    async def forget(self, key: str) -> None:
        self.ran.discard(key)
        await (await self.open()).sandbox.forget(key)

    async def forget_all(self) -> None:
        """Delete the stored results of a run: the log has everything, without secrets."""
        while self.ran:
            with suppress(ToolEnvironmentError):  # it stays longer than necessary
                await self.forget(self.ran.pop())

    @asynccontextmanager
    async def for_thread(self, thread_id: str) -> AsyncGenerator[SandboxSession, None]:
        """The same sandbox for another thread, whose programs do not wait for those of others."""
        opening = SandboxOpening(partial(self._open_for_thread, thread_id))
        own = structs.replace(self, open=opening, ran=set[str]())
        try:
            yield own
            await own.forget_all()
        finally:
            with CancelScope(shield=True):
                await opening.close()

    async def _open_for_thread(self, thread_id: str, cleanup: AsyncExitStack) -> OpenedSandbox:
        opened = await self.open()
        sandbox = await cleanup.enter_async_context(opened.open_another(thread_id))
        return structs.replace(opened, sandbox=sandbox)

    async def close(self) -> None:
        with CancelScope(shield=True), anyio.move_on_after(_CLOSE_SECONDS):
            try:
                await self.cleanup.aclose()
            finally:
                await self.open.close()


def _with_variables(request: ExecRequest, opened: OpenedSandbox) -> ExecRequest:
    return replace(request, env={**opened.variables, **request.env})


def _with_removal_note(exec_result: ExecResult, set_aside: list[str]) -> ExecResult:
    """The result, with a note for the model about removed files."""
    if not set_aside:
        return exec_result
    paths = ", ".join(dict.fromkeys(set_aside))
    notice = (
        f"\n[set aside, since it could run outside of the sandbox: {paths}."
        " Only people can make these (`git init`, say): ask the user to.]\n"
    ).encode("utf-8", "replace")
    stderr = exec_result.stderr
    with_notice = replace(stderr, tail=stderr.tail + notice, size=stderr.size + len(notice))
    return replace(exec_result, stderr=with_notice)


def check_protected_paths(path_watcher: PathWatcher) -> None:
    """Check once more when a session is closed: a service may have created protected paths."""
    path_watcher.begin()
    with suppress(ToolEnvironmentError):  # no caller is left to report it to
        path_watcher.end()
