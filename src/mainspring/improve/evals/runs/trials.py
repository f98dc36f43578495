"""One trial of a case: a real session in its own workspace, graded from its log and its files.

Ids are derived from the run, the case and the trial, so that after a crash the same session
continues and nothing is paid for twice.
"""

from __future__ import annotations

import shutil
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Literal, TypeAlias

import anyio
import msgspec
from anyio import to_thread

from mainspring.core import ids
from mainspring.core.envelope import Event, event_types
from mainspring.core.errors import InvalidInput, MainspringError, SessionExists
from mainspring.core.events import (
    AgentMcpToolUse,
    AgentMessage,
    AgentToolUse,
    CompactionRequested,
    ContextCompacted,
    EvalCaseEnded,
    EvalGrade,
    SessionFailed,
)
from mainspring.core.model import Model
from mainspring.core.sender import Origin
from mainspring.harness.budget import Budget
from mainspring.harness.context.xray import render_message
from mainspring.harness.thread_context import ignore_delta
from mainspring.improve.evals.graders import Grader, Trajectory
from mainspring.improve.evals.runs.trial_credit import credit_trial
from mainspring.improve.evals.runs.trial_tools import case_skills, service_tool, trial_toolbox
from mainspring.improve.evals.scoring.case_workspace import prepare_workspace
from mainspring.improve.evals.scoring.grading import grade_trial, is_passed, reward
from mainspring.improve.evals.scoring.grading_context import GradingContext, RunProgram
from mainspring.improve.evals.scoring.judges import Judges
from mainspring.improve.evals.suite import COMPACT, Case, Script, SuiteFile
from mainspring.improve.evals.suites.case_recording import CaseRecording
from mainspring.improve.evals.trajectory import read_trajectory
from mainspring.runtime.agent import Agent
from mainspring.runtime.memory.memory_mode import strictest_memory
from mainspring.runtime.session.session import Runtime, Session
from mainspring.runtime.session.xrays import read_shots
from mainspring.runtime.skills.skill import Skill

MakeScript: TypeAlias = Callable[[Sequence[Mapping[str, object]], str], Model]
"""Creates a model that plays these steps; the name is for errors."""
Outcome: TypeAlias = Literal["passed", "failed", "error"]
_MAX_APPROVALS = 100  # of one trial; a trial that asks for ever ends
_DENIAL = "The user does not approve this."
_ERROR_REASONS = frozenset(("model_error", "recovery_exhausted", "budget_reached"))
"""Reasons for the end of a session that are not the agent's fault."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TrialSetup:
    """The settings that all trials of a run share."""

    runtime: Runtime
    agent: Agent
    suite_file: SuiteFile
    run_id: str
    place: Path
    """The folder of the run's workspaces."""
    run_program: RunProgram
    make_script: MakeScript
    monotonic: Callable[[], float]
    budget: Budget
    judges: Callable[[], Judges]
    """Creates the judges of one trial, which pays for them."""
    keeps_workspaces: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class TrialKey:
    case: Case
    number: int
    """The number of the trial, from 1."""
    case_hash: str
    script: Script | None = None
    """A scripted model instead of the agent's own."""
    recording: CaseRecording | None = None
    """If given, tools return recorded results and have no effect."""


async def run_trial(setup: TrialSetup, key: TrialKey) -> EvalCaseEnded:
    case = key.case
    session_id = ids.stable_id(ids.SESSION, setup.run_id, case.id, str(key.number))
    place = _place(setup, case.id, key.number, session_id)
    try:
        return await _run_and_grade(setup, key, session_id, place)
    except MainspringError as error:
        return _ended(key, session_id, error=f"{type(error).__name__}: {error}")


async def discard_workspace(setup: TrialSetup, ended: EvalCaseEnded) -> None:
    """Delete the workspace of a trial that passed, once its result is in the log: until then it may
    be graded again after a crash."""
    if not setup.keeps_workspaces and ended.outcome == "passed":
        place = _place(setup, ended.case_id, ended.trial, ended.session_id)
        await to_thread.run_sync(lambda: shutil.rmtree(place, ignore_errors=True))


def _place(setup: TrialSetup, case_id: str, number: int, session_id: str) -> Path:
    return setup.place / f"{case_id[:60]}-{number}-{session_id[-8:]}"


async def _run_and_grade(
    setup: TrialSetup, key: TrialKey, session_id: str, place: Path
) -> EvalCaseEnded:
    case, suite = key.case, setup.suite_file.suite
    workspace: Path | None = None
    if setup.agent.needs_workspace:
        workspace = await to_thread.run_sync(
            prepare_workspace, place, case, setup.suite_file.folder, key.script
        )
    skills = await to_thread.run_sync(case_skills, place, case)
    session, is_resumed = await _open_session(setup, key, session_id, workspace, skills)
    seconds = case.timeout_seconds or suite.timeout_seconds
    started = setup.monotonic()
    events: list[Event] = []
    with anyio.move_on_after(seconds) as scope:
        await _play(session, case, events.append)
    duration = setup.monotonic() - started
    log = await session.events() if is_resumed or scope.cancelled_caught else events
    context = GradingContext(
        case=case,
        trajectory=read_trajectory(log, case.read_only_services),
        seconds=duration,
        instructions=setup.agent.instructions,
        suite_folder=setup.suite_file.folder,
        workspace=workspace,
        scratch=place / "grading",
        run_program=setup.run_program,
        key=session_id[-24:],
        last_request=await _last_request(session, suite.graders_of(case)),
    )
    if scope.cancelled_caught:
        is_outage = _waits_for_model(log)  # no failure of the agent
        error = f"it took more than {seconds:g} s{', and its model did not answer' * is_outage}"
        outcome = "error" if is_outage else "failed"
        return _ended(key, session_id, context, outcome=outcome, error=error)
    if context.trajectory.reason in _ERROR_REASONS:
        reason = f"{context.trajectory.reason}: {context.trajectory.detail or ''}"
        return _ended(key, session_id, context, error=reason)
    judges = setup.judges()
    grades = await grade_trial(suite.graders_of(case), context, judges)
    outcome, reason = _verdict(grades, case.pass_score)
    ended = _ended(key, session_id, context, grades, outcome=outcome, error=reason)
    if key.script is None and key.recording is None:
        own_skills = [skill.name for skill in skills]
        await credit_trial(session.log, setup.run_id, case, ended, own_skills)
    return msgspec.structs.replace(ended, grading_usd=str(judges.spent_usd))


def _waits_for_model(log: Sequence[Event]) -> bool:
    """Whether the last model request was in an outage when the time was over."""
    for event in reversed(log):
        match event.payload:
            case SessionFailed(error=error) if error.retry_status.type == "retrying":
                return True
            case AgentMessage() | AgentToolUse() | AgentMcpToolUse():
                return False
            case _:
                pass
    return False


def _verdict(grades: Sequence[EvalGrade], pass_score: float) -> tuple[Outcome, str | None]:
    if is_passed(grades, pass_score=pass_score):
        return "passed", None
    errors = [f"{grade.grader}: {grade.error}" for grade in grades if grade.error is not None]
    return ("error", "; ".join(errors)) if errors else ("failed", None)


def _ended(
    key: TrialKey,
    session_id: str,
    context: GradingContext | None = None,
    grades: tuple[EvalGrade, ...] = (),
    *,
    outcome: Outcome = "error",
    error: str | None = None,
) -> EvalCaseEnded:
    ended = EvalCaseEnded(
        case_id=key.case.id,
        trial=key.number,
        case_hash=key.case_hash,
        outcome=outcome,
        score=round(reward(grades), 6) if grades and error is None else 0.0,
        session_id=session_id,
        grades=grades,
        error=error,
        tags=key.case.tags,
    )
    if context is None:
        return ended
    trajectory = context.trajectory
    return msgspec.structs.replace(
        ended,
        turns=trajectory.turns,
        tool_calls=len(trajectory.calls),
        failed_calls=trajectory.failed_calls,
        usage=trajectory.usage,
        cost_usd=str(trajectory.cost_usd),
        seconds=round(context.seconds, 3),
    )


async def _last_request(session: Session, graders: Sequence[Grader]) -> str:
    """The text of the last request, rebuilt from the log only if a grader needs it."""
    if not any(isinstance(grader, Trajectory) and grader.in_context for grader in graders):
        return ""
    shots = await read_shots(session.log, await session.log.session(session.id))
    if not shots:
        return ""
    request = shots[-1].request
    return "\n".join((*request.system, *map(render_message, request.messages)))


async def _open_session(
    setup: TrialSetup,
    key: TrialKey,
    session_id: str,
    workspace: Path | None,
    skills: Sequence[Skill],
) -> tuple[Session, bool]:
    """Start the trial's session, or resume it after a crash; return whether it was resumed."""
    case, base = key.case, setup.runtime
    agent = setup.agent if case.model is None else replace(setup.agent, model=case.model)
    if key.script is not None:
        name = f"scripted:{case.id}-{key.number}-{session_id[-8:]}"
        base.models.put(name, setup.make_script(key.script.steps, f"the script of {case.id}"))
        agent = replace(agent, model=name)
    agent = replace(
        agent,
        tools=[*agent.tools, *map(service_tool, case.services)],
        skills=[*agent.skills, *skills],
    )
    options = replace(
        base.options,
        workspace=workspace,
        is_headless=True,
        is_attended=False,
        memory_mode=strictest_memory(base.options.memory_mode, case.memory),
    )
    if case.mode is not None:
        options = replace(options, mode=case.mode)
    runtime = Runtime(
        base.log,
        base.models,
        toolbox_factory=trial_toolbox(base.toolbox_factory, case, key.recording),
        options=options,
        budget=setup.budget,
        sender=base.sender,
    )
    title = f"{setup.suite_file.suite.name}/{case.id} trial {key.number}"
    origin = Origin(type="eval", id=setup.run_id)
    try:
        session = await runtime.start(agent, title=title, origin=origin, session_id=session_id)
    except SessionExists:
        return await runtime.resume(agent, session_id), True
    return session, False


async def _play(session: Session, case: Case, on_event: Callable[[Event], None]) -> None:
    """Send all messages, each once; messages that were answered before a crash are not repeated."""
    for number, message in enumerate(case.messages):
        if message == COMPACT:
            await session.submit(CompactionRequested(), f"eval-{number}")
        else:
            await session.send(message, client_id=f"eval-{number}")
        result = await session.run(ignore_delta, tell=on_event)
        for _ in range(_MAX_APPROVALS):
            if result is None or result.reason != "requires_action" or case.approvals == "wait":
                break
            for call_id in result.waiting_for:
                client_id = f"eval-{call_id}"
                message = None if case.approvals == "allow" else _DENIAL
                await session.answer(call_id, case.approvals, message=message, client_id=client_id)
            result = await session.run(ignore_delta, tell=on_event)
        if message == COMPACT and not await _is_compacted(session):
            raise InvalidInput("/compact removed nothing: the conversation before it is too short")


async def _is_compacted(session: Session) -> bool:
    return bool(await session.log.read(session.id, types=event_types(ContextCompacted)))
