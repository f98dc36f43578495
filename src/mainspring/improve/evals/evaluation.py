"""The port for code that improves agents: score a candidate on a suite, within a budget."""

from __future__ import annotations

from dataclasses import dataclass
from decimal import Decimal

from mainspring.improve.evals.gate.comparison import (
    CaseResults,
    ResultSummary,
    case_results,
    summarize,
)
from mainspring.improve.evals.runs.case_selection import Selection
from mainspring.improve.evals.runs.runner import RunSettings, SuiteRunner
from mainspring.improve.evals.suite import SuiteFile


@dataclass(frozen=True, slots=True, kw_only=True)
class Scores:
    run_id: str
    cases: CaseResults
    """Trials and rewards by case, for `comparison.compare`."""
    summary: ResultSummary
    cost_usd: Decimal
    is_complete: bool
    """False if the budget was reached; then the scores cover only some of the cases and must not be
    used to decide."""


async def evaluate(
    candidate: SuiteRunner,
    suite_file: SuiteFile,
    budget_usd: Decimal | None,
    *,
    name: str = "",
) -> Scores:
    """Run a suite with a candidate, the runner's agent. `name` separates the runs of candidates
    from the suite's own runs."""
    settings = RunSettings(budget_usd=budget_usd, listed_as=f" ({name})" if name else "")
    plan = await candidate.plan(suite_file, Selection(), settings)
    run = await candidate.run(suite_file, plan, settings)
    cases = case_results(run.results.values())
    return Scores(
        run_id=run.id,
        cases=cases,
        summary=summarize(cases),
        cost_usd=run.cost_usd,
        is_complete=run.ended is not None and run.ended.status == "completed",
    )
