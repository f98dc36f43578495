"""A drill: run a suite as if the agent's first model were down, and compare it with the newest
normal run."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

from mainspring.core.errors import InvalidInput
from mainspring.core.events import EvalCaseEnded
from mainspring.improve.evals.gate.baseline import baseline_of
from mainspring.improve.evals.gate.decision import GateResult, gate
from mainspring.improve.evals.runs.case_selection import Selection
from mainspring.improve.evals.runs.run_log import EvalRun, existing_runs, newest_finished_run
from mainspring.improve.evals.runs.runner import RunPlan, RunSettings, SuiteRunner
from mainspring.improve.evals.suite import SuiteFile

LISTED_AS = " (drill)"
"""The suffix of the suite's name in the list of runs."""


def fallback_models(names: str) -> str:
    """The models that remain if the first is down.

    Raises: InvalidInput: there is only one.
    """
    first, _, fallbacks = (part.strip() for part in names.partition(","))
    if not fallbacks:
        raise InvalidInput(f"{first} is the only model: there is nothing to fail over to")
    return fallbacks


@dataclass(frozen=True, slots=True, kw_only=True)
class DrillResult:
    run: EvalRun
    gate: GateResult
    """The gate, with the normal run as its baseline; without a normal run, all cases must pass."""
    normal: EvalRun | None


@dataclass(frozen=True, slots=True)
class Drill:
    runner: SuiteRunner
    """The runner of the agent with its fallback models."""
    suite_file: SuiteFile
    settings: RunSettings

    async def plan(self) -> RunPlan:
        """Plan a new drill, or continue an interrupted one. Raises: InvalidInput."""
        settings = self._settings
        log, name = self.runner.runtime.log, self.suite_file.suite.name + LISTED_AS
        newest = await existing_runs(log, self.runner.agent.name, name, newest=1)
        if newest and newest[0].ended is None and settings.run_id is None:
            settings = replace(settings, run_id=newest[0].id)
        return await self.runner.plan(self.suite_file, Selection(), settings)

    async def run(
        self, plan: RunPlan, on_result: Callable[[EvalCaseEnded], None] = lambda _: None
    ) -> DrillResult:
        """Raises: LeaseHeld: another process runs it."""
        log, name = self.runner.runtime.log, self.suite_file.suite.name
        normal = await newest_finished_run(log, self.runner.agent.name, name)
        run = await self.runner.run(self.suite_file, plan, self._settings, on_result)
        baseline = None if normal is None else baseline_of(normal)
        return DrillResult(run=run, gate=gate(self.suite_file.suite, run, baseline), normal=normal)

    @property
    def _settings(self) -> RunSettings:
        return replace(self.settings, fresh=True, listed_as=LISTED_AS)
