"""A call of a tool that a subagent answers: `agent`, and skills that are carried out apart."""

from __future__ import annotations

from dataclasses import dataclass

from mainspring.core import ids
from mainspring.core.envelope import KnownPayload
from mainspring.core.errors import HandsError
from mainspring.core.events import ThreadCreated
from mainspring.core.tool import Call, Outcome, Traits
from mainspring.harness.ensemble import Member
from mainspring.runtime.crew.crew import Crew
from mainspring.runtime.crew.report import outcome_of
from mainspring.runtime.crew.seating import FORK

CALLING = Traits(concurrent=True, in_doubt="retry", max_chars=60_000)
_BEGUN = (
    "{name} is at work as {thread_id}. You will get its answer as a message; go on with something"
    " else, or stop and wait. send_message reaches it, stop_agent ends it."
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Wanted:
    """Who is to be called, and for what."""

    kind: str
    prompt: str
    description: str = ""
    model: str | None = None
    is_background: bool = False
    is_apart: bool = False


async def call_out(
    crew: Crew, member: Member, call: Call, wanted: Wanted, *facts: KnownPayload
) -> Outcome:
    """Have it done by a new thread, whose log begins with `facts`; by the same one if the call is
    made again."""
    child = crew.ensemble.called_by(call.id)
    if child is None and member.depth >= crew.lead.max_depth:
        return refused("Subagents of subagents cannot call others: do it yourself.")
    if child is None and crew.is_full:
        return full(crew)
    try:
        birth = _birth(call, member, wanted)
        child = child or await crew.bear(member, birth, wanted.prompt, *facts)
    except HandsError as error:
        return refused(str(error))
    if child.birth is not None and child.birth.mode == "background":
        crew.set_to_work(child)
        return Outcome.text(_BEGUN.format(name=wanted.kind, thread_id=child.id))
    await crew.wait_for(child)
    if waiting := crew.waiting_for(child):
        return Outcome((), waits_for=tuple(waiting))
    return outcome_of(child, crew.lodgings.told(child))


def full(crew: Crew) -> Outcome:
    """Nobody more may be set to work for now."""
    most = crew.lead.max_at_once
    return refused(
        f"{most} subagents are at work already: wait until one has ended, or do it yourself."
    )


def refused(why: str) -> Outcome:
    return Outcome.text(why, ok=False, error="failed")


def _birth(call: Call, parent: Member, wanted: Wanted) -> ThreadCreated:
    return ThreadCreated(
        session_thread_id=ids.stable_id(ids.THREAD, call.session_id, call.id),
        agent_name=wanted.kind,
        parent_thread_id=parent.id,
        tool_use_id=call.id,
        mode="background" if wanted.is_background else "foreground",
        is_fork=wanted.kind == FORK,
        model=wanted.model,
        isolation="worktree" if wanted.is_apart else "shared",
        description=wanted.description or None,
    )
