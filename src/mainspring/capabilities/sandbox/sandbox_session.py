"""A sandbox as the tools of one session use it: with its variables, and with protected paths
checked around every program.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, Callable, Mapping
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Protocol

import anyio
from anyio import CancelScope
from anyio.abc import TaskGroup

from mainspring.capabilities.sandbox.attached_program import SandboxedProgram, attach_program
from mainspring.capabilities.sandbox.sandbox_client import KeeperSandbox, SandboxServices
from mainspring.capabilities.sandbox.sandbox_environment import SandboxEnvironment
from mainspring.core.errors import ToolEnvironmentError
from mainspring.core.events import KnownPayload
from mainspring.core.ports import ExecRequest, ExecResult, SandboxInfo, ignore_output

_CLOSE_SECONDS = 30.0
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


class LazySandbox:
    """Another sandbox over the same workspace, made when it is first used: most threads run no
    program."""

    def __init__(self, sandbox_info: SandboxInfo, make: Callable[[], KeeperSandbox]) -> None:
        self.box = sandbox_info
        self._make = make
        self._made: KeeperSandbox | None = None

    @property
    def _sandbox(self) -> KeeperSandbox:
        self._made = self._made or self._make()
        return self._made

    async def run(
        self, request: ExecRequest, hear: Callable[[bytes], None] = ignore_output
    ) -> ExecResult:
        return await self._sandbox.run(request, hear)

    async def prepare(self) -> None:
        await self._sandbox.prepare()

    async def find_result(self, key: str) -> ExecResult | None:
        return await self._sandbox.find_result(key)

    async def forget(self, key: str) -> None:
        await self._sandbox.forget(key)

    async def close(self) -> None:
        if self._made is not None:
            await self._made.close()


@dataclass(frozen=True, slots=True)
class SandboxSession:
    """A `Sandbox` for tools; its programs get the variables of this session."""

    sandbox: KeeperSandbox | LazySandbox
    sandbox_services: SandboxServices
    variables: Mapping[str, str]
    network_facts: list[KnownPayload]
    """What programs did on the network, for the log."""
    path_watcher: PathWatcher
    opened_with: tuple[SandboxEnvironment, object]
    """The settings and credentials that it was opened with."""
    workspace: Path
    open_another: OpenSandbox
    group: TaskGroup
    """For tasks that continue between runs."""
    ran: set[str] = field(default_factory=set[str])
    """Keys of programs whose results the sandbox still stores."""
    cleanup: AsyncExitStack = field(default_factory=AsyncExitStack)
    """Undoes everything when the session is closed."""

    @property
    def box(self) -> SandboxInfo:
        return self.sandbox.box

    async def run(
        self, request: ExecRequest, hear: Callable[[bytes], None] = ignore_output
    ) -> ExecResult:
        self.ran.add(request.key)
        has_more_to_protect = self.path_watcher.begin()
        set_aside: list[str] = []
        try:
            if has_more_to_protect:
                await self.sandbox.close()  # the restarted sandbox mounts all of it
            ran = await self.sandbox.run(self._equipped(request), hear)
        finally:
            set_aside = self.path_watcher.end()
        return _with_removal_note(ran, set_aside)

    async def attach(
        self,
        name: str,
        request: ExecRequest,
        read_only: tuple[Path, ...] = (),
        networking: Mapping[str, object] | None = None,
    ) -> SandboxedProgram:
        """Start a program that the harness talks to, in a sandbox of its own: see `OpenSandbox`.

        Raises: SandboxFailed, InvalidInput.
        """
        another = self.open_another(name, read_only, networking)
        return await attach_program(another, self._equipped(request))

    def prepare(self) -> None:
        """Start the sandbox in the background, since a program is about to run; no effect if one
        has run in it."""
        if not self.ran:
            self.group.start_soon(self.sandbox.prepare)

    async def find_result(self, key: str) -> ExecResult | None:
        return await self.sandbox.find_result(key)

    async def forget(self, key: str) -> None:
        self.ran.discard(key)
        await self.sandbox.forget(key)

    async def forget_all(self) -> None:
        """Delete the stored results of a run: the log has everything, without secrets."""
        while self.ran:
            with suppress(ToolEnvironmentError):  # it stays longer than necessary
                await self.forget(self.ran.pop())

    @asynccontextmanager
    async def for_thread(self, thread_id: str) -> AsyncGenerator[SandboxSession, None]:
        """The same sandbox for another thread, whose programs do not wait for those of others."""
        sandbox = LazySandbox(self.box, partial(self.open_another, thread_id))
        own = replace(self, sandbox=sandbox, ran=set[str]())
        try:
            yield own
            await own.forget_all()
        finally:
            with CancelScope(shield=True):
                await sandbox.close()

    async def close(self) -> None:
        with CancelScope(shield=True), anyio.move_on_after(_CLOSE_SECONDS):
            await self.cleanup.aclose()

    def _equipped(self, request: ExecRequest) -> ExecRequest:
        return replace(request, env={**self.variables, **request.env})


def _with_removal_note(exec_result: ExecResult, set_aside: list[str]) -> ExecResult:
    """A result that tells the model what was removed, and why."""
    if not set_aside:
        return exec_result
    notice = (
        f"\n[set aside, since it could run outside of the sandbox: {', '.join(set_aside)}."
        " Only people can make these (`git init`, say): ask the user to.]\n"
    ).encode("utf-8", "replace")
    stderr = exec_result.stderr
    with_notice = replace(stderr, tail=stderr.tail + notice, size=stderr.size + len(notice))
    return replace(exec_result, stderr=with_notice)


def check_protected_paths(path_watcher: PathWatcher) -> None:
    """Check once more when a session is closed: a service may have created protected paths."""
    path_watcher.begin()
    with suppress(ToolEnvironmentError):  # nobody is left to report it to
        path_watcher.end()
