"""The ports of a running campaign: what was run and asked for before comes from its log, the rest
is real, reserved before it is spent, and recorded."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from decimal import Decimal

from msgspec.structs import replace

from mainspring.core.clock import Clock
from mainspring.core.events import EvolutionProposed, EvolutionScreened, EvolutionTested
from mainspring.improve.evals.suite import Suite
from mainspring.improve.evolution.assets import Asset, hints
from mainspring.improve.evolution.campaign_text import step_lines
from mainspring.improve.evolution.campaigns.campaign_log import (
    CampaignsPaused,
    read_candidate,
    read_ledger,
)
from mainspring.improve.evolution.campaigns.journal import Journal
from mainspring.improve.evolution.candidate import Candidate
from mainspring.improve.evolution.improver import CampaignPlan
from mainspring.improve.evolution.improver import Fact as Finding
from mainspring.improve.evolution.meter import BudgetReached, CallKind, Meter
from mainspring.improve.evolution.metric_controls import controls
from mainspring.improve.evolution.model_proposer import AskImprover, propose
from mainspring.improve.evolution.observation import Observation, Trial
from mainspring.improve.evolution.ports import ProposalRequest, RunTrials
from mainspring.improve.evolution.tracks.evolve_settings import EvolveSettings
from mainspring.improve.evolution.tracks.program_history import ProgramHistory
from mainspring.log.session_log import SessionLog


@dataclass(slots=True, kw_only=True)
class RecordedPorts:
    """The ports of a running campaign: recorded answers first, then real ones."""

    log: SessionLog
    agent: str
    settings: EvolveSettings
    suite: Suite
    runs: RunTrials
    ask: AskImprover
    author: str
    report: Callable[[str], None]
    journal: Journal
    plan: CampaignPlan
    base: Candidate
    clock: Clock
    started: datetime
    history: ProgramHistory | None = None
    assets: Sequence[Asset] = ()
    """What worked before."""
    task: str = ""
    """What `program.md` tells the improver."""
    meter: Meter = field(init=False)

    def __post_init__(self) -> None:
        settings = self.settings
        calls = settings.calls
        self.meter = Meter(
            {
                "metric": calls.metric,
                "proposer": calls.proposer,
                "judge": calls.judge,
                "recall": calls.recall,
            },
            settings.limit_usd,
        )

    async def control(self) -> str | None:
        """Why the suite cannot be used as a metric. Scripted agents cost nothing."""
        suite = self.suite
        for control in controls(suite.cases):
            step = self.journal.next(EvolutionTested)
            if step is None:
                trials = [Trial(case) for case in control.scripts]
                results: list[Observation] = []
                if trials:
                    results = await self.runs.run(
                        self.base,
                        trials,
                        f"control {control.name}",
                        scripts=control.scripts,
                    )
                step = self._tested(control.name, "control", results)
                await self.journal.write(step)
            problem = control.problem(suite.name, [item.score for item in step.results])
            if problem is not None:
                return problem
        return None

    async def trials(
        self, kind: CallKind, candidate: Candidate, trials: Sequence[Trial]
    ) -> Sequence[Observation]:
        if not trials:
            return []
        self.meter.reserve(kind, len(trials))
        step = self.journal.next(EvolutionTested)
        if step is None:
            await self._require_not_paused()
            if kind != "sealed":
                self._require_time()
            limit = self.meter.limit_usd
            results = await self.runs.run(
                candidate,
                trials,
                f"{self.journal.position}",
                budget_usd=None if limit is None else limit - self.meter.spent_usd,
            )
            purpose = "sealed" if kind == "sealed" else "develop"
            step = self._tested(candidate.hash, purpose, results)
            await self.journal.write(step)
        self.meter.settle(Decimal(0), sum((Decimal(i.cost_usd) for i in step.results), Decimal(0)))
        return step.results

    async def propose(self, request: ProposalRequest) -> Candidate | None:
        self.meter.reserve("proposer")
        reserved = Decimal(0)

        def reserve(most: Decimal) -> None:
            nonlocal reserved
            self.meter.reserve_usd(most)
            reserved = most

        step = self.journal.next(EvolutionProposed)
        if step is None:
            await self._require_not_paused()
            self._require_time()
            key = f"{self.plan.campaign_id}-{self.journal.position}"
            request = replace(request, hints=hints(self.assets, request.cluster))
            try:
                candidate, cost = await propose(self.ask, request, key, reserve, task=self.task)
            except BudgetReached:  # there was no money for it: nothing was sent
                self.meter.release("proposer")
                raise
            step = EvolutionProposed(
                campaign_id=self.plan.campaign_id,
                number=request.number,
                track=request.track,
                cluster=request.cluster,
                candidate=candidate.hash,
                author=self.author,
                cost_usd=str(cost),
            )
            await self.journal.write(step, (candidate,))
        self.meter.settle(reserved, Decimal(step.cost_usd))
        if step.candidate is None:
            return None
        return await read_candidate(self.log, step.candidate)

    async def record(self, payload: Finding, *candidates: Candidate) -> None:
        if not self.journal.is_replaying:
            self._report(payload)
            if self.history is not None and isinstance(payload, EvolutionScreened):
                await self.history.add(payload, candidates[0])
        await self.journal.record(payload, candidates)

    def _report(self, payload: Finding) -> None:
        for line in step_lines(payload):
            self.report(line)

    async def _require_not_paused(self) -> None:
        ledger = await read_ledger(self.log, self.agent)
        if ledger.paused is not None:
            raise CampaignsPaused(
                f"paused: {ledger.paused.reason or 'no reason given'}; the campaign continues with"
                f" `mainspring evolve run --resume {self.plan.campaign_id}`"
            )

    def _require_time(self) -> None:
        """The gate may take longer: it decides about what the search has left.

        Raises: BudgetReached.
        """
        minutes = self.settings.minutes
        if minutes is not None and self.clock() - self.started > timedelta(minutes=minutes):
            raise BudgetReached("minutes", minutes)

    def _tested(
        self, candidate: str, purpose: str, results: Sequence[Observation]
    ) -> EvolutionTested:
        return EvolutionTested(
            campaign_id=self.plan.campaign_id,
            candidate=candidate,
            purpose=purpose,  # pyright: ignore[reportArgumentType]
            results=tuple(results),
        )
