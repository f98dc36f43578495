"""Raises an alarm when an agent does worse than it did, and says whether the version is to blame.
Pure, but for the trials of the paired re-run."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from mainspring.core.events import EvolutionDecision
from mainspring.improve.evolution.sealed_gate import GatePolicy, RunPairs, SealedGate

_DROP = 0.2
"""The drop that the alarm is designed for; larger ones are found sooner, smaller ones later."""
_THRESHOLD = 6.4
"""The evidence for a drop, in natural logarithms of odds, that raises the alarm."""
_LOWEST, _HIGHEST = 0.05, 0.98
CONFIRM = GatePolicy(alpha=0.05)
"""How a re-run decides that the earlier version is better."""


@dataclass(slots=True)
class DriftAlarm:
    """Page's CUSUM over the outcomes of real sessions: the log-likelihood ratio of a pass rate that
    has dropped, against the expected one, as long as it speaks for the drop."""

    expected: float
    """The pass rate so far."""
    evidence: float = 0.0

    def update(self, is_passed: bool) -> bool:
        """Count an outcome; whether the evidence is now enough for an alarm."""
        healthy = min(_HIGHEST, max(_LOWEST, self.expected))
        dropped = max(_LOWEST / 2, healthy - _DROP)
        if is_passed:
            ratio = math.log(dropped / healthy)
        else:
            ratio = math.log((1 - dropped) / (1 - healthy))
        self.evidence = max(0.0, self.evidence + ratio)
        return self.evidence >= _THRESHOLD

    def reset(self) -> None:
        self.evidence = 0.0


async def rerun(cases: Sequence[str], run: RunPairs) -> EvolutionDecision:
    """Run the version in use and the last good one on the same cases, now. `promote` means that the
    last good one is better, and thus that the version in use, not the world, has become worse.
    `run`: gives the version in use first."""
    return await SealedGate(policy=CONFIRM).decide(cases, run)
