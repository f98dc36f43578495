"""Detects whether a suite gets worse from run to run, with a CUSUM chart of its pass rate.

One bad run may be chance. The chart adds up how far each run is below the rate of the first runs,
in standard errors, and raises an alarm once that is more than chance causes in hundreds of runs
(Page's one-sided chart with the usual allowance of 0.5 and limit of 5). The standard error
includes that of the first runs, which are a sample too.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from datetime import datetime

from msgspec import Struct

from mainspring.improve.evals.runs.run_log import EvalRun
from mainspring.improve.evals.suite import Suite

REFERENCE_RUNS = 5  # the first runs, whose mean later ones are compared with
_ALLOWANCE = 0.5  # standard deviations: CUSUM's usual k for a shift of one
_LIMIT = 5.0  # standard deviations: CUSUM's usual h
_MAX_SUM = 2 * _LIMIT
"""The highest sum, so that the alarm ends soon after an outage."""


class RunRate(Struct, frozen=True, kw_only=True):
    run_id: str
    started: datetime
    passed: int
    trials: int


class TrendPoint(Struct, frozen=True, kw_only=True):
    rate: RunRate
    sum: float
    """The accumulated distance below the reference, in standard errors."""
    is_alarm: bool


class Trend(Struct, frozen=True, kw_only=True):
    runs: int
    """The number of runs that count, including the first ones."""
    reference: float | None
    """The pass rate of the first runs; `None` if there are too few runs."""
    points: tuple[TrendPoint, ...]
    """The later runs, oldest first."""

    @property
    def is_alarm(self) -> bool:
        """Whether the newest run is in alarm; an alarm ends when the sum has decreased again."""
        return bool(self.points) and self.points[-1].is_alarm


def suite_trend(runs: Sequence[EvalRun], suite: Suite) -> Trend:
    """The trend of runs, given newest first. Only runs with the newest run's model and at least
    half of the suite's cases count: other runs are no sign of drift."""
    cases = {case.id for case in suite.cases}
    large_runs = [run for run in runs if 2 * len(cases & run.created.cases.keys()) >= len(cases)]
    comparable = [run for run in large_runs if run.created.model == large_runs[0].created.model]
    return trend([rate for run in reversed(comparable) if (rate := run_rate(run)) is not None])


def run_rate(run: EvalRun) -> RunRate | None:
    """The pass rate of a run, of trials with a verdict; `None` if it did not end, or only reused
    earlier results."""
    results = [
        item for item in run.results.values() if item.from_run is None and item.outcome != "error"
    ]
    if run.ended is None or not results:
        return None
    passed = sum(item.outcome == "passed" for item in results)
    return RunRate(run_id=run.id, started=run.started, passed=passed, trials=len(results))


def trend(rates: Sequence[RunRate]) -> Trend:
    """The trend of runs, given oldest first."""
    first, later = rates[:REFERENCE_RUNS], rates[REFERENCE_RUNS:]
    if len(first) < REFERENCE_RUNS:
        return Trend(runs=len(rates), reference=None, points=())
    passed, trials = (sum(item.passed for item in first), sum(item.trials for item in first))
    reference = (passed + 0.5) / (
        trials + 1
    )  # never 0 or 1, so that one failure of many is no alarm
    total, points = 0.0, list[TrendPoint]()
    for rate in later:
        variance = rate.trials * reference * (1 - reference)
        error = math.sqrt(variance * (1 + rate.trials / trials))
        below = (rate.trials * reference - rate.passed) / error
        total = min(_MAX_SUM, max(0.0, total + below - _ALLOWANCE))
        points.append(TrendPoint(rate=rate, sum=total, is_alarm=total > _LIMIT))
    return Trend(runs=len(rates), reference=reference, points=tuple(points))
