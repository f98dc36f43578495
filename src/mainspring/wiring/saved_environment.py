"""Saved environments of this user, and the checkouts in which they are tested."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Callable
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path

import msgspec
from anyio import CancelScope, to_thread

from mainspring.capabilities.tools.shell import captured_text
from mainspring.config import FOLDER, Settings
from mainspring.core import clock
from mainspring.core.ids import new_id
from mainspring.runtime.environment_setup import CheckoutTrial, EnvironmentSetup
from mainspring.runtime.saved_environments import SavedEnvironment, SavedEnvironments
from mainspring.wiring.mcp_packages import with_packages
from mainspring.wiring.sandbox_settings import read_environment, session_paths
from mainspring.wiring.sandboxes import SandboxPool
from mainspring.wiring.settings_files import read_folder_policy
from mainspring.wiring.worktrees import open_worktrees, shared_repository


def saved_environments(home: Path) -> SavedEnvironments:
    return SavedEnvironments(home / FOLDER / "environments")


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
        loaded = await read_folder_policy(settings, repository)
        environment = read_environment(loaded.sandbox, loaded.preferences.sandbox_env)
        read_only = (*environment.read_only, str(await shared_repository(repository)))
        environment = msgspec.structs.replace(environment, read_only=read_only)
        folder = Path(worktree.path)
        environment = environment.with_additions(saved.plan.packages, saved.folder)
        environment = await with_packages(settings, sandboxes, environment, folder, say)
        paths = await to_thread.run_sync(session_paths, settings, folder, key)
        sandbox = await sandboxes.open_session(
            key, paths, environment.with_programs(saved.programs), ()
        )
        say(f"tested: {saved.plan.test}")
        try:
            yield CheckoutTrial(sandbox, folder, environment.program_seconds, captured_text)
        finally:
            await sandboxes.release(key)
            await sandboxes.discard(key)
    finally:
        with CancelScope(shield=True):
            await worktrees.close(worktree, merge=False, message="")
