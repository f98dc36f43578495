"""Payloads of evolution, one of each type."""

from mainspring.core import events
from mainspring.core.events.evolution import (
    EvolutionDecision,
    EvolutionFact,
    EvolutionResult,
    EvolutionSignalValue,
)

_ID = "evol_1"
_GATE = EvolutionDecision(
    decision="promote",
    reason="better on sealed cases",
    cases=20,
    wins=6,
    losses=1,
    difference=0.25,
    low=0.05,
    high=0.45,
    p=0.01,
    alpha_spent=0.025,
    looks=2,
    lost=("c7",),
    cases_missing=1,
)
_RESULT = EvolutionResult(
    case_id="c1",
    number=2,
    score=0.75,
    failed_checks=("contains:bye",),
    facts=(EvolutionFact(kind="no_hits", detail="prices"),),
    session_id="sesn_1",
    group="prices",
    critique="it guessed",
    cost_usd="0.01",
)
EVOLUTION_SAMPLES: tuple[events.KnownPayload, ...] = (
    events.EvolutionCreated(
        campaign_id=_ID,
        agent="clerk",
        suite="basics",
        suite_hash="ab" * 32,
        plan="{}",
        base="cd" * 32,
        trigger="schedule",
        proposal="ef" * 32,
    ),
    events.EvolutionSignal(
        campaign_id=_ID,
        signals=(
            EvolutionSignalValue(name="failures", value=0.5, threshold=0.25, cases=("c1", "c2")),
        ),
        score=0.5,
    ),
    events.EvolutionRecommended(
        campaign_id=_ID,
        track="prompt",
        expected_gain=0.25,
        confidence=0.5,
        effort="low",
        risk="low",
        reason="two cases fail alike",
        cases=("c1", "c2"),
        evidence=("it guessed",),
    ),
    events.EvolutionProposed(
        campaign_id=_ID,
        number=1,
        track="prompt",
        cluster="prices",
        candidate="ab" * 32,
        author="reflection",
        cost_usd="0.02",
    ),
    events.EvolutionTested(
        campaign_id=_ID, candidate="ab" * 32, purpose="develop", results=(_RESULT,)
    ),
    events.EvolutionScreened(
        campaign_id=_ID,
        candidate="ab" * 32,
        is_kept=True,
        track="prompt",
        cluster="prices",
        reason="better on both cases",
        diff="+ Look the price up.",
        cases=("c1", "c2"),
        score=1.0,
        calls=4,
    ),
    events.EvolutionRefused(
        campaign_id=_ID, reason="not better", candidate="ab" * 32, gate=_GATE, calls=40
    ),
    events.EvolutionPromoted(
        campaign_id=_ID,
        candidate="ab" * 32,
        parent="cd" * 32,
        gate=_GATE,
        diff="+ Look the price up.",
        suite_hash="ef" * 32,
        model="scripted:demo",
        calls=40,
    ),
    events.EvolutionRolledBack(
        campaign_id=_ID, number=2, candidate="ab" * 32, reason="it got worse", author="anna"
    ),
    events.EvolutionPaused(is_paused=True, reason="audit", author="anna"),
    events.EvolutionEnded(
        campaign_id=_ID,
        status="promoted",
        reason="better on sealed cases",
        calls={"develop": 4},
        cost_usd="0.40",
    ),
    events.VersionCreated(
        number=2,
        hash="ab" * 32,
        parent="cd" * 32,
        trigger="campaign",
        author="anna",
        scores={"basics": 0.75},
        campaign_id=_ID,
    ),
    events.VersionActivated(
        number=2, hash="ab" * 32, share=0.5, reason="promoted", author="anna", agent_version="3"
    ),
)
