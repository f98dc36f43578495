"""Saved environments of this user, and the sandboxes that prove one."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Callable
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path

import msgspec
from anyio import to_thread

from mainspring.config import FOLDER, Settings
from mainspring.core import clock
from mainspring.core.ids import new_id
from mainspring.runtime.environment_setup import EnvironmentSetup, Trial
from mainspring.runtime.saved_environments import SavedEnvironment, SavedEnvironments
from mainspring.runtime.thread_setup import SAVED_ENVIRONMENTS
from mainspring.wiring.mcp_packages import with_packages
from mainspring.wiring.sandbox_environment import read_environment, session_paths
from mainspring.wiring.sandbox_pool import SandboxPool
from mainspring.wiring.session_repositories import open_worktrees, shared_repository
from mainspring.wiring.settings_files import load_policy


def saved_environments(settings: Settings) -> SavedEnvironments:
    return SavedEnvironments(Path(settings.home) / SAVED_ENVIRONMENTS)


def environment_setup(
    settings: Settings,
    sandboxes: SandboxPool,
    repository: Path,
    test: str | None,
    say: Callable[[str], None],
) -> EnvironmentSetup:
    return EnvironmentSetup(
        repository=repository,
        environments=saved_environments(settings),
        worktrees=open_worktrees(repository, repository / FOLDER / "worktrees"),
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
    folder: Path,
) -> AsyncGenerator[Trial, None]:
    repository, key = Path(saved.repository), new_id("env")
    loaded = await to_thread.run_sync(lambda: load_policy(repository, home=Path(settings.home)))
    environment = read_environment(loaded.sandbox, loaded.preferences.sandbox_env)
    shared = str(await shared_repository(repository))
    environment = msgspec.structs.replace(
        environment,
        packages=environment.packages.added(saved.plan.packages),
        read_only=(*environment.read_only, saved.folder, shared),
    )
    environment = await with_packages(settings, sandboxes, environment, folder, say)
    paths = await to_thread.run_sync(session_paths, settings, folder, key)
    environment = environment.with_programs(saved.programs)
    sandbox = await sandboxes.open_session(key, paths, environment, ())
    say(f"tested: {saved.plan.test}")
    try:
        yield Trial(sandbox, folder, environment.program_seconds)
    finally:
        await sandboxes.release(key)
        await sandboxes.discard(key)
