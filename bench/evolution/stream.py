"""A stream of proposals against sealed cases: each is decided as `mainspring evolve propose`
decides, with one limit of calls for all."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from random import Random

import anyio

from mainspring.core.events import EvolutionResult
from mainspring.improve.evolution.meter import BudgetReached, Meter
from mainspring.improve.evolution.observation import Observation, Trial
from mainspring.improve.evolution.sealed_gate import GatePolicy, SealedGate, stream_policy

CASES = 300
LIMIT = 8_000
Observe = Callable[[int], tuple[float, float]]


class Stream:
    def __init__(self, seed: int) -> None:
        self.random, self.meter = Random(seed), Meter({"sealed": LIMIT})
        self.policy = stream_policy(GatePolicy(), CASES)

    def decide(self, observe: Observe) -> bool:
        cases = [str(at) for at in range(CASES)]
        self.random.shuffle(cases)  # so that each proposal is screened on other cases

        async def run(trials: Sequence[Trial]) -> list[tuple[Observation, Observation]]:
            self.meter.reserve("sealed", 2 * len(trials))
            pairs = [(trial.case_id, *observe(int(trial.case_id))) for trial in trials]
            return [
                (EvolutionResult(case_id=id_, score=old), EvolutionResult(case_id=id_, score=new))
                for id_, new, old in pairs
            ]

        try:
            gate = SealedGate(policy=self.policy)
            return anyio.run(gate.decide, cases, run).decision == "promote"
        except BudgetReached:
            return False
