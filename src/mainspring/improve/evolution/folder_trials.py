"""Runs trials of a candidate: a copy of the agent's folder with the candidate's texts, and real
sessions of its suite. A run that was interrupted continues, and no trial is paid for twice."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, AsyncExitStack
from dataclasses import dataclass, field
from decimal import Decimal
from pathlib import Path
from types import TracebackType
from typing import TypeAlias

from anyio import to_thread

from mainspring.core import ids
from mainspring.core.errors import SessionNotFound
from mainspring.core.events import EvalCaseEnded
from mainspring.improve.evals.runs.case_selection import Selection
from mainspring.improve.evals.runs.runner import RunSettings, SuiteRunner
from mainspring.improve.evals.suite import Script, SuiteFile
from mainspring.improve.evolution.candidate import Candidate
from mainspring.improve.evolution.meter import BudgetReached
from mainspring.improve.evolution.observation import Observation, Trial
from mainspring.improve.evolution.session_facts import observation_of
from mainspring.improve.evolution.tracks.folder_texts import copy_with
from mainspring.log.session_log import SessionLog

OpenRunner: TypeAlias = Callable[[Path], AbstractAsyncContextManager[SuiteRunner]]
"""Opens a runner of suites for the agent in a folder."""


_MAX_OPEN = 6
"""Runners that stay open: the versions that are compared, and the last few candidates."""


@dataclass(slots=True)
class OpenRunners:
    """Keeps the runners of the last candidates open, since opening one takes longer than a trial
    of a scripted model. Enter it in the task that uses it."""

    open_runner: OpenRunner
    _stack: AsyncExitStack = field(default_factory=AsyncExitStack)
    _runners: dict[Path, SuiteRunner] = field(default_factory=dict[Path, SuiteRunner])

    async def __aenter__(self) -> OpenRunners:
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        await self._stack.__aexit__(kind, error, trace)

    async def of(self, folder: Path) -> SuiteRunner:
        if folder not in self._runners:
            if len(self._runners) >= _MAX_OPEN:
                self._runners.clear()
                await self._stack.aclose()  # all: they close in the reverse order
            self._runners[folder] = await self._stack.enter_async_context(self.open_runner(folder))
        return self._runners[folder]


@dataclass(frozen=True, slots=True, kw_only=True)
class FolderTrials:
    log: SessionLog
    folder: Path
    base: Candidate
    """The texts that the folder has."""
    suite_file: SuiteFile
    runners: OpenRunners
    place: Path
    """The folder of the copies."""
    name: str
    """Separates its runs from those of others."""

    async def run(
        self,
        candidate: Candidate,
        trials: Sequence[Trial],
        key: str,
        *,
        budget_usd: Decimal | None = None,
        scripts: Mapping[str, Script] | None = None,
    ) -> list[Observation]:
        """Run trials, in the order given. `key` names this batch: a later call with the same key
        continues it.

        Raises: BudgetReached: the money does not suffice for all of them.
        """
        place = self.place / candidate.hash.removeprefix("sha256:")[:16]
        copy = await to_thread.run_sync(copy_with, self.folder, candidate, self.base, place)
        rounds: list[list[Trial]] = []
        counts: Counter[str] = Counter()
        for trial in trials:  # a case twice in a batch runs in two runs of the suite
            if counts[trial.case_id] == len(rounds):
                rounds.append([])
            rounds[counts[trial.case_id]].append(trial)
            counts[trial.case_id] += 1
        results: dict[Trial, Observation] = {}
        runner = await self.runners.of(copy)
        for number, batch in enumerate(rounds):
            settings = RunSettings(
                budget_usd=budget_usd,
                fresh=True,
                listed_as=f" ({self.name})",
                run_id=ids.stable_id(ids.SESSION, self.name, key, str(number)),
                script_of=None if scripts is None else lambda case: scripts[case.id],
            )
            ended = await self._run(runner, [trial.case_id for trial in batch], settings)
            for trial in batch:
                results[trial] = await self._observation(ended[trial.case_id], trial)
        return [results[trial] for trial in trials]

    async def _run(
        self, runner: SuiteRunner, cases: Sequence[str], settings: RunSettings
    ) -> dict[str, EvalCaseEnded]:
        selection = Selection(cases=tuple(cases), trials=1)
        plan = await runner.plan(self.suite_file, selection, settings)
        run = await runner.run(self.suite_file, plan, settings)
        if run.ended is None or run.ended.status != "completed":
            raise BudgetReached("US dollars", settings.budget_usd)
        return {item.case_id: item for item in run.results.values()}

    async def _observation(self, ended: EvalCaseEnded, trial: Trial) -> Observation:
        case = next(item for item in self.suite_file.suite.cases if item.id == trial.case_id)
        try:
            log = [] if ended.outcome == "passed" else await self.log.read(ended.session_id)
        except SessionNotFound:
            log = []
        return observation_of(ended, case, log, trial.number)
