"""A world whose agent has a prompt, skills, a harness file and an index: each is a file of an
agent's folder."""

from __future__ import annotations

from typing import Any

from evolution import ports
from evolution.recommender import LAYERS, TRACKS, result
from mainspring.core.events import EvolutionResult
from mainspring.improve.evolution.candidate import Candidate
from mainspring.improve.evolution.diagnosis import Situation
from mainspring.improve.evolution.improver import CampaignPlan
from mainspring.improve.evolution.meter import Meter
from mainspring.improve.evolution.observation import Trial
from mainspring.improve.evolution.ports import ProposalRequest
from mainspring.improve.evolution.tracks.evolve_settings import PRESETS
from mainspring.improve.evolution.tracks.static_checks import StaticChecks

HARNESS = "harness.py"
Bundle = Any  # the worlds are not typed


def texts_of(bundle: Bundle) -> Candidate:
    skills = {f"skills/{name}/SKILL.md": text for name, text, _ in bundle.skills}
    scripts = {f"skills/{name}/run.py": script for name, _, script in bundle.skills}
    index = {f"knowledge/{name}": "" for name in bundle.index}
    texts = {"AGENTS.md": bundle.prompt, HARNESS: bundle.harness, **skills, **scripts, **index}
    return Candidate(texts)


def bundle_of(one: Candidate, like: Bundle) -> Bundle:
    texts = one.texts
    names = [path.split("/")[1] for path in texts if path.endswith("/SKILL.md")]
    files = [(name, f"skills/{name}/SKILL.md", f"skills/{name}/run.py") for name in names]
    skills = tuple((name, texts[path], texts.get(script, "")) for name, path, script in files)
    index = frozenset(path[10:] for path in texts if path.startswith("knowledge/"))
    return type(like)(texts["AGENTS.md"], skills, texts[HARNESS], index, like.adapter)


def improve(facade: Bundle, budget: int, seed: int) -> Bundle:
    engineer, records, first = facade.engineer(seed), dict[str, Any](), facade.seed_bundle

    def run(one: Candidate, trial: Trial) -> EvolutionResult:
        record = facade.evaluate(bundle_of(one, first), trial.case_id, trial.number)
        records[key := str(len(records))] = record
        return result(record, trial, key)

    def ask(request: ProposalRequest) -> Candidate:
        failing = [records[item.session_id] for item in request.failures]
        return texts_of(engineer(LAYERS[request.track], bundle_of(request.current, first), failing))

    names, preset = frozenset(facade.dev), PRESETS["innovate"]
    check = StaticChecks(preset=preset, tracks=TRACKS, harness_files=(HARNESS,), names=names)
    meter, dev, sealed = Meter({"metric": budget}), tuple(facade.dev), tuple(facade.gate)
    situation = Situation(has_corpus=True, examples=facade.trajectories, tracks=TRACKS)
    plan = CampaignPlan(campaign_id="", develop=dev, sealed=sealed, seed=seed, situation=situation)
    both = ports.WorldPorts(run=run, run_sealed=run, ask=ask, check=check, meter=meter)
    return bundle_of(ports.improve(both, texts_of(first), plan), first)
