"""A world whose agent is one prompt: the prompt is AGENTS.md, the feedback is a failed check."""

from __future__ import annotations

from typing import Any

from evolution import ports
from mainspring.core.events import EvolutionFact, EvolutionResult
from mainspring.improve.evolution.candidate import Candidate
from mainspring.improve.evolution.diagnosis import Situation
from mainspring.improve.evolution.improver import CampaignPlan
from mainspring.improve.evolution.meter import Meter
from mainspring.improve.evolution.observation import Trial
from mainspring.improve.evolution.ports import ProposalRequest
from mainspring.improve.evolution.tracks.evolve_settings import PRESETS
from mainspring.improve.evolution.tracks.static_checks import StaticChecks

FILE = "AGENTS.md"
Facade = Any  # the worlds are not typed
PROMPT = Situation(tracks=("prompt",))


def ports_of(facade: Facade, budget: int, seed: int) -> ports.WorldPorts:
    reflect, names = facade.reflector(seed), frozenset((*facade.train, *facade.val))

    def ask(request: ProposalRequest) -> Candidate:
        cases = [(item.case_id, item.critique) for item in request.failures]
        return Candidate({FILE: reflect(request.current.texts[FILE], cases)})

    return ports.WorldPorts(
        run=lambda one, trial: result(trial, *facade.evaluate(one.texts[FILE], trial.case_id)),
        run_sealed=lambda one, trial: result(
            trial, facade.evaluate_sealed(one.texts[FILE], trial.case_id)
        ),
        ask=ask,
        check=StaticChecks(preset=PRESETS["innovate"], tracks=("prompt",), names=names),
        meter=Meter({"metric": budget, "sealed": 8 * len(facade.sealed)}),
    )


def result(trial: Trial, score: float, feedback: str = "") -> EvolutionResult:
    reason = feedback.partition("; ")[2]
    check = "" if "unclear" in reason else reason.removeprefix("symptom: ")
    facts = (EvolutionFact("message", check),)
    return EvolutionResult(case_id=trial.case_id, score=score, facts=facts, critique=feedback)


def search(facade: Facade, budget: int, seed: int) -> str:
    start, cases = Candidate({FILE: facade.seed_prompt}), (*facade.train, *facade.val)
    found = ports.search(ports_of(facade, budget, seed), start, cases, PROMPT, seed)
    return found.texts[FILE]


def improve(facade: Facade, budget: int, seed: int) -> str:
    start, cases = Candidate({FILE: facade.seed_prompt}), (*facade.train, *facade.val)
    sealed = tuple(facade.sealed)
    plan = CampaignPlan(campaign_id="", develop=cases, sealed=sealed, seed=seed, situation=PROMPT)
    return ports.improve(ports_of(facade, budget, seed), start, plan).texts[FILE]
