"""A stream of outcomes whose rate may drop: the alarm of `mainspring evolve watch`, and its paired
re-run, which decides whether to roll back."""

from __future__ import annotations

import random
from collections.abc import Sequence

import anyio

from mainspring.core.events import EvolutionResult
from mainspring.improve.evolution.drift import CONFIRM, DriftAlarm
from mainspring.improve.evolution.observation import Observation, Trial
from mainspring.improve.evolution.sealed_gate import SealedGate

CASES = tuple(str(at) for at in range(150))


def monitor(expected: float) -> DriftAlarm:
    """What `bench_drift.py` drives."""
    return DriftAlarm(expected)


def is_confirmed(rng: random.Random, good: float, now: float) -> bool:
    """Whether a re-run of 150 cases blames the version, if the last good one passes at `good`."""

    async def run(trials: Sequence[Trial]) -> list[tuple[Observation, Observation]]:
        return [(result(rng, trial, now), result(rng, trial, good)) for trial in trials]

    return anyio.run(SealedGate(policy=CONFIRM).decide, CASES, run).decision == "promote"


def result(rng: random.Random, trial: Trial, rate: float) -> EvolutionResult:
    return EvolutionResult(case_id=trial.case_id, score=float(rng.random() < rate))


def run_stream(seed: int, rates: Sequence[float], *, known: int = 200) -> tuple[int, int | None]:
    """Alarms, and after how many runs the version was rolled back, if it was. The healthy rate is
    the first one, known from `known` runs."""
    rng, healthy = random.Random(seed), rates[0]
    alarm = monitor(sum(rng.random() < healthy for _ in range(known)) / known)
    alarms = 0
    for at, rate in enumerate(rates, 1):
        if alarm.update(rng.random() < rate):
            alarms += 1
            if is_confirmed(rng, healthy, rate):
                return alarms, at
            alarm.reset()
    return alarms, None
