"""Runs of eval suites: what is run, how each trial ended."""

from __future__ import annotations

from typing import Literal, TypeAlias

from msgspec import Struct

from mainspring.core.events.payload import Payload
from mainspring.core.events.session import Usage


class EvalCheck(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One named part of a grader's verdict; the name stays the same from run to run."""

    name: str
    passed: bool
    detail: str = ""


class EvalGrade(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A grader's verdict on one trial."""

    grader: str
    passed: bool
    score: float
    checks: tuple[EvalCheck, ...] = ()
    weight: float | None = None
    """The weight of an incentive; absent for a constraint, which fails the case by itself."""
    error: str | None = None
    """Why there is no verdict; the grade counts as failed."""
    note: str | None = None
    """A caveat for the reader of the score, such as an uncalibrated judge."""


class EvalRunCreated(Payload, frozen=True, kw_only=True, tag="eval_run.created"):
    """Recorded in the log of the run, and in the log that lists the runs of the suite."""

    run_id: str
    """The session that has the log of the run."""
    suite: str
    suite_hash: str
    agent_name: str
    model: str
    cases: dict[str, str]
    """The hash of each case by its id: case, files, graders, agent and model."""
    trials: int
    agent_version: str | None = None
    budget_usd: str | None = None


class EvalCaseEnded(Payload, frozen=True, kw_only=True, tag="eval_run.case_ended"):
    case_id: str
    trial: int
    case_hash: str
    outcome: Literal["passed", "failed", "error"]
    """`error`: no verdict, which counts as failed."""
    score: float
    session_id: str
    grades: tuple[EvalGrade, ...] = ()
    error: str | None = None
    tags: tuple[str, ...] = ()
    turns: int = 0
    tool_calls: int = 0
    failed_calls: int = 0
    usage: Usage = Usage()
    cost_usd: str = "0"
    grading_usd: str = "0"
    seconds: float = 0.0
    from_run: str | None = None
    """The earlier run that this result was reused from, since nothing has changed."""


class EvalRunEnded(Payload, frozen=True, kw_only=True, tag="eval_run.ended"):
    status: Literal["completed", "budget_reached"]
    passed: int
    failed: int
    errors: int
    cost_usd: str


EvalPayload: TypeAlias = EvalRunCreated | EvalCaseEnded | EvalRunEnded
