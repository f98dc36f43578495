"""The loop of a campaign: observe, diagnose, improve the right layer, and let sealed cases decide.
It holds no state that its log does not have: run again with the same recorded answers, it takes
the same decisions."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from random import Random
from typing import Literal, Protocol, TypeAlias

from msgspec import Struct

from mainspring.core.events import (
    EvolutionEnded,
    EvolutionPromoted,
    EvolutionRecommended,
    EvolutionRefused,
    EvolutionScreened,
    EvolutionSignal,
)
from mainspring.improve.evolution.candidate import Candidate, candidate_diff
from mainspring.improve.evolution.diagnosis import (
    AVAILABLE_TRACKS,
    Recommendation,
    Situation,
    mean_score,
    read_signals,
    recommend,
)
from mainspring.improve.evolution.meter import BudgetReached, Meter
from mainspring.improve.evolution.observation import Trial
from mainspring.improve.evolution.ports import Check, Propose, SearchStep, Trials
from mainspring.improve.evolution.sealed_gate import (
    GateDecision,
    GatePolicy,
    Pair,
    SealedGate,
)
from mainspring.improve.evolution.search import CandidateSearch, SearchPolicy


class CampaignPlan(Struct, frozen=True, kw_only=True):
    """What a campaign may use, and how it decides."""

    campaign_id: str
    develop: tuple[str, ...]
    """The cases that the search may see."""
    sealed: tuple[str, ...]
    """The cases that only the gate sees."""
    seed: int = 0
    situation: Situation = Situation()
    search: SearchPolicy = SearchPolicy()
    gate: GatePolicy = GatePolicy()
    gates: int = 2
    """The most decisions; they share the error rate."""
    must_pass: tuple[str, ...] = ()
    tags: Mapping[str, tuple[str, ...]] = {}


class Record(Protocol):
    """Writes a fact into the campaign's log, unless it is there already."""

    async def __call__(self, payload: Fact, *candidates: Candidate) -> None:
        """`candidates`: the texts that it refers to."""
        ...


Fact: TypeAlias = (
    EvolutionSignal
    | EvolutionRecommended
    | EvolutionScreened
    | EvolutionRefused
    | EvolutionPromoted
    | EvolutionEnded
)


@dataclass(frozen=True, slots=True, kw_only=True)
class CampaignOutcome:
    candidate: Candidate
    """The version to use from here on: the last that was promoted, or the first."""
    recommendation: Recommendation
    decisions: tuple[GateDecision, ...]
    ended: EvolutionEnded


@dataclass(slots=True, kw_only=True)
class Improver:
    plan: CampaignPlan
    trials: Trials
    """Runs trials of the cases that the search may see."""
    sealed: Trials
    """Runs trials for the gate alone."""
    propose: Propose
    check: Check
    meter: Meter
    record: Record
    _limit: str | None = field(default=None, init=False)
    """The limit that ended the last search."""

    async def run(self, start: Candidate) -> CampaignOutcome:
        plan = self.plan
        search = CandidateSearch(
            trials=self.trials,
            propose=self.propose,
            check=self.check,
            report=self._screened,
            situation=plan.situation,
            random=Random(plan.seed),
            policy=plan.search,
            current=start,
        )
        decisions: list[GateDecision] = []
        limit: str | None = None
        recommendation = Recommendation(track=None, expected_gain=0.0, confidence=0.0)
        try:
            await search.observe(plan.develop)
            recommendation = await self._diagnose(search)
        except BudgetReached as reached:
            limit = f"{reached}, before every case has run once"
        promoted = start
        if recommendation.track in AVAILABLE_TRACKS:
            promoted = await self._improve(search, start, decisions)
            if not decisions and self._limit:
                limit = f"{self._limit}, before a change had passed the tests"
            elif not decisions and not search.attempts:
                limit = f"no change was tried: {self._too_few_calls()}"
        ended = self._ended(recommendation, decisions, limit)
        await self.record(ended)
        return CampaignOutcome(
            candidate=promoted,
            recommendation=recommendation,
            decisions=tuple(decisions),
            ended=ended,
        )

    async def consider(self, start: Candidate, proposal: Candidate) -> EvolutionEnded:
        """Decide about a change that somebody else has made: the static checks, then the gate."""
        status: Status = "refused"
        reason = self.check(start, proposal)
        if reason is None and not self._can_decide():
            reason = f"the limit of calls is below {self._decision_calls}, which a decision needs"
        if reason is None:
            decision = await self._decide(start, proposal)
            status = _STATUSES[decision.decision]
            reason = decision.reason
        else:
            await self.record(
                EvolutionRefused(
                    campaign_id=self.plan.campaign_id, reason=reason, candidate=proposal.hash
                )
            )
        ended = EvolutionEnded(
            campaign_id=self.plan.campaign_id,
            status=status,
            reason=reason,
            calls={str(kind): count for kind, count in self.meter.calls.items()},
            cost_usd=str(self.meter.spent_usd),
        )
        await self.record(ended)
        return ended

    async def _diagnose(self, search: CandidateSearch) -> Recommendation:
        plan = self.plan
        signals = tuple(read_signals(search.records, plan.situation))
        score = mean_score(search.records)
        await self.record(
            EvolutionSignal(campaign_id=plan.campaign_id, signals=signals, score=score)
        )
        recommendation = recommend(search.records, plan.situation)
        fields = {name: getattr(recommendation, name) for name in recommendation.__struct_fields__}
        evidence = tuple(
            item.session_id
            for case in recommendation.cases
            for item in search.records[case]
            if item.session_id and not item.is_passed
        )
        await self.record(
            EvolutionRecommended(campaign_id=plan.campaign_id, evidence=evidence, **fields)
        )
        return recommendation

    async def _improve(
        self, search: CandidateSearch, start: Candidate, decisions: list[GateDecision]
    ) -> Candidate:
        """Search until nothing is left to do or to spend, then decide; go on after a promotion if
        there is something left."""
        promoted = decided = start
        for number in range(self.plan.gates):
            await self._search(search, is_last=number == self.plan.gates - 1)
            if search.current == decided or not self._can_decide():
                break
            decided = search.current
            decision = await self._decide(promoted, decided)
            decisions.append(decision)
            if decision.decision == "promote":
                promoted = decided
        return promoted

    async def _search(self, search: CandidateSearch, *, is_last: bool) -> None:
        """Search; before the last gate with half of what is left, so that something is promoted
        even if the rest leads nowhere."""
        left = self.meter.left("metric")
        reserve = self._gate_calls()
        stop = 0 if is_last or left is None else (left - reserve) // 2
        if stop < _MIN_STEPS * self._step_calls:  # too little to divide
            stop = 0
        try:
            while self._has_calls(reserve + stop) and await search.step():
                pass
        except BudgetReached as reached:
            self._limit = str(reached)

    def _too_few_calls(self) -> str:
        needed = f"one may need {self._step_calls} trials, and the gate {self._gate_calls()}"
        return f"{needed}; {self.meter.left('metric')} are left"

    def _has_calls(self, reserve: int) -> bool:
        left = self.meter.left("metric")
        return left is None or left - self._step_calls >= reserve

    @property
    def _step_calls(self) -> int:
        """Metric calls that one step may need at most: targets, guards, and those that fail twice
        more. Below it the search leaves the rest to the gate."""
        return self.plan.search.targets + 3 * self.plan.search.guards

    def _gate_calls(self) -> int:
        """Calls that the gate needs of the limit that it shares with the search."""
        if "sealed" in self.meter.limits:
            return 0
        return self._decision_calls

    @property
    def _decision_calls(self) -> int:
        return 2 * len(self.plan.sealed) * self.plan.gate.trials

    def _can_decide(self) -> bool:
        return self.meter.can_spend("sealed", self._decision_calls)

    async def _decide(self, current: Candidate, candidate: Candidate) -> GateDecision:
        async def run(trials: Sequence[Trial]) -> list[Pair]:
            before = await self.sealed(current, trials)
            after = await self.sealed(candidate, trials)
            return list(zip(before, after, strict=True))

        gate = SealedGate(
            policy=self.plan.gate,
            must_pass=frozenset(self.plan.must_pass),
            tags=self.plan.tags,
            share=1 / self.plan.gates,
        )
        decision = await gate.decide(self.plan.sealed, run)
        id_, calls = self.plan.campaign_id, self._calls
        if decision.decision == "promote":
            await self.record(
                EvolutionPromoted(
                    campaign_id=id_,
                    candidate=candidate.hash,
                    parent=current.hash,
                    gate=decision,
                    diff=candidate_diff(current, candidate),
                    calls=calls,
                ),
                candidate,
            )
        else:
            await self.record(
                EvolutionRefused(
                    campaign_id=id_,
                    reason=decision.reason,
                    candidate=candidate.hash,
                    gate=decision,
                    calls=calls,
                )
            )
        return decision

    async def _screened(self, step: SearchStep) -> None:
        await self.record(
            EvolutionScreened(
                campaign_id=self.plan.campaign_id,
                candidate=step.candidate.hash,
                is_kept=step.is_kept,
                track=step.track,
                cluster=step.cluster,
                reason=step.reason,
                diff=candidate_diff(step.current, step.candidate),
                cases=step.cases,
                score=step.score,
                calls=self._calls,
            ),
            step.candidate,
        )

    @property
    def _calls(self) -> int:
        return self.meter.calls.get("metric", 0) + self.meter.calls.get("sealed", 0)

    def _ended(
        self,
        recommendation: Recommendation,
        decisions: Sequence[GateDecision],
        limit: str | None,
    ) -> EvolutionEnded:
        """`limit`: why nothing was decided, if calls were lacking."""
        calls = {str(kind): count for kind, count in self.meter.calls.items()}
        ending = _ending(recommendation, decisions)
        status, reason = ending if limit is None else ("undecided", limit)
        return EvolutionEnded(
            campaign_id=self.plan.campaign_id,
            status=status,
            reason=reason,
            calls=calls,
            cost_usd=str(self.meter.spent_usd),
        )


_MIN_STEPS = 3
"""Steps that the search keeps for the time after a first decision, or it is the only one."""
Status: TypeAlias = Literal["promoted", "refused", "undecided", "nothing", "unavailable", "failed"]
_STATUSES: dict[str, Status] = {
    "promote": "promoted",
    "refuse": "refused",
    "undecided": "undecided",
}


def _ending(
    recommendation: Recommendation, decisions: Sequence[GateDecision]
) -> tuple[Status, str]:
    if recommendation.track is None:
        return "nothing", recommendation.reason
    if recommendation.track not in AVAILABLE_TRACKS:
        name = recommendation.track.replace("_", "-")
        return "unavailable", (
            f"the track {name} is recommended ({recommendation.reason}), but does not exist yet;"
            " nothing was spent on another one"
        )
    promoted = [item for item in decisions if item.decision == "promote"]
    if promoted:
        return "promoted", promoted[-1].reason
    if not decisions:
        return "refused", "no proposal has passed the tests before the gate"
    last = decisions[-1]
    return ("undecided" if last.decision == "undecided" else "refused"), last.reason
