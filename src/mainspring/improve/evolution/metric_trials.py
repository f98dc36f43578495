"""Trials that a function of a program scores, instead of the graders of the suite."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from decimal import Decimal
from typing import TypeAlias

from msgspec.structs import replace

from mainspring.improve.evals.suite import Case, Script
from mainspring.improve.evals.trajectory import read_trajectory
from mainspring.improve.evolution.candidate import Candidate
from mainspring.improve.evolution.observation import Fact, Observation, Trial
from mainspring.improve.evolution.ports import RunTrials
from mainspring.log.session_log import SessionLog

Metric: TypeAlias = Callable[[Case, str], float]
"""Takes a case and the agent's answer; returns its score from 0 to 1. 0.5 and more is a pass."""


@dataclass(frozen=True, slots=True)
class MetricTrials:
    runs: RunTrials
    log: SessionLog
    cases: Iterable[Case]
    metric: Metric

    async def run(
        self,
        candidate: Candidate,
        trials: Sequence[Trial],
        key: str,
        *,
        budget_usd: Decimal | None = None,
        scripts: Mapping[str, Script] | None = None,
    ) -> list[Observation]:
        cases = {case.id: case for case in self.cases}
        results = await self.runs.run(
            candidate, trials, key, budget_usd=budget_usd, scripts=scripts
        )
        return [await self._scored(item, cases[item.case_id]) for item in results]

    async def _scored(self, item: Observation, case: Case) -> Observation:
        answer = read_trajectory(await self.log.read(item.session_id)).answer
        score = min(1.0, max(0.0, float(self.metric(case, answer))))
        name = getattr(self.metric, "__name__", "metric")
        checked = replace(item, score=score, failed_checks=(), facts=())
        if checked.is_passed:
            return replace(checked, critique="")
        facts = item.facts or (Fact("message", name),)
        critique = item.critique or f"answered: {answer[:500]}"
        return replace(checked, failed_checks=(name,), facts=facts, critique=critique)
