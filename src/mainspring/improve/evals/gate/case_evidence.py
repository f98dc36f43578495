"""What the trials of single cases prove about a change: which cases pass less or more often than
before, corrected for the number of cases, and which have too few trials to tell. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from mainspring.improve.evals.statistics import (
    Passes,
    fewer_passes_p,
    least_fewer_passes_p,
    tarone_divisor,
    trials_to_find_never,
)

CASE_SHARE = 0.1
"""The share of `alpha` for single cases: small beside the paired test, since a case with ten trials
needs far less, and the gate's own error rate stays near `alpha`."""
_STRIKING = 0.5
"""A case that passes this much less often is named even if its trials prove nothing."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CaseChange:
    case_id: str
    before: Passes
    after: Passes
    p: float
    """How likely the change is by chance, not corrected for the number of cases."""

    @property
    def text(self) -> str:
        return f"{self.case_id} ({self.before} trials before, {self.after} now)"


@dataclass(frozen=True, slots=True, kw_only=True)
class CaseEvidence:
    worse: tuple[CaseChange, ...]
    better: tuple[CaseChange, ...]
    undecided: tuple[CaseChange, ...]
    """Cases that pass much less often, which so few trials cannot tell from chance."""
    trials_needed: int
    """With so many trials in both runs, a case that changes from always to never is always
    found."""


def case_evidence(
    before: Mapping[str, Passes], after: Mapping[str, Passes], *, level: float
) -> CaseEvidence:
    """The evidence of the cases that both have. If no case has changed, one is called worse with a
    probability of at most `level`, however many there are."""
    worse = _proven(before, after, level)
    proven = {change.case_id for change in worse}
    shared = [name for name in before if name in after]
    striking = [
        _change(name, before[name], after[name])
        for name in shared
        if name not in proven and _rate(before[name]) - _rate(after[name]) >= _STRIKING
    ]
    return CaseEvidence(
        worse=worse,
        better=tuple(
            CaseChange(case_id=item.case_id, before=item.after, after=item.before, p=item.p)
            for item in _proven(after, before, level)
        ),
        undecided=tuple(striking),
        trials_needed=trials_to_find_never(level / max(1, len(shared))),
    )


def _proven(
    before: Mapping[str, Passes], after: Mapping[str, Passes], level: float
) -> tuple[CaseChange, ...]:
    shared = [name for name in before if name in after]
    least = [least_fewer_passes_p(before[name], after[name]) for name in shared]
    corrected = level / tarone_divisor(least, level)
    changes = [_change(name, before[name], after[name]) for name in shared]
    return tuple(change for change in changes if change.p <= corrected)


def _change(name: str, before: Passes, after: Passes) -> CaseChange:
    return CaseChange(case_id=name, before=before, after=after, p=fewer_passes_p(before, after))


def _rate(passes: Passes) -> float:
    return passes.passed / passes.trials
