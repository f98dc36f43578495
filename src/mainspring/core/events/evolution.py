"""Evolution: campaigns that change an agent and prove that it got better, and the versions that
they create."""

from __future__ import annotations

from typing import Literal, TypeAlias

from msgspec import Struct, field

from mainspring.core.events.payload import Payload

EvolutionTrack: TypeAlias = Literal[
    "prompt", "playbook", "skill", "tools", "harness", "knowledge", "model", "fine_tune"
]
EvolutionFactKind: TypeAlias = Literal[
    "outage",
    "harness_error",
    "cut_off",
    "skill_used",
    "skill_missing",
    "computation",
    "no_hits",
    "wrong_tool",
    "answer_matches",
    "message",
    "coordination",
]
PASS_SCORE = 0.5
"""A trial with a lower score has failed."""


class EvolutionFact(Struct, frozen=True, array_like=True):
    """What the log of a trial shows about it, without its prose."""

    kind: EvolutionFactKind
    detail: str = ""


class EvolutionResult(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The result of one trial of one case."""

    case_id: str
    number: int = 1
    score: float
    """From 0 to 1."""
    failed_checks: tuple[str, ...] = ()
    """The names of the checks that failed, which stay the same from run to run."""
    facts: tuple[EvolutionFact, ...] = ()
    violation: str | None = None
    """The hard constraint that was violated."""
    session_id: str = ""
    group: str = ""
    """The domain or first tag of the case."""
    critique: str = ""
    """What a proposer may read about the failure."""
    cost_usd: str = "0"

    @property
    def is_passed(self) -> bool:
        return self.score >= PASS_SCORE and self.violation is None

    def has(self, kind: EvolutionFactKind) -> bool:
        return any(fact.kind == kind for fact in self.facts)


class EvolutionSignalValue(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A measured fact about a batch of trials."""

    name: str
    value: float
    threshold: float | None = None
    """Above it the signal fires; absent if it is only reported."""
    cases: tuple[str, ...] = ()
    """The evidence."""

    @property
    def has_fired(self) -> bool:
        return self.threshold is not None and self.value > self.threshold


class EvolutionDecision(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The numbers of a decision on sealed cases."""

    decision: Literal["promote", "refuse", "undecided"]
    reason: str
    cases: int = 0
    wins: int = 0
    losses: int = 0
    difference: float = 0.0
    low: float = -1.0
    high: float = 1.0
    """The 95 % interval of the difference."""
    p: float = 1.0
    alpha_spent: float = 0.0
    looks: int = 0
    lost: tuple[str, ...] = ()
    """Cases that passed before and fail with the candidate."""
    cases_missing: int = 0
    """How many more cases a decision needs."""


class EvolutionCreated(Payload, frozen=True, kw_only=True, tag="evolution.created"):
    """Recorded in the log of the campaign, which is a session of its own, and in the list of the
    agent's campaigns."""

    campaign_id: str
    agent: str
    """The agent's folder or name."""
    suite: str
    suite_hash: str
    plan: str
    """Hash of the blob with the plan: budgets, tracks, policy, cases by purpose, seed."""
    base: str
    """Hash of the blob with the texts of the current version."""
    trigger: str = "manual"
    """`manual`, `schedule`, `proposal` or `auto_regression`."""
    proposal: str | None = None
    """Hash of the blob with a change that somebody else has made; nothing is searched then."""
    preset: str = "innovate"


class EvolutionSignal(Payload, frozen=True, kw_only=True, tag="evolution.signal"):
    campaign_id: str
    signals: tuple[EvolutionSignalValue, ...]
    score: float
    """The share of trials that pass now."""


class EvolutionRecommended(Payload, frozen=True, kw_only=True, tag="evolution.recommended"):
    campaign_id: str
    track: EvolutionTrack | None = None
    """Absent: there is nothing to fix."""
    expected_gain: float = 0.0
    confidence: float = 0.0
    effort: str = ""
    risk: str = ""
    reason: str = ""
    cases: tuple[str, ...] = ()
    evidence: tuple[str, ...] = ()
    """Sessions that show the failures."""


class EvolutionProposed(Payload, frozen=True, kw_only=True, tag="evolution.proposed"):
    """The answer to a request for a change; it is never asked for twice."""

    campaign_id: str
    number: int
    track: EvolutionTrack
    cluster: str
    """The cause that the change is for."""
    candidate: str | None = None
    """Hash of the blob with all texts of the candidate; absent: nothing was proposed."""
    author: str = ""
    """The model or function that proposed it."""
    cost_usd: str = "0"


class EvolutionTested(Payload, frozen=True, kw_only=True, tag="evolution.tested"):
    """Trials that have run; they are never run twice."""

    campaign_id: str
    candidate: str
    """The hash of the candidate."""
    purpose: Literal["control", "develop", "sealed", "watch"]
    results: tuple[EvolutionResult, ...]


class EvolutionScreened(Payload, frozen=True, kw_only=True, tag="evolution.screened"):
    """A change was kept for the gate, or refused before it."""

    campaign_id: str
    candidate: str
    is_kept: bool
    track: EvolutionTrack
    cluster: str
    reason: str
    diff: str = ""
    cases: tuple[str, ...] = ()
    score: float | None = None
    """The share of cases that pass, as far as they were run."""
    calls: int = 0
    """Metric calls so far."""


class EvolutionRefused(Payload, frozen=True, kw_only=True, tag="evolution.refused"):
    campaign_id: str
    reason: str
    candidate: str = ""
    gate: EvolutionDecision | None = None
    calls: int = 0


class EvolutionPromoted(Payload, frozen=True, kw_only=True, tag="evolution.promoted"):
    """A candidate has passed the gate. `version.activated` follows when it is in use."""

    campaign_id: str
    candidate: str
    """Hash of the blob with its texts."""
    parent: str
    gate: EvolutionDecision
    diff: str = ""
    suite_hash: str = ""
    model: str = ""
    calls: int = 0


class EvolutionRolledBack(Payload, frozen=True, kw_only=True, tag="evolution.rolled_back"):
    campaign_id: str
    number: int
    """The version that was restored."""
    candidate: str
    """The version that was in use."""
    reason: str
    author: str = ""


class EvolutionPaused(Payload, frozen=True, kw_only=True, tag="evolution.paused"):
    """The kill switch of all campaigns of an agent, in their list."""

    is_paused: bool
    reason: str = ""
    author: str = ""


class EvolutionEnded(Payload, frozen=True, kw_only=True, tag="evolution.ended"):
    campaign_id: str
    status: Literal["promoted", "refused", "undecided", "nothing", "unavailable", "failed"]
    reason: str
    calls: dict[str, int] = field(default_factory=dict[str, int])
    cost_usd: str = "0"


class VersionCreated(Payload, frozen=True, kw_only=True, tag="version.created"):
    """A version of an agent's texts, in the list of its campaigns."""

    number: int
    hash: str
    """The hash of the blob with its texts."""
    parent: str | None = None
    trigger: str = "manual"
    author: str = ""
    scores: dict[str, float] = field(default_factory=dict[str, float])
    """Scores by name: of the suite's sealed cases, and their interval."""
    campaign_id: str | None = None


class VersionActivated(Payload, frozen=True, kw_only=True, tag="version.activated"):
    """From here on sessions use the version."""

    number: int
    hash: str
    share: float = 1.0
    """The share of the sessions that use it; below 1 it is a canary."""
    reason: str = ""
    author: str = ""
    agent_version: str = ""
    """The version of the agent's folder with these texts, which its sessions record."""


EvolutionPayload: TypeAlias = (
    EvolutionCreated
    | EvolutionSignal
    | EvolutionRecommended
    | EvolutionProposed
    | EvolutionTested
    | EvolutionScreened
    | EvolutionRefused
    | EvolutionPromoted
    | EvolutionRolledBack
    | EvolutionPaused
    | EvolutionEnded
    | VersionCreated
    | VersionActivated
)
