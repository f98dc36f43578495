"""How often the eval gate closes, in worlds whose truth is known, through the function that
`mainspring eval run --gate` calls."""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime

from report import Measure, note

from mainspring.core.events import EvalCaseEnded, EvalRunCreated, EvalRunEnded
from mainspring.improve.evals.gate.baseline import baseline_of
from mainspring.improve.evals.gate.decision import GateResult, gate
from mainspring.improve.evals.runs.run_log import EvalRun
from mainspring.improve.evals.suite import Case, Suite

WORLDS = 4_000
SEED = 2_718_281
COLUMNS = (
    (0.99, 50, 1),
    (0.95, 20, 1),
    (0.95, 50, 1),
    (0.95, 150, 1),
    (0.95, 50, 3),
    (0.95, 150, 3),
    (0.9, 50, 3),
    (0.9, 50, 5),
    (0.8, 50, 5),
)
"""The chance that a trial passes, cases, and trials."""
ALPHA = 0.05
"""The default of suites."""


@dataclass(frozen=True, slots=True)
class World:
    """The chance of each case, the number of trials, and which cases must pass."""

    chances: Sequence[float]
    trials: int
    must_pass: frozenset[int] = frozenset()

    @property
    def suite(self) -> Suite:
        cases = tuple(
            Case(id=f"c{at}", input="x", must_pass=at in self.must_pass)
            for at in range(len(self.chances))
        )
        return Suite(name="bench", cases=cases, trials=self.trials)

    def run(self, rng: random.Random) -> EvalRun:
        names = [f"c{at}" for at in range(len(self.chances))]
        created = EvalRunCreated(
            run_id="run",
            suite="bench",
            suite_hash="",
            agent_name="bench",
            model="bench",
            cases=dict.fromkeys(names, ""),
            trials=self.trials,
        )
        run = EvalRun(created, datetime(2026, 1, 1, tzinfo=UTC))
        for name, chance in zip(names, self.chances, strict=True):
            for number in range(1, self.trials + 1):
                is_passed = rng.random() < chance
                run.results[name, number] = EvalCaseEnded(
                    case_id=name,
                    trial=number,
                    case_hash="",
                    outcome="passed" if is_passed else "failed",
                    score=float(is_passed),
                    session_id="",
                )
        run.ended = EvalRunEnded(status="completed", passed=0, failed=0, errors=0, cost_usd="0")
        return run


def results(before: World, after: World, seed: int) -> list[GateResult]:
    suite = after.suite
    rng = random.Random(seed)
    return [gate(suite, after.run(rng), baseline_of(before.run(rng))) for _ in range(WORLDS)]


async def measure() -> list[Measure]:
    measures: list[Measure] = []
    for at, (chance, cases, trials) in enumerate(COLUMNS):
        name = f"{chance:.2f}, {cases} x {trials}"
        note(f"  {WORLDS} worlds of {name} ...")
        world = World([chance] * cases, trials)
        measures.append(false_alarms(name, world, SEED + at))
        measures += [power(name, world, change, SEED + 100 + at) for change in (-0.1, 0.1)]
    return [*measures, *must_pass_rates(), *single_case()]


def false_alarms(name: str, world: World, seed: int) -> Measure:
    closed = results(world, world, seed)
    paired = share([is_worse(result) for result in closed])
    return Measure(
        name=f"gate {name}: closed, nothing changed",
        value=share([not result.is_open for result in closed]),
        unit="share",
        target="<= 0.06",
        detail=f"by the paired test alone {paired:.4f}",
    )


def power(name: str, world: World, change: float, seed: int) -> Measure:
    """The gate against the paired test alone, in the same worlds."""
    changed = World([min(1.0, chance + change) for chance in world.chances], world.trials)
    found = results(world, changed, seed)
    if change < 0:
        alone = share([is_worse(result) for result in found])
        value = share([not result.is_open for result in found])
    else:
        alone = share([p_better(result) < ALPHA for result in found])
        value = share([verdict(result) == "better" for result in found])
    return Measure(
        name=f"gate {name}: {'closed' if change < 0 else 'better'} at {change * 100:+.0f} points",
        value=value,
        unit="share",
        target=f">= {alone}",
        detail=f"{value:.4f}; the paired test alone {alone:.4f}",
    )


def must_pass_rates() -> list[Measure]:
    """Cases that must pass are judged apart: they close the gate exactly if one of their trials
    fails, and are no part of the other rules."""
    required = frozenset(range(5))
    note(f"  {WORLDS} worlds with cases that must pass ...")
    sound = World([1.0] * 5 + [0.95] * 45, 3, required)
    unsound = World([0.98] * 5 + [0.95] * 45, 3, required)
    closed = results(unsound, unsound, SEED + 201)
    by_required = share([any(text.startswith("must pass") for text in r.reasons) for r in closed])
    expected = 1 - 0.98 ** (5 * 3)
    return [
        Measure(
            name="gate: closed, nothing changed, 5 cases that must pass do",
            value=share([not r.is_open for r in results(sound, sound, SEED + 200)]),
            unit="share",
            target="<= 0.06",
        ),
        Measure(
            name="gate: closed by 5 cases that must pass and pass 98 %, off from expected",
            value=abs(by_required - expected),
            unit="share",
            target="<= 0.03",
            detail=f"{by_required:.4f}, expected {expected:.4f}",
        ),
    ]


def single_case() -> list[Measure]:
    """One of 50 cases changes from always to never, which the paired test cannot see."""
    note(f"  {WORLDS} worlds in which one case breaks ...")
    others = [0.95] * 49
    found = results(World([1.0, *others], 10), World([0.0, *others], 10), SEED + 300)
    few = results(World([1.0, *others], 3), World([0.0, *others], 3), SEED + 301)
    needed = evidence_needed(few[0])
    says = "c0 (3 of 3 trials before, 0 of 3 now)"
    return [
        Measure(
            name="gate 50 x 10, one case from always to never: closed and named",
            value=share(["c0 (10 of 10" in "".join(result.reasons) for result in found]),
            unit="share",
            target=">= 0.95",
            detail=f"by the paired test alone {share([is_worse(result) for result in found]):.4f}",
        ),
        Measure(
            name="gate 50 x 3, the same: says that it cannot tell, and how many trials can",
            value=share(
                [
                    says in note_text and f"{needed} trials in both runs can" in note_text
                    for note_text in ("".join(result.notes) for result in few)
                ]
            ),
            unit="share",
            target=">= 0.95",
            detail=f"{needed} trials",
        ),
    ]


def share(flags: Sequence[bool]) -> float:
    return sum(flags) / len(flags)


def is_worse(result: GateResult) -> bool:
    assert result.comparison is not None
    return result.comparison.test.p_worse < ALPHA


def p_better(result: GateResult) -> float:
    assert result.comparison is not None
    return result.comparison.test.p_better


def verdict(result: GateResult) -> str:
    assert result.comparison is not None
    return result.comparison.verdict


def evidence_needed(result: GateResult) -> int:
    assert result.comparison is not None
    return result.comparison.evidence.trials_needed
