"""The places of scenes about evals, dreams and campaigns."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable

import yaml
from tests.cli.scenes.place import Place, add_prices, meeting, without_sandbox
from tests.improve.evolution.support_agent import TOPICS, write_support_agent
from tests.improve.evolution.test_programs import write_doubling
from tests.repositories import git

SUITE = {
    "cases": [
        {
            "id": "one",
            "input": "say hello",
            "tags": ["first"],
            "graders": [{"type": "contains", "text": "hello"}],
        },
        {
            "id": "two",
            "input": "say two",
            "tier": "full",
            "graders": [{"type": "contains", "text": "two"}],
        },
    ]
}


def _evals(place: Place) -> None:
    place.write("agent.yaml", "name: clerk\nmodel: scripted:model.yaml\n")
    place.write("other/agent.yaml", "name: cook\n")
    place.write("model.yaml", json.dumps([{"steps": [{"says": "hello"}]}]))
    place.write("other.yaml", json.dumps([{"steps": [{"says": "sorry"}]}]))
    place.write("evals/basics.yaml", json.dumps(SUITE))
    place.must("eval", "export", "basics", "--to", "promptfoo", "-o", "exported.yaml")
    place.must("run", "a question")
    [row] = place.lines("sessions", "ls")
    place.facts["session"] = str(row["id"])
    place.run("eval", "run", "basics")
    [run, *_] = [
        row
        for row in place.lines("sessions", "ls", "--origin", "eval")
        if row["title"] == "eval basics"
    ]
    place.facts["run"] = str(run["id"])


JUDGED = {
    "graders": [{"type": "judge", "criteria": [{"name": "greets", "text": "It greets."}]}],
    "cases": [
        {
            "id": "one",
            "input": "say hello",
            "files": {"input.txt": "a text"},
            "graders": [{"type": "not_contains", "text": "sorry"}],
        },
        {"id": "two", "input": "say two", "graders": [{"type": "not_contains", "text": "sorry"}]},
    ],
}


def _judged(place: Place) -> None:
    """A suite with a judge, a person's label, and a case with a recording. The answers say whether
    two trials run at the same time."""
    add_prices(place)
    place.write("agent.yaml", "name: clerk\ngrade: {suite: judged, share: 1}\n")
    place.write("evals/judged.yaml", json.dumps(JUDGED))
    place.must("run", "a question")
    place.must("eval", "add", "last")
    place.run("eval", "run", "judged")
    place.must("eval", "label", "last", "--case", "one", "--pass")


def _parallel(place: Place) -> None:
    _judged(place)
    suite = {name: value for name, value in JUDGED.items() if name != "graders"}
    place.write("evals/judged.yaml", json.dumps(suite))
    place.must("eval", "run", "judged")
    place.must("eval", "label", "last", "--case", "two", "--fail")
    place.otherwise = meeting()


def _dreams(place: Place) -> None:
    place.must("run", "Always answer in French.", "--model", "scripted:demo")
    place.must("run", "What time is it?", "--model", "scripted:demo")
    second, _ = place.lines("sessions", "ls")
    place.facts["second"] = str(second["id"])


def _dreams_tested(place: Place) -> None:
    """As `dreams`, with a suite whose grader is a program, where no sandbox works."""
    _dreams(place)
    add_prices(place)
    without_sandbox(place)
    graders = [{"type": "command", "run": "true"}]
    cases = [{"id": "one", "input": "say hello", "graders": graders}]
    place.write("agent.yaml", "name: clerk\n")
    place.write("evals/basics.yaml", json.dumps({"cases": cases}))


def _dreamt(place: Place) -> None:
    _dreams(place)
    place.must("dream", "run")
    [dream] = place.lines("dream", "ls")
    place.facts["dream"] = str(dream["id"])


def _dream_applied(place: Place) -> None:
    _dreamt(place)
    place.must("dream", "apply", "$dream", "--yes")


def _evolving(place: Place) -> None:
    shutil.rmtree(place.project)
    write_support_agent(place.project, per_topic=2)
    write_support_agent(place.project / "other", per_topic=2)
    (place.project / "other/evolve.yaml").unlink()
    shutil.copy(
        place.project / "other/evals/support.yaml", place.project / "other/evals/second.yaml"
    )


def _evolved(place: Place) -> None:
    """A change of somebody else that the gate has accepted, and one version of it in use."""
    shutil.rmtree(place.project)
    write_support_agent(place.project, per_topic=10)
    write_support_agent(place.project / "other", per_topic=2)
    rules = "\n".join(rule for _, rule in TOPICS.values())
    place.write("change/AGENTS.md", f"You answer customers.\n\n{rules}\n")
    program = write_doubling(place.root / "doubling")
    for name in ("program.md", "run.py", "solve.py", "cases.jsonl"):
        shutil.copy(program / name, place.project / name)
    place.must("evolve", "propose", "change")
    shown = json.loads(place.must("evolve", "status", "--json"))
    place.facts["campaign"] = shown["campaign"]["id"]


def _uncommitted(place: Place) -> None:
    _evolving(place)
    for command in ("init -q", "add .", "commit -qm first"):
        git(place.project, *command.split())
    place.write("AGENTS.md", "You answer customers.\n")


def _unconfined_evals(place: Place) -> None:
    """Graders are programs, and no sandbox works."""
    shutil.rmtree(place.project)
    write_support_agent(place.project, per_topic=2)
    suite = place.project / "evals/support.yaml"
    cases = yaml.safe_load(suite.read_text())["cases"]
    for case in cases:
        case["graders"].append({"type": "command", "run": "true"})
    suite.write_text(yaml.safe_dump({"cases": cases}))
    place.write("change/AGENTS.md", "You answer.\n")
    without_sandbox(place)


def _promoted(place: Place) -> None:
    _evolved(place)
    place.must("evolve", "promote", "--yes")
    place.must("evolve", "export", "exported.jsonl")


PLACES: dict[str, Callable[[Place], None]] = {
    "evals": _evals,
    "judged": _judged,
    "parallel": _parallel,
    "dreams": _dreams,
    "dreams_tested": _dreams_tested,
    "dreamt": _dreamt,
    "dream_applied": _dream_applied,
    "evolving": _evolving,
    "evolved": _evolved,
    "promoted": _promoted,
    "uncommitted": _uncommitted,
    "unconfined evals": _unconfined_evals,
}
