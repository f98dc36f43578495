"""Grades a share of an agent's real sessions with the graders of a suite, within a separate budget,
so that production can be compared with the lab.

A session's id decides whether it is graded. The grades of the sessions of one day are a run of the
suite, whose session has the origin `grader`. Each request to a judge is logged with its possible
cost before it is made, so that a process that dies neither spends twice nor exceeds the budget.
Grades are stored without their reasons, which quote the session: deleting it deletes its text.
"""

from __future__ import annotations

import hashlib
import shutil
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field
from datetime import date, datetime, timedelta
from decimal import Decimal
from functools import cached_property
from pathlib import Path

from anyio import to_thread
from msgspec.structs import replace

from mainspring.core import ids
from mainspring.core.clock import from_micros
from mainspring.core.content import plain_text
from mainspring.core.envelope import Event, event_types
from mainspring.core.errors import InvalidInput, LeaseHeld, SessionNotFound
from mainspring.core.events import (
    EvalCaseEnded,
    EvalCheck,
    EvalGrade,
    EvalRunCreated,
    SessionCreated,
    UserMessage,
)
from mainspring.core.sender import Origin, OriginType
from mainspring.harness.state.thread_tree import SpendAccount
from mainspring.improve.evals.graders import (
    CommandCheck,
    Equals,
    FileCheck,
    Grader,
    Measure,
    NumberSource,
    Pairwise,
    Similarity,
    Trajectory,
    grader_name,
)
from mainspring.improve.evals.runs.run_log import create_run, fold_run
from mainspring.improve.evals.runs.runner import SuiteRunner
from mainspring.improve.evals.scoring.grading import grade_trial, is_passed, reward
from mainspring.improve.evals.scoring.grading_context import GradingContext
from mainspring.improve.evals.scoring.judge_calls import RunBudget, judge_asker
from mainspring.improve.evals.scoring.judges import Judges
from mainspring.improve.evals.scoring.labels import read_calibrations
from mainspring.improve.evals.suite import ENCODER, Case, SuiteFile
from mainspring.improve.evals.trajectory import read_trajectory
from mainspring.log.session_lease import hold_session
from mainspring.log.store import SessionRow, all_sessions
from mainspring.log.writer import Writer
from mainspring.runtime.agent_folder.production_settings import ManifestGrade
from mainspring.runtime.insights.service_levels import includes_all

LISTED_AS = " (production)"
"""The suffix of the suite's name in the list of runs."""
IDLE = timedelta(minutes=10)
"""A session that was not used for this long has ended."""
_WINDOW = timedelta(days=7)
"""Sessions that began earlier are not graded."""
_REAL: frozenset[OriginType] = frozenset(
    ("user", "api", "schedule", "trigger", "workflow", "gateway")
)
_CREATED = event_types(SessionCreated)


def is_sampled(session_id: str, share: float) -> bool:
    """Whether a session is graded; always the same for the same session."""
    return _position(session_id) < share


def _position(session_id: str) -> float:
    """A pseudorandom number between 0 and 1."""
    digest = hashlib.sha256(f"grade {session_id}".encode()).digest()
    return int.from_bytes(digest[:8]) / 2**64


def production_graders(suite_file: SuiteFile) -> tuple[Grader, ...]:
    """The suite's own graders. Raises: InvalidInput: it has none, or one needs more than a log."""
    graders = suite_file.suite.graders
    if not graders:
        raise InvalidInput(
            f"suite {suite_file.suite.name} has no `graders` of its own, so it cannot grade real"
            " sessions"
        )
    for grader in graders:
        if _needs_case(grader):
            raise InvalidInput(
                f"suite {suite_file.suite.name}: {grader_name(grader)} cannot grade real sessions,"
                " which have no workspace, no `gold` and no case; move it to the cases"
            )
    return graders


def _needs_case(grader: Grader) -> bool:
    match grader:
        case FileCheck() | CommandCheck() | Pairwise():
            return True
        case Measure(value=NumberSource() as value):
            return value.file is not None or value.command is not None
        case Equals(text=text) | Similarity(text=text):
            return text is None
        case Trajectory(in_context=texts):
            return bool(texts)
        case _:
            return False


@dataclass(slots=True)
class GradingReport:
    graded: list[EvalCaseEnded] = field(default_factory=list[EvalCaseEnded])
    over_budget: int = 0
    """Selected sessions that were not graded because the budget of their day is reached."""
    is_busy: bool = False
    """Whether another process is grading at the moment."""


@dataclass(frozen=True, kw_only=True)
class ProductionGrader:
    runner: SuiteRunner
    suite_file: SuiteFile
    settings: ManifestGrade
    clock: Callable[[], datetime]
    idle: timedelta = IDLE
    includes: Callable[[str], Awaitable[bool]] = includes_all
    """Whether the agent's owner may read a session."""

    @cached_property
    def graders(self) -> tuple[Grader, ...]:
        return production_graders(self.suite_file)

    async def run(self) -> GradingReport:
        """Grade the selected sessions that have ended and have no grade.

        Raises: InvalidInput: the suite cannot grade real sessions.
        """
        days: dict[date, list[SessionRow]] = {}
        if self.graders:
            for row in await self._sampled():
                days.setdefault(from_micros(row.created).date(), []).append(row)
        report = GradingReport()
        for day in sorted(days):
            rows = sorted(
                days[day], key=lambda row: _position(row.id)
            )  # a fair choice if the budget suffices for few
            try:
                await self._grade_day(day, rows, report)
            except LeaseHeld:
                report.is_busy = True
        return report

    async def _sampled(self) -> list[SessionRow]:
        now, rows = self.clock(), list[SessionRow]()
        async for row in all_sessions(self.runner.runtime.log.store):
            if from_micros(row.created) < now - _WINDOW:
                break
            is_over = row.owner is None and from_micros(row.updated) <= now - self.idle
            if is_sampled(row.id, self.settings.share) and is_over and await self._is_real(row):
                rows.append(row)
        return rows

    async def _is_real(self, row: SessionRow) -> bool:
        """Whether it is a session of this agent that its owner or the owner's program started."""
        log = self.runner.runtime.log
        first = [event.payload for event in await log.read(row.id, types=_CREATED, limit=1)]
        if not first or not isinstance(first[0], SessionCreated):
            return False
        origin = first[0].origin
        return (
            first[0].agent_name == self.runner.agent.name
            and (origin is None or origin.type in _REAL)
            and await self.includes(row.id)
        )

    async def _grade_day(
        self, day: date, rows: Sequence[SessionRow], report: GradingReport
    ) -> None:
        log, created = self.runner.runtime.log, self._created(day)
        if await self._is_complete(created.run_id, rows):
            return
        origin = Origin(type="grader")
        await create_run(log, created, sender=self.runner.runtime.sender, origin=origin)
        async with hold_session(log, created.run_id) as writer:
            events = await log.read(created.run_id)
            run = fold_run(events)
            graded_ids = set[str]() if run is None else {name for name, _ in run.results}
            budget = RunBudget(self.settings.max_cost_usd_per_day, spent_usd=_spent(events))
            for row in rows:
                if row.id in graded_ids:
                    continue
                if budget.is_exhausted:
                    report.over_budget += 1
                    continue
                ended = await self._grade(row, budget, writer)
                if ended is not None and budget.is_exhausted:
                    report.over_budget += 1
                elif ended is not None:
                    await writer.append(ended)
                    report.graded.append(ended)
                    await self._delete_reasons(row)

    async def _is_complete(self, run_id: str, rows: Sequence[SessionRow]) -> bool:
        try:
            run = fold_run(await self.runner.runtime.log.read(run_id))
        except SessionNotFound:
            return False
        return run is not None and {row.id for row in rows} <= {name for name, _ in run.results}

    def _created(self, day: date) -> EvalRunCreated:
        suite, agent = self.suite_file.suite.name + LISTED_AS, self.runner.agent
        return EvalRunCreated(
            run_id=ids.stable_id(ids.SESSION, "production", agent.name, suite, day.isoformat()),
            suite=suite,
            suite_hash=self.suite_file.hash,
            agent_name=agent.name,
            model=agent.model,
            cases={},
            trials=1,
            agent_version=agent.version,
            budget_usd=str(self.settings.max_cost_usd_per_day),
        )

    async def _grade(
        self, row: SessionRow, budget: RunBudget, writer: Writer
    ) -> EvalCaseEnded | None:
        """The grade of a session; `None` if it has no answer."""
        context = await self._grading_context(row)
        if context is None:
            return None
        runner, trajectory = self.runner, context.trajectory
        judges = Judges(
            ask=judge_asker(runner.runtime.models, budget, writer),
            verdicts=self._verdicts(row),
            default_model=runner.agent.model,
            judged_model=runner.agent.model,
            calibrations=read_calibrations(self.suite_file),
        )
        grades = await grade_trial(self.graders, context, judges)
        errors = [f"{grade.grader} gave no verdict" for grade in grades if grade.error is not None]
        has_passed = is_passed(grades, pass_score=0.0)
        return EvalCaseEnded(
            case_id=row.id,
            trial=1,
            case_hash=hashlib.sha256(ENCODER.encode(self.graders)).hexdigest(),
            outcome="passed" if has_passed else "error" if errors else "failed",
            score=0.0 if errors else round(reward(grades), 6),
            session_id=row.id,
            grades=tuple(map(_without_reasons, grades)),
            error="; ".join(errors) or None,
            turns=trajectory.turns,
            tool_calls=len(trajectory.calls),
            failed_calls=trajectory.failed_calls,
            usage=trajectory.usage,
            grading_usd=str(judges.spent_usd),
            seconds=round(context.seconds, 3),
        )

    def _verdicts(self, row: SessionRow) -> Path:
        """The folder of verdicts until the session's grade is in the log."""
        return self.runner.verdicts / "production" / row.id

    async def _delete_reasons(self, row: SessionRow) -> None:
        await to_thread.run_sync(lambda: shutil.rmtree(self._verdicts(row), ignore_errors=True))

    async def _grading_context(self, row: SessionRow) -> GradingContext | None:
        log = await self.runner.runtime.log.read(row.id)
        messages = tuple(
            plain_text(event.payload.content)
            for event in log
            if isinstance(event.payload, UserMessage) and event.thread_id == row.thread_id
        )
        trajectory = read_trajectory(log)
        if not messages or trajectory.reason in (None, "requires_action"):
            return None  # it waits and may still continue
        return GradingContext(
            case=Case(id=row.id, input=messages),
            trajectory=trajectory,
            seconds=trajectory.running_seconds,
            instructions=self.runner.agent.instructions,
            suite_folder=self.suite_file.folder,
            workspace=None,
            scratch=self.runner.place / "grading",
            run_program=self.runner.run_program,
            key=row.id[-24:],
        )


def _without_reasons(grade: EvalGrade) -> EvalGrade:
    checks = tuple(EvalCheck(name=check.name, passed=check.passed) for check in grade.checks)
    error = None if grade.error is None else "no verdict"
    return replace(grade, checks=checks, error=error)


def _spent(events: Sequence[Event]) -> Decimal:
    """The amount spent, including the possible cost of requests that a crash interrupted."""
    account = SpendAccount()
    for event in events:
        account.apply(event)
    reserved = (item.cost_usd for item in account.spending.reservations.values())
    return account.spending.cost_usd + sum(reserved, Decimal(0))
