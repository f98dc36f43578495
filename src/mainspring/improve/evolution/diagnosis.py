"""Finds out what to improve: reads facts about failed trials, never their prose, and recommends the
track with the largest expected gain, or nothing. No model is asked."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from statistics import fmean
from typing import TypeAlias

from msgspec import Struct

from mainspring.core.events import EvolutionSignalValue
from mainspring.improve.evolution.observation import FactKind, Observation, TrackName

Records: TypeAlias = Mapping[str, Sequence[Observation]]
"""Observations of the current version, by case."""

_TRACK_OF_FACT: tuple[tuple[FactKind, TrackName | None], ...] = (
    ("outage", None),
    ("harness_error", "harness"),
    ("cut_off", "harness"),
    ("skill_used", "skill"),
    ("skill_missing", "skill"),
    ("no_hits", "knowledge"),
    ("wrong_tool", "tools"),
    ("answer_matches", None),
    ("computation", "skill"),
    ("message", "prompt"),
)
"""The first fact that a failed case has decides; the most specific causes come first."""
_MIN_CASES = 2
"""Cases; below it a failure may be chance, and a change for it would be memorised."""
_MIN_TRIALS = 2
"""Trials; a single one may have failed by chance."""
_MIN_EXAMPLES = 500
"""Good examples that fine-tuning needs (the spec's threshold)."""
_GOOD_SCORE = 0.8  # the spec's threshold for an example that needs no improvement
_PROMPT_ROUNDS = 3
"""Rounds without gain after which a failure is persistent (the spec's threshold)."""
_EFFORT: dict[TrackName, str] = {
    "prompt": "minutes",
    "playbook": "minutes",
    "tools": "minutes",
    "skill": "hours",
    "knowledge": "hours",
    "harness": "a night",
    "model": "hours",
    "fine_tune": "days",
}
_RISK: dict[TrackName, str] = {
    "prompt": "low",
    "playbook": "low",
    "tools": "medium",
    "skill": "medium",
    "knowledge": "medium",
    "harness": "high",
    "model": "medium",
    "fine_tune": "high",
}
AVAILABLE_TRACKS: tuple[TrackName, ...] = (
    "prompt",
    "playbook",
    "skill",
    "tools",
    "harness",
    "knowledge",
)
"""The tracks that can run; `model` and `fine_tune` are recommended, but do not exist yet."""


class Cause(Struct, frozen=True, kw_only=True):
    """Why a case fails."""

    case_id: str
    track: TrackName | None
    """`None`: nothing of the agent is to blame."""
    cluster: str
    """Cases with the same cluster probably have the same cause."""
    share: float
    """The share of its trials that failed."""
    reason: str


class Situation(Struct, frozen=True, kw_only=True):
    """What the recommender knows beside the trials."""

    has_corpus: bool = False
    examples: int = 0
    """Sessions with a score of at least 0.8 that may be learned from."""
    rounds: Mapping[str, int] = {}
    """Rounds of changes of the prompt that were tried for a case, without gain."""
    tracks: tuple[TrackName, ...] = (*AVAILABLE_TRACKS, "fine_tune")
    """The tracks that may be recommended."""


class Recommendation(Struct, frozen=True, kw_only=True):
    track: TrackName | None
    """`None`: there is nothing to fix."""
    expected_gain: float
    """The share of cases that the track may fix."""
    confidence: float
    effort: str = ""
    risk: str = ""
    reason: str = ""
    cases: tuple[str, ...] = ()
    """The evidence."""


def causes(records: Records, situation: Situation) -> list[Cause]:
    """The causes of the cases that fail persistently."""
    found = (_cause(case_id, items, situation) for case_id, items in records.items())
    return [cause for cause in found if cause is not None]


def _cause(case_id: str, items: Sequence[Observation], situation: Situation) -> Cause | None:
    failed = [item for item in items if not item.is_passed]
    if not failed or 2 * len(failed) < len(items):
        return None
    share = len(failed) / len(items)
    facts = {fact.kind: fact.detail for item in failed for fact in item.facts}
    checks = Counter(check for item in failed for check in item.failed_checks)
    check = checks.most_common(1)[0][0] if checks else ""
    for kind, track in _TRACK_OF_FACT:
        if kind in facts:
            if track == "prompt" and situation.rounds.get(case_id, 0) >= _PROMPT_ROUNDS:
                break
            if track == "prompt" and "prompt" not in situation.tracks:
                track = "playbook"  # the instructions stay as people wrote them
            detail = facts[kind] or check
            cluster = f"{kind}: {detail}" if detail else kind
            reason = "nothing to learn from an outage" if kind == "outage" else kind
            return Cause(case_id=case_id, track=track, cluster=cluster, share=share, reason=reason)
    return Cause(
        case_id=case_id,
        track="fine_tune",
        cluster=check or "no structural cause",
        share=share,
        reason="it fails without a structural cause",
    )


def is_named(cluster: str) -> bool:
    """Whether a check or a fact names the cause."""
    return ": " in cluster


def read_signals(records: Records, situation: Situation) -> list[EvolutionSignalValue]:
    """The signals of a batch, with the thresholds of the specification."""
    items = [item for batch in records.values() for item in batch]
    failed = [item for item in items if not item.is_passed]
    count = len(failed) or 1
    clusters = Counter(cause.cluster for cause in causes(records, situation))
    groups = Counter(item.group for item in failed if item.group)
    largest = groups.most_common(1)[0][1] if groups else 0
    flaky = [
        case for case, batch in records.items() if 0 < sum(i.is_passed for i in batch) < len(batch)
    ]
    persistent = [case for case, rounds in situation.rounds.items() if rounds >= _PROMPT_ROUNDS]

    def share_of(name: str, threshold: float | None, *kinds: FactKind) -> EvolutionSignalValue:
        matching = [item for item in failed if any(item.has(kind) for kind in kinds)]
        cases = tuple(sorted({item.case_id for item in matching}))
        value = len(matching) / count
        return EvolutionSignalValue(name=name, value=value, threshold=threshold, cases=cases)

    unaided = [item for item in failed if not item.has("skill_used") and not item.has("outage")]
    return [
        EvolutionSignalValue(
            name="failure_rate", value=len(failed) / (len(items) or 1), threshold=None
        ),
        EvolutionSignalValue(
            name="persistence",
            value=len(persistent) / (len(records) or 1),
            threshold=0.4,
            cases=tuple(persistent),
        ),
        share_of("skill_failure", 0.3, "skill_used"),
        share_of("knowledge_gap", 0.4, "no_hits"),
        EvolutionSignalValue(name="no_skill_used", value=len(unaided) / count, threshold=None),
        share_of("cut_off", 0.3, "cut_off"),
        share_of("harness_error", 0.0, "harness_error"),
        share_of("grader_suspected", 0.3, "answer_matches"),
        share_of("outage", 0.0, "outage"),
        share_of("wrong_tool", 0.3, "wrong_tool"),
        share_of("coordination", 0.3, "coordination"),
        EvolutionSignalValue(
            name="flaky", value=len(flaky) / (len(records) or 1), cases=tuple(sorted(flaky))
        ),
        EvolutionSignalValue(name="clusters", value=len(clusters)),
        EvolutionSignalValue(name="domain_concentration", value=largest / count, threshold=0.5),
        EvolutionSignalValue(name="corpus_present", value=float(situation.has_corpus)),
        EvolutionSignalValue(
            name="good_examples", value=situation.examples, threshold=_MIN_EXAMPLES - 1
        ),
    ]


def recommend(records: Records, situation: Situation) -> Recommendation:
    """The track with the largest expected gain that has at least two persistent cases."""
    found = causes(records, situation)
    gains: dict[TrackName, float] = {}
    evidence: dict[TrackName, list[str]] = {}
    for cause in found:
        track = cause.track
        if track is None or not _may_recommend(track, situation):
            continue
        gains[track] = gains.get(track, 0.0) + cause.share
        evidence.setdefault(track, []).append(cause.case_id)
    certain = {
        cause.track for cause in found if cause.share == 1 and _is_structural(cause, records)
    }
    likely: dict[TrackName, float] = {
        track: gain
        for track, gain in gains.items()
        if len(evidence[track]) >= _MIN_CASES or track in certain
    }
    if not likely:
        return _nothing(found, len(records))
    # earlier tracks of the list are cheaper: they win ties
    order: list[TrackName] = [*AVAILABLE_TRACKS, "model", "fine_tune"]
    ranked = sorted(likely.items(), key=lambda item: (-item[1], order.index(item[0])))
    track = ranked[0][0]
    total = sum(gains.values())
    share = likely[track] / total
    return Recommendation(
        track=track,
        expected_gain=likely[track] / (len(records) or 1),
        confidence=round(0.5 + share / 2, 2),
        effort=_EFFORT[track],
        risk=_RISK[track],
        reason=_reason(track, len(evidence[track]), found),
        cases=tuple(evidence[track]),
    )


def _is_structural(cause: Cause, records: Records) -> bool:
    """Whether one case is enough: it failed more than once, and the log itself shows the cause."""
    is_shown = cause.track in ("skill", "harness", "knowledge", "tools")
    return is_shown and len(records[cause.case_id]) >= _MIN_TRIALS


def _may_recommend(track: TrackName, situation: Situation) -> bool:
    if track == "fine_tune" and situation.examples < _MIN_EXAMPLES:
        return False
    if track == "knowledge" and not situation.has_corpus:
        return False
    return track in situation.tracks


def _nothing(found: Sequence[Cause], cases: int) -> Recommendation:
    excused = [cause for cause in found if cause.track is None]
    if excused:
        reasons = ", ".join(sorted({cause.reason for cause in excused}))
        reason = f"nothing to fix: {len(excused)} of {cases} cases fail, but not by the agent's"
        reason += f" fault ({reasons})"
    else:
        reason = f"nothing to fix: fewer than {_MIN_CASES} cases fail for one cause"
    return Recommendation(track=None, expected_gain=0.0, confidence=0.9, reason=reason)


def _reason(track: TrackName, count: int, found: Sequence[Cause]) -> str:
    clusters = Counter(cause.cluster for cause in found if cause.track == track)
    name, size = clusters.most_common(1)[0]
    return f"{count} cases fail for a cause that the {track} track can fix; {size} with {name!r}"


def mean_score(records: Records) -> float:
    """The mean over cases of the share of trials that pass."""
    rates = [fmean(item.is_passed for item in items) for items in records.values() if items]
    return fmean(rates) if rates else 0.0


def good_examples(observations: Sequence[Observation]) -> int:
    return sum(item.score >= _GOOD_SCORE for item in observations)
