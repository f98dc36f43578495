"""The ports of a campaign over a world: what they run and ask comes from an adapter. The rest are
the classes that `mainspring evolve run` drives."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from random import Random

import anyio

from mainspring.core.events import EvolutionResult
from mainspring.improve.evolution.candidate import Candidate
from mainspring.improve.evolution.diagnosis import Situation
from mainspring.improve.evolution.improver import CampaignPlan, Improver
from mainspring.improve.evolution.meter import BudgetReached, CallKind, Meter
from mainspring.improve.evolution.observation import Trial
from mainspring.improve.evolution.ports import Check, ProposalRequest, SearchStep
from mainspring.improve.evolution.search import CandidateSearch

Run = Callable[[Candidate, Trial], EvolutionResult]


@dataclass(kw_only=True)
class WorldPorts:
    run: Run
    run_sealed: Run
    ask: Callable[[ProposalRequest], Candidate]
    check: Check
    meter: Meter

    async def trials(self, candidate: Candidate, trials: Sequence[Trial]) -> list[EvolutionResult]:
        return self._run("metric", self.run, candidate, trials)

    async def sealed(self, candidate: Candidate, trials: Sequence[Trial]) -> list[EvolutionResult]:
        return self._run("sealed", self.run_sealed, candidate, trials)

    def _run(
        self, kind: CallKind, run: Run, one: Candidate, trials: Sequence[Trial]
    ) -> list[EvolutionResult]:
        self.meter.reserve(kind, len(trials))
        return [run(one, trial) for trial in trials]

    async def propose(self, request: ProposalRequest) -> Candidate:
        return self.ask(request)

    async def report(self, step: SearchStep) -> None: ...

    async def record(self, payload: object, *candidates: Candidate) -> None: ...


def search(
    ports: WorldPorts, start: Candidate, cases: Sequence[str], situation: Situation, seed: int
) -> Candidate:
    """What the search alone arrives at, without a gate."""
    found = CandidateSearch(
        trials=ports.trials,
        propose=ports.propose,
        check=ports.check,
        report=ports.report,
        situation=situation,
        random=Random(seed),
        current=start,
    )

    async def run() -> None:
        await found.observe(cases)
        while await found.step():
            pass

    with suppress(BudgetReached):
        anyio.run(run)
    return found.current


def improve(ports: WorldPorts, start: Candidate, plan: CampaignPlan) -> Candidate:
    """What the gate promotes in the end."""
    improver = Improver(
        plan=plan,
        trials=ports.trials,
        sealed=ports.sealed,
        propose=ports.propose,
        check=ports.check,
        meter=ports.meter,
        record=ports.record,
    )
    return anyio.run(improver.run, start).candidate
