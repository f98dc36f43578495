"""Reads facts about a trial from the log of its session: what failed, what was cut off, which skill
was used. It looks at the structure of events and at the words of tools, never at the model's."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator

from mainspring.core import events
from mainspring.core.content import plain_text
from mainspring.core.envelope import Event
from mainspring.core.events import EvalCaseEnded
from mainspring.improve.evals.suite import Case
from mainspring.improve.evals.trajectory import TrajectoryCall, TrajectoryLog, read_trajectory
from mainspring.improve.evolution.observation import Fact, Observation

OUTAGE = re.compile(
    r"\bHTTP (?:5\d\d|429)\b|\b50[0234] (?:Bad Gateway|Service|Internal|Gateway)"
    r"|[Cc]onnection (?:refused|reset|timed out)|Temporary failure in name resolution"
    r"|[Cc]ould not resolve host|Network is unreachable|rate limit|quota exceeded"
    r"|: command not found|No module named|overloaded"
)
"""What tools and programs print when something outside the agent is down or missing."""
_COMPUTATION = re.compile(
    r"\d\s*[-+*/x×%]\s*\d|\b\d{4}-\d\d-\d\d\b|\bdays? (?:between|after|before)\b|\bAPI\b|https?://"
)
"""Arithmetic, dates and API calls in a request: a program does them better than a prompt."""
NEEDS_SKILL = re.compile(r"NEED_NEW_SKILL:\s*([^\n]{1,200})")
_CUT_OFF = re.compile(r"\[\.\.\. \d+ (?:characters|bytes) left out")
_NO_HITS = "no document covers"
_ERROR_ENDINGS = frozenset(("model_error", "recovery_exhausted"))
SAFETY = "safety"
"""The tag of cases whose failure violates a hard constraint."""


def observation_of(
    ended: EvalCaseEnded, case: Case, log: Iterable[Event], number: int
) -> Observation:
    """What a trial showed. `log` is only read if it has not passed."""
    is_passed = ended.outcome == "passed"
    trajectory = TrajectoryLog() if is_passed else read_trajectory(log)
    failed = () if is_passed else tuple(_failed_checks(ended))
    return Observation(
        case_id=ended.case_id,
        number=number,
        score=1.0 if is_passed else 0.0,
        failed_checks=failed,
        facts=() if is_passed else tuple(_facts(ended, case, trajectory)),
        violation=None if is_passed or SAFETY not in case.tags else (failed or ("failed",))[0],
        session_id=ended.session_id,
        group=case.tags[0] if case.tags else "",
        critique="" if is_passed else _critique(ended, case, trajectory),
        cost_usd=ended.cost_usd,
    )


def _failed_checks(ended: EvalCaseEnded) -> Iterator[str]:
    for grade in ended.grades:
        if not grade.passed:
            names = [check.name for check in grade.checks if not check.passed]
            yield from names or [grade.grader]
    if not ended.grades and ended.error is not None:
        yield "takes too long" if ended.outcome == "failed" else "error"


def _facts(ended: EvalCaseEnded, case: Case, trajectory: TrajectoryLog) -> Iterator[Fact]:
    yield from _environment_facts(ended, trajectory)
    for name in dict.fromkeys(trajectory.skills):
        yield Fact("skill_used", name)
    if (needed := NEEDS_SKILL.search(trajectory.transcript)) is not None:
        yield Fact("skill_missing", needed[1].strip())
    for call in trajectory.calls:
        if _has_no_hits(call):
            yield Fact("no_hits")
        if call.call.failure in ("invalid", "unknown_tool"):
            yield Fact("wrong_tool", call.name)
    yield from _request_facts(case, trajectory)


def _request_facts(case: Case, trajectory: TrajectoryLog) -> Iterator[Fact]:
    if (
        case.gold is not None
        and _plain(case.gold)
        and _plain(case.gold) in _plain(trajectory.answer)
    ):
        yield Fact("answer_matches")
    if any(_COMPUTATION.search(message) for message in case.messages):
        yield Fact("computation")
    if trajectory.answers:
        yield Fact("message")


def _environment_facts(ended: EvalCaseEnded, trajectory: TrajectoryLog) -> Iterator[Fact]:
    """What happened around the agent."""
    texts = [call.result for call in trajectory.calls]
    error = ended.error or ""
    is_outage = any(OUTAGE.search(text) for text in (*texts, error))
    if is_outage or _is_unavailable(trajectory):
        yield Fact("outage")
    elif trajectory.reason in _ERROR_ENDINGS or ended.outcome == "error":
        yield Fact("harness_error", trajectory.reason or "error")
    if any(_CUT_OFF.search(text) for text in texts):
        yield Fact("cut_off")


def _is_unavailable(trajectory: TrajectoryLog) -> bool:
    return any(call.call.failure == "unavailable" for call in trajectory.calls)


def _has_no_hits(call: TrajectoryCall) -> bool:
    return call.name == "knowledge_search" and _NO_HITS in call.result.casefold()


def _plain(text: str) -> str:
    return " ".join(re.findall(r"\w+", text.casefold()))


def _critique(ended: EvalCaseEnded, case: Case, trajectory: TrajectoryLog) -> str:
    """What the agent did, without what it should have answered."""
    calls = ", ".join(f"{call.name} ({call.ending})" for call in trajectory.calls[:20])
    asked = " / ".join(case.messages)[:500]
    answer = trajectory.answer[:500]
    return f"asked: {asked}\n  calls: {calls or 'none'}\n  answered: {answer or ended.error or ''}"


def is_outage(log: Iterable[Event]) -> bool:
    """Whether something outside the agent was down while a session ran."""
    for event in log:
        match event.payload:
            case events.AgentToolResult(content=content, error=error):
                if error == "unavailable" or OUTAGE.search(plain_text(content)):
                    return True
            case _:
                pass
    return False
