"""The steps of a campaign in lines for people."""

from __future__ import annotations

from collections.abc import Iterator

from mainspring.core.events import (
    EvolutionEnded,
    EvolutionPromoted,
    EvolutionRecommended,
    EvolutionRefused,
    EvolutionScreened,
    EvolutionSignal,
)
from mainspring.improve.evolution.improver import Fact


def step_lines(payload: Fact) -> Iterator[str]:
    match payload:
        case EvolutionSignal(signals=signals, score=score):
            fired = ", ".join(item.name for item in signals if item.has_fired)
            yield f"{score:.0%} of the cases pass; signals: {fired or 'none above its threshold'}"
        case EvolutionRecommended(track=None, reason=reason):
            yield reason
        case EvolutionRecommended() as item:
            yield (
                f"diagnosis: {item.track}: {item.reason} (expected gain"
                f" {item.expected_gain:.0%}, confidence {item.confidence:.0%}, risk {item.risk})"
            )
        case EvolutionScreened() as step:
            what = "kept for the gate" if step.is_kept else "refused"
            yield f"{what}: {step.reason}"
        case EvolutionRefused(reason=reason):
            yield f"refused by the gate: {reason}"
        case EvolutionPromoted(gate=gate):
            yield f"promoted by the gate: {gate.reason}"
        case EvolutionEnded(status=status, reason=reason, calls=calls):
            spent = ", ".join(f"{count} {kind} calls" for kind, count in sorted(calls.items()))
            yield f"{status}: {reason} ({spent or 'no calls'})"
