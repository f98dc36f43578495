"""Whom a tool's call means: one of those that the thread has called."""

from __future__ import annotations

from collections.abc import Mapping

from mainspring.core.tool import Outcome
from mainspring.harness.ensemble import Member
from mainspring.runtime.crew.calling import refused
from mainspring.runtime.crew.crew import Crew


def addressed(more: Mapping[str, object]) -> dict[str, object]:
    """The schema of an input that names somebody, and more."""
    to = {"type": "string", "description": "Its id, as you were told it; or its type, if one."}
    return {
        "type": "object",
        "properties": {"to": to, **more},
        "required": ["to", *more],
        "additionalProperties": False,
    }


def addressee(crew: Crew, member: Member, given: Mapping[str, object]) -> Member | Outcome:
    """Who it is, or that it is nobody."""
    wanted = str(given.get("to") or "")
    if not wanted:
        return refused("The input is not valid:\n- to: missing: whom you mean, by id or by type")
    below = crew.ensemble.below(member.id)
    meant = [each for each in below if wanted in (each.id, each.name)]
    if any(each.is_put_away for each in meant):
        return refused(f"{wanted!r} was put away by a user, and is not to be reached any more.")
    if len(meant) == 1 or (meant and meant[-1].id == wanted):
        return meant[-1]
    known = ", ".join(f"{each.id} ({each.name})" for each in below) or "none yet"
    what = "is not clear" if meant else "is nobody that you have called"
    return refused(f"{wanted!r} {what}. You have called: {known}.")
