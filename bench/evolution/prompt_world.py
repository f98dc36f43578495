"""A world whose agent is one prompt: the prompt is AGENTS.md, the feedback is a failed check."""

from __future__ import annotations

from collections.abc import Sequence
from random import Random
from typing import Any

import anyio

from mainspring.core.events import EvolutionFact, EvolutionResult
from mainspring.improve.evolution.candidate import Candidate
from mainspring.improve.evolution.diagnosis import Situation
from mainspring.improve.evolution.evolve_settings import PRESETS
from mainspring.improve.evolution.improver import Fact, Improver, Plan
from mainspring.improve.evolution.meter import BudgetReached, Meter
from mainspring.improve.evolution.observation import Trial
from mainspring.improve.evolution.ports import ProposalRequest, Step
from mainspring.improve.evolution.search import Search
from mainspring.improve.evolution.static_checks import StaticChecks

FILE = "AGENTS.md"
TRACKS = Situation(tracks=("prompt",))


class PromptPorts:
    # Any: the worlds are not typed
    def __init__(self, facade: Any, budget: int, seed: int) -> None:
        self.facade, self.reflect = facade, facade.reflector(seed)
        self.meter = Meter({"metric": budget, "sealed": len(facade.sealed) * 8})
        self.cases = (*facade.train, *facade.val)
        self.start = Candidate({FILE: facade.seed_prompt})
        names = frozenset(self.cases)
        self.check = StaticChecks(preset=PRESETS["innovate"], tracks=("prompt",), names=names)

    async def trials(self, one: Candidate, trials: Sequence[Trial]) -> list[EvolutionResult]:
        self.meter.reserve("metric", len(trials))
        runs = [(item, *self.facade.evaluate(one.texts[FILE], item.case_id)) for item in trials]
        return [result(item, score, feedback) for item, score, feedback in runs]

    async def sealed(self, one: Candidate, trials: Sequence[Trial]) -> list[EvolutionResult]:
        self.meter.reserve("sealed", len(trials))
        scores = [self.facade.evaluate_sealed(one.texts[FILE], item.case_id) for item in trials]
        return [result(item, score, "") for item, score in zip(trials, scores, strict=True)]

    async def propose(self, request: ProposalRequest) -> Candidate:
        cases = [(item.case_id, item.critique) for item in request.failures]
        return Candidate({FILE: self.reflect(request.current.texts[FILE], cases)})

    async def report(self, step: Step) -> None: ...
    async def record(self, payload: Fact, *candidates: Candidate) -> None: ...


def result(trial: Trial, score: float, feedback: str) -> EvolutionResult:
    _, _, reason = feedback.partition("; ")
    check = reason.removeprefix("symptom: ") if score < 1 and "unclear" not in reason else ""
    facts = () if score >= 1 else (EvolutionFact("message", check),)
    checks = (check,) if check else ()
    return EvolutionResult(
        case_id=trial.case_id, score=score, failed_checks=checks, facts=facts, critique=feedback
    )


def search(facade: Any, budget: int, seed: int) -> str:
    ports = PromptPorts(facade, budget, seed)
    found = Search(
        trials=ports.trials,
        propose=ports.propose,
        check=ports.check,
        report=ports.report,
        situation=TRACKS,
        random=Random(seed),
        current=ports.start,
    )

    async def run() -> None:
        await found.observe(ports.cases)
        while await found.step():
            pass

    try:
        anyio.run(run)
    except BudgetReached:
        pass
    return found.current.texts[FILE]


def improve(facade: Any, budget: int, seed: int) -> str:
    ports = PromptPorts(facade, budget, seed)
    plan = Plan(
        campaign_id="bench",
        develop=ports.cases,
        sealed=tuple(facade.sealed),
        seed=seed,
        situation=TRACKS,
    )
    improver = Improver(
        plan=plan,
        trials=ports.trials,
        sealed=ports.sealed,
        propose=ports.propose,
        check=ports.check,
        meter=ports.meter,
        record=ports.record,
    )
    return anyio.run(improver.run, ports.start).candidate.texts[FILE]
