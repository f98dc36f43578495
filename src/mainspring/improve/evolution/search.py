"""Improves a candidate, step by step: the failures of one probable cause go to the track that can
fix them; the smallest part of a proposal that helps is kept if the cases that passed still pass.

The search sees no sealed case. What it returns is a proposal for the gate."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from random import Random

from msgspec import Struct
from msgspec.structs import replace

from mainspring.improve.evolution.candidate import Candidate, smallest_changes
from mainspring.improve.evolution.diagnosis import (
    Cause,
    Situation,
    causes,
    is_named,
    mean_score,
)
from mainspring.improve.evolution.observation import Observation, TrackName, Trial
from mainspring.improve.evolution.ports import (
    Check,
    ProposalRequest,
    Propose,
    Report,
    SearchStep,
    Trials,
)


class SearchPolicy(Struct, frozen=True, kw_only=True):
    targets: int = 3
    """Trials of failing cases that test a change."""
    guards: int = 6
    """Trials of passing cases that test a change."""
    most_broken: int = 1
    """Passing cases that may fail twice with a change: any change may tip a borderline case."""
    least_unnamed: float = 0.15
    """The share of cases that must fail without a named check before a change is tried for them:
    fewer may be chance, and then any change seems to help."""
    attempts: int = 8
    """Proposals for one cause; then it is left alone."""
    samples: int = 2
    """Proposals for one attempt; what several of them agree on is tested first."""
    most_refusals: int = 40
    """Refused changes in a row; then the search ends."""


@dataclass(slots=True, kw_only=True)
class CandidateSearch:
    """A search is resumed by running it again with ports that return what they returned before:
    everything else follows from `random`."""

    trials: Trials
    propose: Propose
    check: Check
    report: Report
    situation: Situation
    random: Random
    policy: SearchPolicy = field(default_factory=SearchPolicy)
    current: Candidate = field(default_factory=lambda: Candidate({}))
    records: dict[str, list[Observation]] = field(default_factory=dict[str, list[Observation]])
    """Observations of the current candidate, and of earlier ones until a case runs again."""
    refusals: int = 0
    _stale: set[str] = field(default_factory=set[str])
    _attempts: Counter[str] = field(default_factory=Counter[str])
    _refused: set[tuple[str, str]] = field(default_factory=set[tuple[str, str]])
    _number: int = 0

    async def observe(self, cases: Sequence[str]) -> None:
        """Run every case once, and those that failed a second time: a grader may be wrong."""
        self._add(await self.trials(self.current, [self._trial(case) for case in cases]))
        failed = [case for case in cases if not self.records[case][-1].is_passed]
        self._add(await self.trials(self.current, [self._trial(case) for case in failed]))

    async def step(self) -> bool:
        """One attempt to improve the candidate, or a check of what may have changed; whether there
        is more to do. Raises: BudgetReached."""
        chosen = self._choose()
        if chosen is None:
            return await self._refresh()
        track, cluster, cases = chosen
        if stale := [case for case in cases if case in self._stale][:_REFRESHED]:
            await self._rerun(stale)
            return True
        self._attempts[cluster] += 1
        request = ProposalRequest(
            track=track,
            current=self.current,
            cluster=cluster,
            failures=tuple(
                next(item for item in reversed(self.records[case]) if not item.is_passed)
                for case in cases[:_SHOWN]
            ),
            number=self._number,
        )
        for candidate in await self._proposals(request):
            if await self._test(candidate, request, cases):
                self.refusals = 0
                return True
        self.refusals += 1
        return self.refusals < self.policy.most_refusals

    @property
    def attempts(self) -> int:
        """How many changes were asked for."""
        return self._number

    def restart(self, candidate: Candidate) -> None:
        """Continue with another candidate; everything that is known becomes stale."""
        self.current = candidate
        self._stale = set(self.records)

    def _choose(self) -> tuple[TrackName, str, list[str]] | None:
        """The track with the largest expected gain, and one of its causes."""
        clusters: dict[tuple[TrackName, str], list[Cause]] = {}
        found = causes(self.records, self.situation)
        unnamed = sum(not is_named(cause.cluster) for cause in found)
        is_chance = unnamed < self.policy.least_unnamed * len(self.records)
        for cause in found:
            is_open = self._attempts[cause.cluster] < self.policy.attempts
            is_open &= is_named(cause.cluster) or not is_chance
            if cause.track is not None and cause.track in self.situation.tracks and is_open:
                clusters.setdefault((cause.track, cause.cluster), []).append(cause)
        if not clusters:
            return None
        gains: Counter[TrackName] = Counter()
        for (track, _), members in clusters.items():
            gains[track] += sum(cause.share for cause in members)  # pyright: ignore[reportArgumentType]
        best = max(gains, key=lambda track: gains[track])
        names = [cluster for track, cluster in clusters if track == best]
        weights = [
            sum(cause.share for cause in clusters[best, name]) / (1 + self._attempts[name])
            for name in names
        ]
        name = self.random.choices(names, weights)[0]
        cases = [cause.case_id for cause in clusters[best, name]]
        self.random.shuffle(cases)
        return best, name, cases

    async def _proposals(self, request: ProposalRequest) -> list[Candidate]:
        """The parts of the proposals, those that most proposals have first."""
        votes: Counter[Candidate] = Counter()
        for _ in range(self.policy.samples):
            request = replace(request, number=self._number)
            self._number += 1
            proposal = await self.propose(request)
            if proposal is not None and proposal != self.current:
                votes.update(smallest_changes(self.current, proposal))
        return [candidate for candidate, _ in votes.most_common()]

    async def _test(
        self, candidate: Candidate, request: ProposalRequest, cases: Sequence[str]
    ) -> bool:
        key = candidate.hash, request.cluster
        if key in self._refused:
            return False
        reason = self.check(self.current, candidate)
        results: list[Observation] = []
        if reason is None:
            reason = await self._target(candidate, request, cases, results)
        if reason is None:
            reason = await self._guard(candidate, results)
        shown = tuple(dict.fromkeys(item.case_id for item in results))
        if reason is None:
            self._accept(candidate, results)
        await self.report(
            SearchStep(
                is_kept=reason is None,
                track=request.track,
                cluster=request.cluster,
                candidate=candidate,
                current=request.current,
                score=mean_score(self.records),
                reason=reason or f"fixes {request.cluster}",
                cases=shown,
            )
        )
        if reason is not None:
            self._refused.add(key)
        return reason is None

    async def _target(
        self,
        candidate: Candidate,
        request: ProposalRequest,
        cases: Sequence[str],
        results: list[Observation],
    ) -> str | None:
        """Run failing cases until most of the trials have decided: progress is a pass, or a failure
        of another check."""
        repeated = [*cases, *cases, *cases][: self.policy.targets]
        needed = len(repeated) // 2 + 1
        progress = failures = 0
        for case in repeated:
            (result,) = await self.trials(candidate, [self._trial(case)])
            results.append(result)
            if result.violation is not None and not self._has_violated(case):
                return f"{case} violates a hard constraint: {result.violation}"
            if self._is_progress(result, request.cluster):
                progress += 1
            else:
                failures += 1
            if progress >= needed or failures >= needed:
                break
        if progress >= needed:
            return None
        return f"it does not fix {request.cluster}: {failures} of {len(results)} trials fail"

    def _has_violated(self, case: str) -> bool:
        return any(item.violation is not None for item in self.records[case])

    def _is_progress(self, result: Observation, cluster: str) -> bool:
        if result.is_passed:
            return True
        found = self._cluster(result)
        return is_named(found) and found != cluster

    def _cluster(self, result: Observation) -> str:
        found = causes({result.case_id: [result]}, self.situation)
        return found[0].cluster if found else ""

    async def _guard(self, candidate: Candidate, results: list[Observation]) -> str | None:
        """Run cases that pass. A case is broken if it fails twice, passes without the change, and
        the cause is new: a grader may have been wrong before."""
        passing = [case for case, items in self.records.items() if items[-1].is_passed]
        sample = self.random.sample(passing, min(self.policy.guards, len(passing)))
        first = list(await self.trials(candidate, [self._trial(case) for case in sample]))
        known = {cause.cluster for cause in causes(self.records, self.situation)}
        results += [item for item in first if item.is_passed or self._cluster(item) in known]
        failed = [item.case_id for item in first if item not in results]
        second = list(await self.trials(candidate, [self._trial(case) for case in failed]))
        for result in (*first, *second):
            if result.violation is not None:
                return f"{result.case_id} violates a hard constraint: {result.violation}"
        results += second
        broken = [item.case_id for item in second if not item.is_passed]
        before = await self.trials(self.current, [self._trial(case) for case in broken])
        broken = [item.case_id for item in before if item.is_passed]
        if len(broken) > self.policy.most_broken:
            return f"it breaks {', '.join(broken)}"
        return None

    def _accept(self, candidate: Candidate, results: Sequence[Observation]) -> None:
        self.current = candidate
        self._stale = set(self.records)
        latest = {item.case_id: item for item in results}
        for case, item in latest.items():
            self.records[case] = [item]
            self._stale.discard(case)

    async def _refresh(self) -> bool:
        """Run cases that were not run since the last change; whether there were any."""
        stale = [case for case in self.records if case in self._stale]
        # cases that failed first: the changes since may have fixed them, or left them
        stale.sort(key=lambda case: self.records[case][-1].is_passed)
        if not stale:
            return False
        await self._rerun(stale[:_REFRESHED])
        return True

    async def _rerun(self, cases: Sequence[str]) -> None:
        results = await self.trials(self.current, [self._trial(case) for case in cases])
        failed = [item.case_id for item in results if not item.is_passed]
        again = await self.trials(self.current, [self._trial(case) for case in failed])
        for item in results:
            self.records[item.case_id] = [item]
            self._stale.discard(item.case_id)
        self._add(again)

    def _add(self, results: Sequence[Observation]) -> None:
        for item in results:
            self.records.setdefault(item.case_id, []).append(item)

    def _trial(self, case: str) -> Trial:
        """The next trial of a case; the number makes trials of the same case differ."""
        self._trials[case] += 1
        return Trial(case, self._trials[case])

    _trials: Counter[str] = field(default_factory=Counter[str])


_REFRESHED = 4
"""Cases that are run again at a time, so that a finding is used before more is spent."""
_SHOWN = 3
"""Failures that a proposer reads at once."""
