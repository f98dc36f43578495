"""Compares an agent alone with several agents: a vote, peers, a manager with workers. Shows what
more agents improve on a suite, and what they cost."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from decimal import Decimal
from statistics import fmean, median
from typing import Literal, TypeAlias

import msgspec

from mainspring.core.envelope import event_types
from mainspring.core.errors import InvalidInput, SessionNotFound
from mainspring.core.events import ThreadCreated
from mainspring.improve.evals.gate.comparison import (
    Comparison,
    ResultSummary,
    case_results,
    compare,
    summarize,
)
from mainspring.improve.evals.runs.run_log import EvalRun
from mainspring.log.session_log import SessionLog
from mainspring.runtime.agent import AnyAgent
from mainspring.runtime.subagent import GENERAL, Subagent

Topology: TypeAlias = Literal["single", "vote", "peers", "manager"]
_VOTERS = 3  # the least number with a majority
_SOLVER = Subagent(
    name="solver",
    description="Solves the whole task alone and says its result; it does not know the others.",
    prompt=(
        "You are one of several who solve the same task independently. Solve all of it by yourself"
        " and end with your result: the complete answer, or each file that has to change with its"
        " new content. Change nothing in the workspace."
    ),
    permission_mode="plan",
)
_PEER = Subagent(
    name="peer",
    description="An equal: reads your work on the task, says what is wrong with it, or agrees.",
    prompt=(
        "You and another agent are equals who work on the same task. You receive the task and the"
        " other's work. Check it against the task and the workspace; do not take its word for"
        " anything. Say what is wrong and how you would do it, or AGREE if nothing has to change."
    ),
    permission_mode="plan",
)
_WORKER = msgspec.structs.replace(GENERAL, name="worker")
_RULES: dict[Topology, str] = {
    "single": "",
    "vote": (
        f"Before you do anything, give the whole task, word for word, to {_VOTERS} subagents of the"
        " type `solver` in one turn. Compare their results and do what most of them say; if no two"
        " agree, decide by yourself."
    ),
    "peers": (
        "When you have done the task, give it and your work to a subagent of the type `peer`."
        " Correct what it is right about and show it again, until it says AGREE, at most three"
        " times."
    ),
    "manager": (
        "You have no tools for the work itself. Divide the task among subagents of the type"
        " `worker`, check what they report, and answer the user."
    ),
}
_SUBAGENTS: dict[Topology, tuple[Subagent, ...]] = {
    "single": (),
    "vote": (_SOLVER,),
    "peers": (_PEER,),
    "manager": (_WORKER,),
}


def parse_topologies(text: str) -> list[Topology]:
    """Raises: InvalidInput: a name is not a topology."""
    names = [name.strip() for name in text.split(",") if name.strip()]
    try:
        return msgspec.convert(list(dict.fromkeys(names)), list[Topology])
    except msgspec.ValidationError:
        raise InvalidInput(f"topologies are {', '.join(_RULES)}, not {text}") from None


def with_topology(agent: AnyAgent, topology: Topology) -> AnyAgent:
    """The agent with another topology; `single` calls no subagents."""
    return replace(
        agent,
        rules=[*agent.rules, *filter(None, [_RULES[topology]])],
        subagents=_SUBAGENTS[topology],
        handoffs=(),
        is_coordinator=topology == "manager",
        version=None if agent.version is None else f"{agent.version}-{topology}",
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class TopologyResult:
    topology: Topology
    summary: ResultSummary
    cost_usd: Decimal
    seconds: float
    """The median over trials."""
    subagents: float
    """The mean number of subagents of a trial."""
    idle_trials: int
    """Trials without a subagent, although the topology has some."""
    comparison: Comparison | None
    """The comparison with `single`, if that was run."""


async def topology_results(
    log: SessionLog, runs: Sequence[tuple[Topology, EvalRun]]
) -> list[TopologyResult]:
    single = next((run for topology, run in runs if topology == "single"), None)
    return [await _result(log, topology, run, single) for topology, run in runs]


async def _result(
    log: SessionLog, topology: Topology, run: EvalRun, single: EvalRun | None
) -> TopologyResult:
    results = list(run.results.values())
    cases = case_results(results)
    subagent_counts = [await _subagents(log, item.session_id) for item in results]
    costs = (Decimal(item.cost_usd) + Decimal(item.grading_usd) for item in results)
    return TopologyResult(
        topology=topology,
        summary=summarize(cases),
        cost_usd=sum(costs, Decimal(0)),
        seconds=median([item.seconds for item in results] or [0.0]),
        subagents=fmean(subagent_counts or [0]),
        idle_trials=sum(count == 0 for count in subagent_counts) if _SUBAGENTS[topology] else 0,
        comparison=None
        if single is None or topology == "single"
        else compare(case_results(single.results.values()), cases),
    )


async def _subagents(log: SessionLog, session_id: str) -> int:
    with suppress(SessionNotFound):
        return len(await log.read(session_id, types=event_types(ThreadCreated)))
    return 0


def advice(results: Iterable[TopologyResult]) -> Iterator[str]:
    """Recommend more agents only if the paired test finds them better than one."""
    rows = {row.topology: row for row in results}
    single = rows.get("single")
    if single is None:
        yield "run `single` too: without it, there is nothing to compare more agents with"
        return
    others = [row for row in rows.values() if row.comparison is not None]
    better = [row for row in others if row.comparison and row.comparison.verdict == "better"]
    for row in others:
        if row.idle_trials:
            yield (
                f"{row.topology} called no subagent in {row.idle_trials} of its trials; in these it"
                " is one agent with a longer prompt"
            )
    if not better:
        ratios = [ratio for row in others if (ratio := _cost_ratio(row, single)) is not None]
        highest = max(ratios, default=None)
        cost = "" if highest is None else f", and they cost up to {highest:.1f} times as much"
        yield (
            f"use one agent: it passes {single.summary.pass_rate:.0%} of the cases, and no"
            f" arrangement of several is found to be better{cost}"
        )
        if any(row.comparison and row.comparison.verdict == "not enough cases" for row in others):
            yield "the suite is too small to find a difference of ten points"
        return
    best = max(better, key=lambda row: row.summary.pass_rate)
    if best.comparison is not None:
        ratio = _cost_ratio(best, single)
        cost = "" if ratio is None else f" at {ratio:.1f} times the cost"
        yield f"{best.topology} is better than one agent{cost}: {best.comparison.text}"


def _cost_ratio(row: TopologyResult, single: TopologyResult) -> float | None:
    return float(row.cost_usd / single.cost_usd) if single.cost_usd else None
