"""Runs of suites in the log: a run is a session whose events name its cases and the result of each
trial. For each suite, another session lists its runs."""

from __future__ import annotations

from collections.abc import Iterable
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import datetime
from decimal import Decimal

from mainspring.core import ids
from mainspring.core.envelope import Event
from mainspring.core.errors import InvalidInput, SessionNotFound
from mainspring.core.events import (
    EvalCaseEnded,
    EvalRunCreated,
    EvalRunEnded,
    SessionCreated,
)
from mainspring.core.sender import Origin, Sender
from mainspring.improve.listed_sessions import create_listed, read_list
from mainspring.log.session_log import SessionLog

_EVAL = Origin(type="eval")
MAX_EARLIER_RUNS = 10
"""The most earlier runs that are read for their results."""


@dataclass(slots=True)
class EvalRun:
    """The state of a run, folded from its log."""

    created: EvalRunCreated
    started: datetime
    results: dict[tuple[str, int], EvalCaseEnded] = field(
        default_factory=dict[tuple[str, int], EvalCaseEnded]
    )
    ended: EvalRunEnded | None = None

    @property
    def id(self) -> str:
        return self.created.run_id

    @property
    def cost_usd(self) -> Decimal:
        """The cost of this run, without results of earlier runs."""
        results = [item for item in self.results.values() if item.from_run is None]
        costs = (Decimal(item.cost_usd) + Decimal(item.grading_usd) for item in results)
        return sum(costs, Decimal(0))

    @property
    def sorted_results(self) -> list[EvalCaseEnded]:
        """The results, sorted by case and trial."""
        return [self.results[key] for key in sorted(self.results)]

    def apply(self, event: Event) -> None:
        match event.payload:
            case EvalCaseEnded() as ended:
                self.results.setdefault((ended.case_id, ended.trial), ended)
            case EvalRunEnded() as run_ended:
                self.ended = run_ended
            case _:
                pass


def fold_run(log: Iterable[Event]) -> EvalRun | None:
    """Fold a log into a run; `None` if it is not the log of a run."""
    run: EvalRun | None = None
    for event in log:
        if isinstance(event.payload, EvalRunCreated):
            run = EvalRun(event.payload, event.time)
        elif run is not None:
            run.apply(event)
    return run


def index_id(agent_name: str, suite: str) -> str:
    """The session that lists the runs of a suite."""
    return ids.stable_id(ids.SESSION, "eval-suite", agent_name, suite)


async def read_run(log: SessionLog, run_id: str) -> EvalRun:
    """Raises: SessionNotFound. InvalidInput: the session is not a run of a suite."""
    run = fold_run(await log.read(run_id))
    if run is None or run.id != run_id:
        raise InvalidInput(f"session {run_id} is not a run of an eval suite")
    return run


async def list_runs(log: SessionLog, agent_name: str, suite: str) -> list[EvalRunCreated]:
    """The runs of a suite, oldest first."""
    return await read_list(log, index_id(agent_name, suite), EvalRunCreated)


async def existing_runs(
    log: SessionLog, agent_name: str, suite: str, *, newest: int
) -> list[EvalRun]:
    """The newest runs that are still in the log, newest first."""
    runs: list[EvalRun] = []
    for created in reversed(await list_runs(log, agent_name, suite)):
        if len(runs) == newest:
            break
        with suppress(SessionNotFound):
            runs.append(await read_run(log, created.run_id))
    return runs


async def newest_finished_run(log: SessionLog, agent_name: str, suite: str) -> EvalRun | None:
    """The newest run that has ended with results."""
    runs = await existing_runs(log, agent_name, suite, newest=MAX_EARLIER_RUNS)
    return next((run for run in runs if run.ended is not None and run.results), None)


async def create_run(
    log: SessionLog, created: EvalRunCreated, *, sender: Sender, origin: Origin = _EVAL
) -> None:
    """Write a run's first event, and add the run to the list. Call it again after a crash."""
    titles = {
        created.run_id: f"eval {created.suite}",
        index_id(created.agent_name, created.suite): f"runs of eval {created.suite}",
    }
    sessions = {
        session_id: SessionCreated(agent_name=created.agent_name, title=title, origin=origin)
        for session_id, title in titles.items()
    }
    await create_listed(log, created, sessions, key=lambda run: run.run_id, sender=sender)
