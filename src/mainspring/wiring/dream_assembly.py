"""Assembles dreams over a folder of memories, from settings."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from decimal import Decimal
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory

from anyio import to_thread

from mainspring.capabilities.providers.script_file import scripted_models
from mainspring.config import Settings
from mainspring.core import clock
from mainspring.improve.dreams.dreamer import Dreamer
from mainspring.improve.dreams.folder_store import FolderStore, SuiteTest
from mainspring.improve.evals.runs.runner import SuiteRunner
from mainspring.improve.evals.suite import SuiteFile
from mainspring.runtime.memory.recall import utility_reader
from mainspring.runtime.run_options import RunOptions
from mainspring.wiring.eval_assembly import open_suite_runner
from mainspring.wiring.memory import memory_folders, open_utility_table
from mainspring.wiring.providers import open_model_registry
from mainspring.wiring.stores import open_log


@dataclass(frozen=True, slots=True, kw_only=True)
class DreamSettings:
    scope: str
    model: str | None = None
    suite: SuiteFile | None = None
    budget_usd: Decimal | None = None
    is_unsandboxed: bool = False
    report: Callable[[str], None] = lambda _: None


@asynccontextmanager
async def open_dreamer(
    settings: Settings, dream_settings: DreamSettings
) -> AsyncGenerator[Dreamer, None]:
    store = FolderStore(memory_folders(settings)[dream_settings.scope])
    read_utility = partial(open_utility_table, settings)
    async with open_log(settings) as log, open_model_registry(settings) as models:
        if dream_settings.model is not None:
            scripts = await to_thread.run_sync(
                scripted_models, dream_settings.model, Path(settings.folder)
            )
            for name, script in scripts.items():
                models.put(name, script)
        with TemporaryDirectory(prefix="mainspring-dream-") as place:
            suite_test = None
            if dream_settings.suite is not None:
                suite_test = SuiteTest(
                    store=store,
                    suite_file=dream_settings.suite,
                    place=Path(place),
                    budget_usd=dream_settings.budget_usd,
                    open_runner=partial(_open_runner, settings, dream_settings),
                )
            yield Dreamer(
                log=log,
                store=store,
                clock=clock.now,
                models=models,
                utility=await utility_reader(log, read_utility)(),
                score=suite_test,
                report=dream_settings.report,
            )


@asynccontextmanager
async def _open_runner(
    settings: Settings, dream_settings: DreamSettings, memory: Path
) -> AsyncGenerator[SuiteRunner, None]:
    options = RunOptions(memory=memory, is_unsandboxed=dream_settings.is_unsandboxed)
    async with open_suite_runner(settings, options) as runner:
        yield runner
