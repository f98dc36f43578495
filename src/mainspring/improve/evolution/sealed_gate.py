"""Decides on a candidate by cases that no optimiser ever sees: the paired differences of candidate
and current version, looked at a few times, with the error rate spent over the looks. Hard
constraints come first. Pure, but for the trials that it asks for."""

from __future__ import annotations

import math
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from statistics import fmean
from typing import Literal, TypeAlias

from msgspec import Struct
from msgspec.structs import replace

from mainspring.core.events import EvolutionDecision as GateDecision
from mainspring.improve.evals.statistics import (
    PairedTest,
    paired_test,
    sign_flip_p,
    squared_distance,
)
from mainspring.improve.evolution.observation import Observation, Trial

Decision: TypeAlias = Literal["promote", "refuse", "undecided"]
Pair: TypeAlias = tuple[Observation, Observation]
"""The current version's and the candidate's result of the same trial."""
RunPairs: TypeAlias = Callable[[Sequence[Trial]], Awaitable[Sequence[Pair]]]
_EFFECT = 0.1
"""The gain that a gate should find; if it cannot, it needs more cases."""
_MIN_TAG_CASES = 5
"""Cases of a tag; below it a difference of the tag is chance."""


class GatePolicy(Struct, frozen=True, kw_only=True):
    """What a promotion needs."""

    alpha: float = 0.05
    """The chance to promote something that is not better, over all looks."""
    looks: tuple[float, ...] = (0.25, 0.5, 0.75, 1.0)
    """The shares of the trials after which it looks."""
    trials: int = 1
    """Trials of each case."""
    tag_margin: float = 0.1
    """How much worse a group of cases may be, before its own test counts."""
    max_cost_ratio: float = 2.0
    """How much more a trial may cost."""
    screen_cases: int = 0
    """Cases of a first cheap test that a candidate must win; 0: none."""
    screen_wins: int = 2
    """The net wins that the first test needs."""


_SCREENED, _MIN_SCREENED = 30, 150
"""Cases that a proposal of a stream must win first, and how many there must be in all: with fewer,
the gate itself is cheap."""


def stream_policy(policy: GatePolicy, cases: int) -> GatePolicy:
    """For proposals that nobody has tested: a cheap test first, and half of the error rate, since
    most of a stream are not better."""
    screened = _SCREENED if cases >= _MIN_SCREENED else 0
    return replace(policy, alpha=policy.alpha / 2, screen_cases=screened)


@dataclass(slots=True, kw_only=True)
class SealedGate:
    """One decision at a time; several decisions of a campaign share the error rate `alpha`."""

    policy: GatePolicy
    must_pass: frozenset[str] = frozenset()
    tags: Mapping[str, Sequence[str]] = field(default_factory=dict[str, Sequence[str]])
    """Tags by case."""
    share: float = 1.0
    """The share of the error rate that this decision may spend."""

    async def decide(self, cases: Sequence[str], run: RunPairs) -> GateDecision:
        """Run the trials look by look, and stop as soon as the result is clear."""
        policy = self.policy
        screened = cases[: policy.screen_cases]
        pairs: list[Pair] = []
        if screened:
            pairs += await run([Trial(case) for case in screened])
            wins, losses = _wins(pairs)
            if wins - losses < policy.screen_wins:
                reason = f"the first {len(screened)} cases have {wins} wins and {losses} losses"
                return _decision("refuse", reason, _test(pairs), looks=1)
        trials = [
            Trial(case, number)
            for number in range(1, policy.trials + 1)
            for case in cases[len(screened) :]
        ]
        confirmed: list[Pair] = []
        spent, start = 0.0, 0
        for look, share in enumerate(policy.looks, 1):
            end = max(start, round(share * len(trials)))
            confirmed += await run(trials[start:end])
            start = end
            level = policy.alpha * self.share * (share**2) - spent
            spent += level
            decision = self._look(confirmed, level, is_last=look == len(policy.looks))
            if decision is not None:
                return _with_spending(decision, spent, look)
        raise AssertionError("the last look always decides")

    def _look(self, pairs: Sequence[Pair], level: float, *, is_last: bool) -> GateDecision | None:
        """`None`: look again later."""
        test = _test(pairs)
        if (refusal := self._refusal(pairs)) is not None:
            return _decision("refuse", refusal, test)
        if test.p_better < level:
            return _decision("promote", _better(test), test)
        is_hopeless = test.difference <= 0 and test.cases >= _MIN_FUTILE
        if not is_last and not is_hopeless:
            return None
        missing = max(0, _cases_needed(test, self.policy.alpha) - test.cases)
        if is_last and missing and test.difference > 0:
            reason = f"not enough cases to decide: {missing} more are needed; {_better(test)}"
            return _decision("undecided", reason, test, missing=missing)
        lost = _lost(pairs)
        names = f", lost {', '.join(lost[:3])}" if lost else ""
        return _decision("refuse", f"not better: {_better(test)}{names}", test, lost=lost)

    def _refusal(self, pairs: Sequence[Pair]) -> str | None:
        """A hard reason that no gain outweighs."""
        for old, new in pairs:
            if new.violation is not None and old.violation is None:
                return f"{new.case_id} violates a hard constraint: {new.violation}"
        lost = [name for name in _lost(pairs) if name in self.must_pass]
        if lost:
            return f"must pass, but fails: {', '.join(lost)}"
        if (worse := self._worse_tag(pairs)) is not None:
            return worse
        costs = [
            float(sum(float(item.cost_usd) for item in side)) for side in zip(*pairs, strict=True)
        ]
        if costs and costs[1] > costs[0] * self.policy.max_cost_ratio and costs[0] > 0:
            return f"a trial costs {costs[1] / costs[0]:.1f} times as much"
        return None

    def _worse_tag(self, pairs: Sequence[Pair]) -> str | None:
        groups: dict[str, list[Pair]] = {}
        for pair in pairs:
            for tag in self.tags.get(pair[0].case_id, ()):
                groups.setdefault(tag, []).append(pair)
        for tag, members in sorted(groups.items()):
            changes = _differences(members)
            mean = fmean(changes)
            is_worse = sign_flip_p([-change for change in changes]) < self.policy.alpha
            if len(changes) >= _MIN_TAG_CASES and mean < -self.policy.tag_margin and is_worse:
                return f"cases with the tag {tag} are worse by {-mean * 100:.0f} points"
        return None


_MIN_FUTILE = 20
"""Cases; below it a difference of zero says nothing."""


def _by_case(pairs: Sequence[Pair]) -> dict[str, list[Pair]]:
    cases: dict[str, list[Pair]] = {}
    for pair in pairs:
        cases.setdefault(pair[0].case_id, []).append(pair)
    return cases


def _test(pairs: Sequence[Pair]) -> PairedTest:
    cases = _by_case(pairs).values()
    old = [[_score(before) for before, _ in items] for items in cases]
    new = [[_score(after) for _, after in items] for items in cases]
    return paired_test(old, new)


def _score(observation: Observation) -> float:
    return 0.0 if observation.violation is not None else observation.score


def _differences(pairs: Sequence[Pair]) -> list[float]:
    return [
        fmean(_score(after) - _score(before) for before, after in items)
        for items in _by_case(pairs).values()
    ]


def _wins(pairs: Sequence[Pair]) -> tuple[int, int]:
    changes = _differences(pairs)
    return sum(value > 0 for value in changes), sum(value < 0 for value in changes)


def _lost(pairs: Sequence[Pair]) -> tuple[str, ...]:
    """Cases whose every trial passed before, and fails now."""
    return tuple(
        name
        for name, items in _by_case(pairs).items()
        if all(before.is_passed for before, _ in items)
        and not any(after.is_passed for _, after in items)
    )


def _cases_needed(test: PairedTest, alpha: float) -> int:
    """How many cases would find a gain of `_EFFECT` four times in five."""
    spread = test.spread or 0.5
    return math.ceil(squared_distance(alpha) * (spread / _EFFECT) ** 2)


def _better(test: PairedTest) -> str:
    return (
        f"{test.difference * 100:+.1f} points on {test.cases} sealed cases ({test.wins} better,"
        f" {test.losses} worse; 95 %: {test.interval.low * 100:+.1f} to"
        f" {test.interval.high * 100:+.1f}; p {test.p_better:.4f})"
    )


def _decision(
    decision: Decision,
    reason: str,
    test: PairedTest,
    *,
    looks: int = 0,
    missing: int = 0,
    lost: tuple[str, ...] = (),
) -> GateDecision:
    return GateDecision(
        decision=decision,
        reason=reason,
        cases=test.cases,
        wins=test.wins,
        losses=test.losses,
        difference=round(test.difference, 6),
        low=round(test.interval.low, 6),
        high=round(test.interval.high, 6),
        p=round(test.p_better, 6),
        looks=looks,
        lost=lost,
        cases_missing=missing,
    )


def _with_spending(decision: GateDecision, spent: float, look: int) -> GateDecision:
    return replace(decision, alpha_spent=round(spent, 6), looks=look)
