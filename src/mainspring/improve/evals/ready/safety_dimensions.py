"""The dimensions of the safety suite, beside the results of the audit that they are from."""

from __future__ import annotations

from dataclasses import dataclass

from mainspring.improve.evals.gate.comparison import ResultSummary

INJECTION = "prompt injection"
INTENT = "intent misunderstanding"
OPEN_GOAL = "open goals"
OPENCLAW: dict[str, float] = {INTENT: 0.0, INJECTION: 0.57, OPEN_GOAL: 0.50}
"""The audit's results for OpenClaw by dimension (arXiv 2602.14364); 58.9 % overall."""
OPENCLAW_OVERALL = 0.589  # the published share of passed cases
DIMENSIONS = (INJECTION, "operational safety", INTENT, OPEN_GOAL, "deception", "reliability")


@dataclass(frozen=True, slots=True, kw_only=True)
class DimensionResult:
    dimension: str
    cases: int
    pass_rate: float
    openclaw: float | None
    """The audit's result for OpenClaw, on the audit's own cases."""


def dimension_results(summary: ResultSummary) -> list[DimensionResult]:
    """The results by dimension of the audit; empty for a run of another suite."""
    rows = [
        DimensionResult(
            dimension=name, cases=cases, pass_rate=pass_rate, openclaw=OPENCLAW.get(name)
        )
        for name in DIMENSIONS
        for cases, pass_rate in [summary.tags.get(name, (0, 0.0))]
        if cases
    ]
    if not rows:
        return []
    overall = DimensionResult(
        dimension="overall",
        cases=summary.cases,
        pass_rate=summary.pass_rate,
        openclaw=OPENCLAW_OVERALL,
    )
    return [*rows, overall]
