"""The scores of real sessions, compared with the newest run of the same suite in the lab."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from decimal import Decimal

from msgspec import Struct
from msgspec.structs import replace

from mainspring.core.events import EvalCaseEnded
from mainspring.improve.evals.gate.comparison import case_results, summarize
from mainspring.improve.evals.production import LISTED_AS
from mainspring.improve.evals.runs.run_log import existing_runs, newest_finished_run
from mainspring.improve.evals.scoring.grading import meets_constraints
from mainspring.improve.evals.statistics import Interval, mean_interval
from mainspring.log.session_log import SessionLog

DAYS = 30
"""The number of newest days with sessions that count."""


class Score(Struct, frozen=True, kw_only=True):
    count: int
    """The number of sessions in production, or of cases in the lab."""
    pass_rate: float
    interval: Interval
    """The 95 % confidence interval."""


class ProductionScore(Struct, frozen=True, kw_only=True):
    suite: str
    production: Score
    lab: Score | None
    """The newest finished run of the suite, if there is one."""
    lab_by_same_graders: Score | None
    """The score of the same run without the graders of single cases; judges that were not asked do
    not count."""
    ungraded: int
    """The number of sessions without a verdict; they do not count."""
    grading_usd: str
    notes: tuple[str, ...]
    """Notes on the judges for readers of the numbers."""

    @property
    def text(self) -> str:
        real = self.production
        production = f"production {_text(real)} of graded sessions ({real.count})"
        if self.ungraded:
            production += f", {self.ungraded} without a verdict"
        if self.lab is None:
            return f"{production}; no run in the lab"
        text = f"{production}; lab {_text(self.lab)}"
        same = self.lab_by_same_graders
        if same is None or same == self.lab:
            return text
        return f"{text}, {_text(same)} by the same graders"


def _text(score: Score) -> str:
    return f"{score.pass_rate:.1%} (95% confidence: {score.interval})"


async def production_score(log: SessionLog, agent_name: str, suite: str) -> ProductionScore | None:
    """`None` if no session has a verdict."""
    days = await existing_runs(log, agent_name, suite + LISTED_AS, newest=DAYS)
    results = [item for run in days for item in run.results.values()]
    passed = [float(item.outcome == "passed") for item in results if item.outcome != "error"]
    if not passed:
        return None
    graders = {grade.grader for item in results for grade in item.grades}
    lab = await newest_finished_run(log, agent_name, suite)
    notes = {grade.note for item in results for grade in item.grades if grade.note is not None}
    return ProductionScore(
        suite=suite,
        production=Score(
            count=len(passed),
            pass_rate=sum(passed) / len(passed),
            interval=mean_interval(passed),
        ),
        lab=None if lab is None else _lab_score(lab.results.values()),
        lab_by_same_graders=None
        if lab is None
        else _lab_score(_by_graders(lab.results.values(), graders)),
        ungraded=len(results) - len(passed),
        grading_usd=str(sum((Decimal(item.grading_usd) for item in results), Decimal(0))),
        notes=tuple(sorted(notes)),
    )


def _by_graders(results: Iterable[EvalCaseEnded], graders: set[str]) -> Iterator[EvalCaseEnded]:
    """Trials that all these graders have graded, with the grades of only these graders."""
    for item in results:
        grades = tuple(grade for grade in item.grades if grade.grader in graders)
        has_failed = not meets_constraints(grades)
        if has_failed or graders <= {grade.grader for grade in grades}:
            yield replace(item, outcome="failed" if has_failed else "passed", grades=grades)


def _lab_score(results: Iterable[EvalCaseEnded]) -> Score | None:
    summary = summarize(case_results(results))
    if not summary.cases:
        return None
    return Score(count=summary.cases, pass_rate=summary.pass_rate, interval=summary.interval)
