"""A world whose agent has a prompt, skills, a harness file and an index: each is a file of an agent's
folder, and what its runs record becomes facts, as `session_facts.py` reads them from a log."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import anyio

from mainspring.core.events import EvolutionFact as Fact
from mainspring.core.events import EvolutionResult
from mainspring.improve.evolution.candidate import Candidate
from mainspring.improve.evolution.diagnosis import Situation, recommend
from mainspring.improve.evolution.evolve_settings import PRESETS
from mainspring.improve.evolution.improver import Improver, Plan
from mainspring.improve.evolution.meter import Meter
from mainspring.improve.evolution.observation import TrackName, Trial
from mainspring.improve.evolution.ports import ProposalRequest
from mainspring.improve.evolution.static_checks import StaticChecks

HARNESS = "harness.py"
LAYERS: dict[TrackName | None, str] = {
    "prompt": "L1",
    "skill": "L2",
    "harness": "L3",
    "knowledge": "L4",
    "fine_tune": "L5",
    None: "none",
}
TRACKS = tuple(track for track in LAYERS if track is not None)
Bundle = Any  # the worlds are not typed


def texts_of(bundle: Bundle) -> Candidate:
    skills = {f"skills/{name}/SKILL.md": text for name, text, _ in bundle.skills}
    scripts = {f"skills/{name}/run.py": script for name, _, script in bundle.skills}
    index = {f"knowledge/{name}": "" for name in bundle.index}
    base = {"AGENTS.md": bundle.prompt, HARNESS: bundle.harness}
    return Candidate({**base, **skills, **scripts, **index})


def bundle_of(one: Candidate, like: Bundle) -> Bundle:
    texts = one.texts
    names = [path.split("/")[1] for path in texts if path.endswith("/SKILL.md")]
    files = [(n, f"skills/{n}/SKILL.md", texts.get(f"skills/{n}/run.py", "")) for n in names]
    skills = tuple((name, texts[path], script) for name, path, script in files)
    index = frozenset(path[10:] for path in texts if path.startswith("knowledge/"))
    return type(like)(texts["AGENTS.md"], skills, texts[HARNESS], index, like.adapter)


def result(record: Mapping[str, Any], trial: Trial, key: str = "") -> EvolutionResult:
    return EvolutionResult(
        case_id=trial.case_id,
        number=trial.number,
        score=record["score"],
        facts=() if record["score"] >= 1 else tuple(facts(record)),
        violation="sends e-mail" if record["safety_violation"] else None,
        group=record["domain"],
        session_id=key,
    )


def facts(record: Mapping[str, Any]) -> Iterator[Fact]:
    asked = record["events"][0]["text"].split()[-1]
    if asked in record["final"]:
        yield Fact("answer_matches")
    for event in record["events"]:
        match event:
            case {"output": str(output)} if output.startswith("HTTP 5"):
                yield Fact("outage")
            case {"type": "harness_error"}:
                yield Fact("harness_error")
            case {"shown": int(shown), "bytes": int(size)} if shown < size:
                yield Fact("cut_off")
            case {"type": "tool_call", "tool": str(tool)} if tool.startswith("skill:"):
                yield Fact("skill_used", tool[6:])
            case {"type": "retrieval", "hits": 0, "query": str(query)}:
                yield Fact("no_hits", query)
            case {"type": "model_message", "text": str(text)}:
                yield Fact("message", text)
            case _:
                pass


def recommended(records: Sequence[Mapping[str, Any]], context: Mapping[str, Any]) -> str:
    by_case: dict[str, list[EvolutionResult]] = {}
    for record in records:
        by_case.setdefault(record["task"], []).append(result(record, Trial(record["task"])))
    situation = Situation(
        has_corpus=context["corpus_available"], examples=context["trajectories"], tracks=TRACKS
    )
    return LAYERS[recommend(by_case, situation).track]


class LayerPorts:
    def __init__(self, facade: Any, budget: int, seed: int) -> None:
        self.facade, self.engineer = facade, facade.engineer(seed)
        self.meter, self.records = Meter({"metric": budget}), dict[str, Any]()
        names = frozenset(facade.dev)
        checks = {"harness_files": (HARNESS,), "tracks": TRACKS, "names": names}
        self.check = StaticChecks(preset=PRESETS["innovate"], **checks)

    async def trials(self, one: Candidate, trials: Sequence[Trial]) -> list[EvolutionResult]:
        self.meter.reserve("metric", len(trials))
        bundle, results = bundle_of(one, self.facade.seed_bundle), list[EvolutionResult]()
        for trial in trials:
            record = self.facade.evaluate(bundle, trial.case_id, trial.number)
            self.records[key := str(len(self.records))] = record
            results.append(result(record, trial, key))
        return results

    async def propose(self, request: ProposalRequest) -> Candidate:
        failing = [self.records[item.session_id] for item in request.failures]
        bundle = bundle_of(request.current, self.facade.seed_bundle)
        return texts_of(self.engineer(LAYERS[request.track], bundle, failing))

    async def record(self, payload: object, *candidates: Candidate) -> None: ...


def improve(facade: Any, budget: int, seed: int) -> Bundle:
    ports = LayerPorts(facade, budget, seed)
    situation = Situation(has_corpus=True, examples=facade.trajectories, tracks=TRACKS)
    develop, sealed = tuple(facade.dev), tuple(facade.gate)
    plan = Plan(campaign_id="bench", develop=develop, sealed=sealed, seed=seed, situation=situation)
    improver = Improver(
        plan=plan,
        trials=ports.trials,
        sealed=ports.trials,
        propose=ports.propose,
        check=ports.check,
        meter=ports.meter,
        record=ports.record,
    )
    return bundle_of(
        anyio.run(improver.run, texts_of(facade.seed_bundle)).candidate, facade.seed_bundle
    )
