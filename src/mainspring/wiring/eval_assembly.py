"""Assembles a runner of eval suites, from settings."""

from __future__ import annotations

import time
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from dataclasses import replace
from functools import partial
from pathlib import Path

from anyio import to_thread

from mainspring.capabilities.providers.script_file import (
    scripted_conversation,
    scripted_models,
    scripts_hash,
)
from mainspring.config import FOLDER, Settings, is_postgres
from mainspring.core import ids
from mainspring.core.ports import ExecRequest, ExecResult
from mainspring.harness.context.summary import SUMMARY_OPENING
from mainspring.improve.evals.drill import fallback_models
from mainspring.improve.evals.runs.runner import SuiteRunner
from mainspring.improve.evals.scoring.grading_context import RunProgram
from mainspring.runtime.run_options import RunOptions
from mainspring.runtime.settings.policy_loader import LoadedPolicy
from mainspring.wiring.agent_selection import agent_selection, home_place
from mainspring.wiring.runtime_assembly import open_runtime
from mainspring.wiring.sandbox_settings import read_environment, session_paths
from mainspring.wiring.sandboxes import SandboxPool, sandbox_pool
from mainspring.wiring.settings_files import read_folder_policy, with_key_helper


@asynccontextmanager
async def open_suite_runner(
    settings: Settings, options: RunOptions, *, is_drill: bool = False
) -> AsyncGenerator[SuiteRunner, None]:
    """`is_drill`: act as if the first of the agent's models were down.

    Raises: InvalidInput: the agent or its model cannot be used.
    """
    folder = Path(settings.folder, options.agent or ".")
    policy = await read_folder_policy(settings, folder)
    settings = with_key_helper(settings, policy)
    options = replace(options, agent=folder, is_headless=True)
    async with (
        open_runtime(settings, options=options, idle_sandboxes=0) as runtime,
        sandbox_pool(settings, is_unsandboxed=options.is_unsandboxed, most_idle=0) as sandboxes,
    ):
        load = partial(agent_selection(settings).open, options, facts=runtime.models.facts)
        loaded = await to_thread.run_sync(load)
        agent = loaded.agent
        scripts = await to_thread.run_sync(scripted_models, agent.model, loaded.folder)
        for name, script in scripts.items():
            runtime.models.put(name, script)
        model = runtime.models.resolve(agent.model)
        model = fallback_models(model) if is_drill else model
        runtime.models.open(model)
        yield SuiteRunner(
            runtime=runtime,
            agent=replace(agent, model=model),
            run_program=_program_runner(settings, sandboxes, policy),
            make_script=partial(scripted_conversation, summary_prompt=SUMMARY_OPENING),
            place=_state(settings) / "evals",
            verdicts=home_place(settings, "verdicts"),
            monotonic=time.monotonic,
            model_hash=await to_thread.run_sync(scripts_hash, list(scripts), loaded.folder),
            read_scripts=partial(scripted_models, folder=loaded.folder),
            hash_scripts=partial(scripts_hash, folder=loaded.folder),
        )


@asynccontextmanager
async def open_program_runner(
    settings: Settings, *, is_unsandboxed: bool = False
) -> AsyncGenerator[RunProgram, None]:
    """Runs programs of people and of campaigns, without an agent."""
    policy = await read_folder_policy(settings, Path(settings.folder))
    async with sandbox_pool(settings, is_unsandboxed=is_unsandboxed, most_idle=0) as sandboxes:
        yield _program_runner(settings, sandboxes, policy)


def _state(settings: Settings) -> Path:
    store = Path(settings.folder, FOLDER) if is_postgres(settings.store) else Path(settings.store)
    return store if is_postgres(settings.store) else store.parent


def _program_runner(settings: Settings, sandboxes: SandboxPool, policy: LoadedPolicy) -> RunProgram:
    """Each program has its own sandbox, as the user isolates programs, without network and without
    the user's secrets."""
    environment = read_environment(policy.sandbox).isolation

    async def run_program(folder: Path, program: ExecRequest) -> ExecResult:
        name = ids.stable_id(ids.SESSION, "grader", str(folder), program.key)
        paths = await to_thread.run_sync(session_paths, settings, folder, name)
        sandbox = await sandboxes.open_session(name, paths, environment, ())
        try:
            return await sandbox.run(program)
        finally:
            await sandboxes.release(name)

    return run_program
