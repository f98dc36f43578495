"""What the grades of real sessions say, beside the newest run of the same suite in the lab."""

from __future__ import annotations

from decimal import Decimal

from msgspec import Struct

from mainspring.improve.evals.comparison import case_results, summarize
from mainspring.improve.evals.production import LISTED_AS
from mainspring.improve.evals.run_log import existing_runs
from mainspring.improve.evals.statistics import Interval, mean_interval
from mainspring.log.session_log import SessionLog

DAYS = 30
"""Grades of the newest days with sessions count."""
_LAB_RUNS = 10


class Score(Struct, frozen=True, kw_only=True):
    count: int
    """Sessions in production, cases in the lab."""
    pass_rate: float
    interval: Interval
    """95 %."""


class ProductionScore(Struct, frozen=True, kw_only=True):
    suite: str
    production: Score
    lab: Score | None
    """The newest run of the suite that ended; `None`: there is none."""
    ungraded: int
    """Sessions for which a grader gave no verdict; they do not count."""
    grading_usd: str
    notes: tuple[str, ...]
    """What a reader of the numbers must know about the judges."""

    @property
    def text(self) -> str:
        real = self.production
        words = f"{real.pass_rate:.1%} (95 %: {real.interval}) of graded sessions ({real.count})"
        if self.ungraded:
            words += f", {self.ungraded} without a verdict"
        if self.lab is None:
            return f"production {words}; no run in the lab"
        lab = self.lab
        return f"production {words}; lab {lab.pass_rate:.1%} (95 %: {lab.interval})"


async def production_score(log: SessionLog, agent_name: str, suite: str) -> ProductionScore | None:
    """`None` if no session has a verdict."""
    days = await existing_runs(log, agent_name, suite + LISTED_AS, newest=DAYS)
    results = [item for run in days for item in run.results.values()]
    passed = [float(item.outcome == "passed") for item in results if item.outcome != "error"]
    if not passed:
        return None
    notes = {grade.note for item in results for grade in item.grades if grade.note is not None}
    return ProductionScore(
        suite=suite,
        production=Score(
            count=len(passed),
            pass_rate=sum(passed) / len(passed),
            interval=mean_interval(passed),
        ),
        lab=await _lab_score(log, agent_name, suite),
        ungraded=len(results) - len(passed),
        grading_usd=str(sum((Decimal(item.grading_usd) for item in results), Decimal(0))),
        notes=tuple(sorted(notes)),
    )


async def _lab_score(log: SessionLog, agent_name: str, suite: str) -> Score | None:
    for run in await existing_runs(log, agent_name, suite, newest=_LAB_RUNS):
        if run.ended is not None and run.results:
            summary = summarize(case_results(run.results.values()))
            return Score(
                count=summary.cases, pass_rate=summary.pass_rate, interval=summary.interval
            )
    return None
