"""Raises an alarm when an agent does worse than it did. Pure."""

from __future__ import annotations

import math
from dataclasses import dataclass

from mainspring.improve.evolution.sealed_gate import GatePolicy

DRIFT = "drift"
"""The trigger of a campaign that is a paired re-run."""
_DROP = 0.2
"""The drop that the alarm is designed for; larger ones are found sooner, smaller ones later."""
_THRESHOLD = 6.4
"""The evidence for a drop, in natural logarithms of odds, that raises the alarm."""
_LOWEST, _HIGHEST = 0.05, 0.98  # bounds of the expected rate: at 0 or 1, log odds are infinite
CONFIRM = GatePolicy(alpha=0.05)
"""How the paired re-run decides that the last good version does better now than the one in use, so
that the version, not the world, is to blame."""


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
