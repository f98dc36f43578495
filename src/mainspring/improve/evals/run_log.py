"""Runs of suites in the log: a run is a session whose events name its cases and the result of each
trial. Another session for each suite lists its runs."""

from __future__ import annotations

from collections.abc import Iterable
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import datetime
from decimal import Decimal

import anyio

from mainspring.core import ids
from mainspring.core.envelope import Event, event_types
from mainspring.core.errors import InvalidInput, LeaseHeld, SessionExists, SessionNotFound
from mainspring.core.events import (
    EvalCaseEnded,
    EvalRunCreated,
    EvalRunEnded,
    SessionCreated,
)
from mainspring.core.sender import Origin, Sender
from mainspring.log.session_lease import hold_session
from mainspring.log.session_log import SessionLog

_CREATED = event_types(EvalRunCreated)
_INDEX_TRIES = 300
_EVAL = Origin(type="eval")


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

    def of_case(self, case_id: str) -> list[EvalCaseEnded]:
        results = [item for (name, _), item in self.results.items() if name == case_id]
        return sorted(results, key=lambda item: item.trial)

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
    try:
        entries = await log.read(index_id(agent_name, suite), types=_CREATED)
    except SessionNotFound:
        return []
    return [event.payload for event in entries if isinstance(event.payload, EvalRunCreated)]


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


async def create_run(
    log: SessionLog, created: EvalRunCreated, *, sender: Sender, origin: Origin = _EVAL
) -> None:
    """Write a run's first event, and add the run to the list. After a crash it can be called
    again."""
    title = f"eval {created.suite}"
    index = index_id(created.agent_name, created.suite)
    for session_id, name in ((created.run_id, title), (index, f"runs of {title}")):
        with suppress(SessionExists):
            await log.create(
                SessionCreated(agent_name=created.agent_name, title=name, origin=origin),
                session_id=session_id,
                sender=sender,
            )
        await _append_once(log, session_id, created)


async def _append_once(log: SessionLog, session_id: str, created: EvalRunCreated) -> None:
    for _ in range(_INDEX_TRIES):
        with suppress(LeaseHeld):  # another process lists a run
            return await _append_if_new(log, session_id, created)
        await anyio.sleep(0.05)
    return await _append_if_new(log, session_id, created)


async def _append_if_new(log: SessionLog, session_id: str, created: EvalRunCreated) -> None:
    async with hold_session(log, session_id) as writer:
        entries = await log.read(session_id, types=_CREATED)
        if all(_run_id(event) != created.run_id for event in entries):
            await writer.append(created)


def _run_id(event: Event) -> str | None:
    return event.payload.run_id if isinstance(event.payload, EvalRunCreated) else None
