"""Scenarios with a hidden cause: what their runs record becomes facts, as `session_facts.py` reads
them from a log, and `diagnosis.py` recommends a track."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from mainspring.core.events import EvolutionFact as Fact
from mainspring.core.events import EvolutionResult
from mainspring.improve.evolution.diagnosis import Situation, recommend
from mainspring.improve.evolution.observation import TrackName, Trial

TRACKS: tuple[TrackName, ...] = ("prompt", "skill", "harness", "knowledge", "fine_tune")
LAYERS: dict[TrackName | None, str] = {track: f"L{at}" for at, track in enumerate(TRACKS, 1)}


def result(record: Mapping[str, Any], trial: Trial, key: str = "") -> EvolutionResult:
    asked = record["events"][0]["text"].split()[-1]
    answered = (Fact("answer_matches"),) if asked in record["final"] else ()
    found = (fact for event in record["events"] if (fact := fact_of(event)) is not None)
    return EvolutionResult(
        case_id=trial.case_id,
        number=trial.number,
        score=record["score"],
        facts=(*answered, *found),
        violation="sends e-mail" if record["safety_violation"] else None,
        group=record["domain"],
        session_id=key,
    )


def fact_of(event: Mapping[str, Any]) -> Fact | None:
    match event:
        case {"output": str(output)} if output.startswith("HTTP 5"):
            return Fact("outage")
        case {"type": "harness_error"}:
            return Fact("harness_error")
        case {"shown": int(shown), "bytes": int(size)} if shown < size:
            return Fact("cut_off")
        case {"type": "tool_call", "tool": str(tool)} if tool.startswith("skill:"):
            return Fact("skill_used", tool[6:])
        case {"type": "retrieval", "hits": 0, "query": str(query)}:
            return Fact("no_hits", query)
        case {"type": "model_message", "text": str(text)}:
            return Fact("message", text)
        case _:
            return None


def recommended(records: Sequence[Mapping[str, Any]], context: Mapping[str, Any]) -> str:
    by_case: dict[str, list[EvolutionResult]] = {}
    for record in records:
        by_case.setdefault(record["task"], []).append(result(record, Trial(record["task"])))
    has_corpus, examples = context["corpus_available"], context["trajectories"]
    situation = Situation(has_corpus=has_corpus, examples=examples, tracks=TRACKS)
    return LAYERS.get(recommend(by_case, situation).track, "none")
