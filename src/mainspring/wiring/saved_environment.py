"""Saved environments of this user: what a sandbox gets of one, and checkouts that prove one."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import msgspec
from anyio import CancelScope, to_thread

from mainspring.capabilities.sandbox.sandbox_environment import SandboxEnvironment
from mainspring.capabilities.sandbox.sandbox_session import SandboxSession
from mainspring.capabilities.tools.shell import captured_text
from mainspring.config import FOLDER, Settings
from mainspring.core import clock
from mainspring.core.errors import SandboxFailed
from mainspring.core.ids import new_id
from mainspring.core.ports import ExecRequest
from mainspring.runtime.environment_setup import EnvironmentSetup, TrialResult
from mainspring.runtime.saved_environments import SavedEnvironment, SavedEnvironments
from mainspring.wiring.mcp_packages import with_packages
from mainspring.wiring.sandbox_environment import read_environment, session_paths
from mainspring.wiring.sandbox_pool import SandboxPool
from mainspring.wiring.session_repositories import open_worktrees, shared_repository
from mainspring.wiring.settings_files import load_policy

_PATH = "/usr/local/bin:/usr/bin:/bin"


def saved_environments(home: Path) -> SavedEnvironments:
    return SavedEnvironments(home / FOLDER / "environments")


def with_saved(environment: SandboxEnvironment, saved: SavedEnvironment) -> SandboxEnvironment:
    """With its packages, in addition to those that settings name."""
    own, packages = saved.plan.packages, environment.packages
    wanted = {
        manager: tuple(dict.fromkeys((*own.get(manager, ()), *getattr(packages, manager))))
        for manager in ("pip", "npm", "apt")
    }
    return msgspec.structs.replace(
        environment,
        packages=msgspec.structs.replace(packages, **wanted),
        read_only=(*environment.read_only, saved.folder),
    )


def with_programs(environment: SandboxEnvironment, saved: SavedEnvironment) -> SandboxEnvironment:
    """With its own programs before all others."""
    path = f"{saved.programs}:{environment.variables.get('PATH', _PATH)}"
    return msgspec.structs.replace(environment, variables={**environment.variables, "PATH": path})


async def restore_files(sandbox: SandboxSession, saved: SavedEnvironment) -> None:
    """Files that its setup made, where the workspace has none of that name.

    Raises: SandboxFailed.
    """
    if not await to_thread.run_sync(saved.missing_files, sandbox.workspace):
        return
    archive = str(saved.archive)
    argv = ("tar", "--extract", "--skip-old-files", "--no-same-owner", "--file", archive)
    result = await sandbox.run(ExecRequest(key=new_id("env"), argv=argv, wall_seconds=600))
    if result.status != 0:
        raise SandboxFailed(f"the files of its environment: {captured_text(result.stderr)[-500:]}")


@dataclass(frozen=True, slots=True)
class CheckoutTrial:
    sandbox: SandboxSession
    seconds: int

    @property
    def workspace(self) -> Path:
        return self.sandbox.workspace

    async def run(self, command: str) -> TrialResult:
        argv = ("bash", "--noprofile", "--norc", "-c", f"exec 2>&1; {command}")
        result = await self.sandbox.run(
            ExecRequest(key=new_id("env"), argv=argv, wall_seconds=self.seconds)
        )
        output = captured_text(result.stdout)
        if result.stop_cause:
            output += f"\n[stopped: {result.stop_cause}]"
        return TrialResult(is_ok=result.status == 0, output=output)


def environment_setup(
    settings: Settings,
    sandboxes: SandboxPool,
    repository: Path,
    test: str | None,
    say: Callable[[str], None],
) -> EnvironmentSetup:
    return EnvironmentSetup(
        repository=repository,
        environments=saved_environments(Path(settings.home)),
        open_trial=partial(_open_trial, settings, sandboxes, say),
        clock=clock.now,
        test=test,
    )


@asynccontextmanager
async def _open_trial(
    settings: Settings,
    sandboxes: SandboxPool,
    say: Callable[[str], None],
    saved: SavedEnvironment,
) -> AsyncGenerator[CheckoutTrial, None]:
    repository, key = Path(saved.repository), new_id("env")
    place = repository / FOLDER / "worktrees"
    worktrees, name = open_worktrees(repository, place), f"environment-{saved.session_id[-8:]}"
    if await to_thread.run_sync((place / name).exists):  # a crash has left it
        await worktrees.close(await worktrees.open(name), merge=False, message="")
    worktree = await worktrees.open(name)
    try:
        home = Path(settings.home)
        loaded = await to_thread.run_sync(lambda: load_policy(repository, home=home))
        environment = read_environment(loaded.sandbox, loaded.preferences.sandbox_env)
        shared = (*environment.read_only, str(await shared_repository(repository)))
        environment = msgspec.structs.replace(environment, read_only=shared)
        folder = Path(worktree.path)
        environment = with_saved(environment, saved)
        environment = await with_packages(settings, sandboxes, environment, folder, say)
        paths = await to_thread.run_sync(session_paths, settings, folder, key)
        sandbox = await sandboxes.open_session(key, paths, with_programs(environment, saved), ())
        say(f"tested: {saved.plan.test}")
        try:
            yield CheckoutTrial(sandbox, environment.program_seconds)
        finally:
            await sandboxes.release(key)
            await sandboxes.discard(key)
    finally:
        with CancelScope(shield=True):
            await worktrees.close(worktree, merge=False, message="")
