"""Tests a metric before it is used: right answers must score high, an agent that does nothing low,
and the answers of other cases low. A metric that fails is refused by name."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from statistics import fmean

from mainspring.improve.evals.quality.suite_health import NOTHING
from mainspring.improve.evals.suite import Case, Script

MAX_CASES = 12
"""Cases of each control: enough to tell 10 % from 90 %, and seconds of time."""
_LOW, _HIGH, _SHUFFLED = 0.1, 0.9, 0.35
"""Shares: near 0, near 1, and what answers of other cases may pass by coincidence."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Control:
    name: str
    """`no-op`, `oracle` or `shuffled`."""
    scripts: dict[str, Script]
    """What the scripted agent does, by case."""

    def problem(self, metric: str, scores: Sequence[float]) -> str | None:
        """Why the metric cannot be used; `None`: this control does not speak against it."""
        if not scores:
            return None
        mean = fmean(scores)
        match self.name:
            case "no-op" if mean > _LOW:
                return (
                    f"the metric {metric} is refused: an agent that does nothing scores"
                    f" {mean:.0%} (constant, or too lenient)"
                )
            case "oracle" if mean < _HIGH:
                return (
                    f"the metric {metric} is refused: the right answers score {mean:.0%}"
                    " (constant, too late, or wrong)"
                )
            case "shuffled" if mean > _SHUFFLED:
                return (
                    f"the metric {metric} is refused: the answers of other cases score {mean:.0%}"
                    " (it does not look at the case)"
                )
            case _:
                return None


def controls(cases: Sequence[Case]) -> list[Control]:
    """The controls of a suite; the oracle needs cases with a `solution` or `gold`."""
    solved = [(case.id, script) for case in cases if (script := solution(case)) is not None]
    solved = solved[:MAX_CASES]
    shifted = [*solved[1:], *solved[:1]]
    shuffled = {
        name: other for (name, own), (_, other) in zip(solved, shifted, strict=True) if other != own
    }
    return [
        Control(name="no-op", scripts={case.id: NOTHING for case in cases[:MAX_CASES]}),
        Control(name="oracle", scripts=dict(solved)),
        Control(name="shuffled", scripts=shuffled),
    ]


def solution(case: Case) -> Script | None:
    if case.solution is not None:
        return case.solution
    return None if case.gold is None else Script(steps=({"says": case.gold},))
