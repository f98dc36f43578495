"""One run of a suite for a deployment, and the reasons for an alarm about it. It is slow to import,
so only code that runs a suite imports it."""

from __future__ import annotations

from dataclasses import dataclass
from decimal import Decimal
from pathlib import Path

from mainspring.core.errors import InvalidInput
from mainspring.improve.evals.drill import Drill, fallback_models
from mainspring.improve.evals.reports.trend import REFERENCE_RUNS, suite_trend
from mainspring.improve.evals.runs.case_selection import Selection
from mainspring.improve.evals.runs.run_log import EvalRun, existing_runs
from mainspring.improve.evals.runs.runner import RunSettings, SuiteRunner
from mainspring.improve.evals.suite import SuiteFile
from mainspring.improve.evals.suites.suite_files import named_suite
from mainspring.service.schedules.deployment_types import EvalAction

_RUNS_LOOKED_AT = 200  # the newest runs of a suite, of which the trend is
_SCRIPTED = "scripted:"


def find_suite(folder: Path, action: EvalAction) -> SuiteFile:
    """The suite of an action. Blocks. Raises: InvalidInput: it cannot be run in this folder."""
    if _SCRIPTED in (action.model or ""):
        raise InvalidInput(
            "action.model: only the operator may choose a script, with serve --model"
        )
    if action.is_drill and action.model is not None:
        fallback_models(action.model)
    return named_suite(folder, action.suite, field="action.suite")


@dataclass(frozen=True, slots=True, kw_only=True)
class SuiteRun:
    runner: SuiteRunner
    suite_file: SuiteFile
    run_id: str
    """If a run with this id exists, it is continued."""
    budget_usd: Decimal | None

    async def run(self) -> list[str]:
        """Run it; returns the reasons for an alarm. Raises: LeaseHeld: another process runs it."""
        settings = self._settings
        plan = await self.runner.plan(self.suite_file, Selection(), settings)
        return await self._trend_reasons(await self.runner.run(self.suite_file, plan, settings))

    async def run_drill(self) -> list[str]:
        drill = Drill(self.runner, self.suite_file, self._settings)
        result = await drill.run(await drill.plan())
        return [*result.gate.reasons, *await self._trend_reasons(result.run)]

    @property
    def _settings(self) -> RunSettings:
        return RunSettings(budget_usd=self.budget_usd, fresh=True, run_id=self.run_id)

    async def _trend_reasons(self, run: EvalRun) -> list[str]:
        results = run.results.values()
        if results and all(item.outcome == "error" for item in results):
            first = next(iter(results)).error or "an unknown error"
            return [f"no trial had a verdict: {first}"]
        name = run.created.suite
        log, agent = self.runner.runtime.log, self.runner.agent.name
        runs = await existing_runs(log, agent, name, newest=_RUNS_LOOKED_AT)
        now = suite_trend(runs, self.suite_file.suite)
        if not now.is_alarm or now.reference is None:
            return []
        last = now.points[-1].rate
        before = f"{now.reference:.0%} in its first {REFERENCE_RUNS} runs"
        return [f"{name} passes less often: {last.passed} of {last.trials} trials, {before}"]
