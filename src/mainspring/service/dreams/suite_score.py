"""The score of a dream's changes by a suite of the folder that the service runs in. It is slow to
import, so only code that runs a suite imports it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass
from decimal import Decimal
from pathlib import Path
from tempfile import TemporaryDirectory

from anyio import to_thread

from mainspring.core.events import DreamScore
from mainspring.improve.dreams.dreamer import DreamStore
from mainspring.improve.dreams.folder_store import SuiteTest
from mainspring.improve.evals.runs.runner import SuiteRunner
from mainspring.improve.evals.suite import SuiteFile
from mainspring.improve.evals.suites.suite_files import named_suite
from mainspring.runtime.memory.learning.memory_edits import MemoryEdit
from mainspring.runtime.run_options import RunOptions


@dataclass(frozen=True, slots=True, kw_only=True)
class SuiteScore:
    """Runs the suite on copies of the memories, without and with the changes."""

    store: DreamStore
    folder: Path
    suite: str
    budget_usd: Decimal | None
    model: str | None
    open_runner: Callable[[RunOptions, bool], AbstractAsyncContextManager[SuiteRunner]]

    async def __call__(self, edits: Sequence[MemoryEdit]) -> DreamScore | None:
        """Raises: InvalidInput: the suite cannot be run."""
        suite_file = await to_thread.run_sync(find_suite, self.folder, self.suite)
        with TemporaryDirectory(prefix="mainspring-dream-") as place:
            test = SuiteTest(
                store=self.store,
                suite_file=suite_file,
                place=Path(place),
                budget_usd=self.budget_usd,
                open_runner=lambda memory: self.open_runner(
                    RunOptions(model=self.model, memory=memory), False
                ),
            )
            return await test(edits)


def find_suite(folder: Path, name: str) -> SuiteFile:
    """Blocks. Raises: InvalidInput."""
    return named_suite(folder, name, field="suite")
