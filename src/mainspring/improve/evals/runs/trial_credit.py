"""Credits the memories and skills that a trial used, by its verdict. Only cases with `memory: on`
count: trials that only read memories do not change their utility."""

from __future__ import annotations

from collections.abc import Iterable

from mainspring.core import events
from mainspring.core.envelope import Event, event_types
from mainspring.core.events import EvalCaseEnded, UtilityCredited, UtilitySubject
from mainspring.improve.evals.suite import Case
from mainspring.log.session_lease import hold_session
from mainspring.log.session_log import SessionLog

_RELEVANT = event_types(events.MemoryRecalled, events.SkillUsed, UtilityCredited)
_SHARED_SCOPES = frozenset(("user", "team"))
"""Memories of the scope `agent` are files of the case, not the agent's own."""
_REWARDS = {"passed": 1.0, "failed": 0.0}


async def credit_trial(
    log: SessionLog, run_id: str, case: Case, ended: EvalCaseEnded, own_skills: Iterable[str]
) -> None:
    """Write the credits into the log of the trial's session, once. `own_skills` are the case's own.

    Raises: LeaseHeld.
    """
    if case.memory != "on" or ended.outcome not in _REWARDS:
        return
    outcome_id = f"{run_id}/{ended.case_id}/{ended.trial}"
    async with hold_session(log, ended.session_id) as writer:
        entries = await log.read(ended.session_id, types=_RELEVANT)
        if any(_is_credit(event, outcome_id) for event in entries):
            return
        await writer.append(
            *(
                UtilityCredited(
                    subject=subject,
                    reward=_REWARDS[ended.outcome],
                    source="eval",
                    outcome_id=outcome_id,
                )
                for subject in _uses(entries, frozenset(own_skills))
            )
        )


def _is_credit(event: Event, outcome_id: str) -> bool:
    return isinstance(event.payload, UtilityCredited) and event.payload.outcome_id == outcome_id


def _uses(log: Iterable[Event], own_skills: frozenset[str]) -> list[UtilitySubject]:
    """The memories and skills that were used, each once."""
    subjects: dict[tuple[str, str], UtilitySubject] = {}
    for event in log:
        match event.payload:
            case events.MemoryRecalled() as used if used.store_id in _SHARED_SCOPES:
                id_ = f"{used.store_id}/{used.path}"
                subject = UtilitySubject(type="memory", id=id_, version=used.version)
            case events.SkillUsed(name=name, hash=version) if name not in own_skills:
                subject = UtilitySubject(type="skill", id=name, version=version)
            case _:
                continue
        subjects[subject.type, subject.id] = subject
    return list(subjects.values())
