"""What `mainspring approvals` does, straight on the store. An answer goes into the session's
inbox; a running service takes it up within a second."""

from __future__ import annotations

import sys
from collections.abc import AsyncGenerator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

import msgspec
import typer

from mainspring.config import Settings
from mainspring.core import clock
from mainspring.core.errors import InvalidInput, NotFound
from mainspring.edges.cli.approving import effect
from mainspring.edges.cli.operating import Operator
from mainspring.edges.cli.printable import one_line
from mainspring.edges.cli.render import Screen, ago, counted, minute
from mainspring.edges.cli.sessions import existing_log
from mainspring.service.access.principal import Principal
from mainspring.service.access.tenants import Tenants
from mainspring.service.approvals.approvals import MAX_MESSAGE_CHARS, Answer, Answered, Approvals
from mainspring.service.approvals.policy import ApprovalPolicy, SetApprovalPolicy
from mainspring.service.approvals.record import Approval, Result
from mainspring.service.keeping.drawer import Listing

_PAGE = 1000
_LEAST = 6
"""So many characters of an id at least say which is meant."""
_NAMED = 5


@dataclass(frozen=True, slots=True, kw_only=True)
class Wanted:
    agent_id: str | None
    session_id: str | None
    everything: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class Said:
    result: Result
    message: str | None = None
    for_session: bool = False


@dataclass(frozen=True, slots=True)
class _Desk:
    approvals: Approvals
    operator: Operator
    who: Principal


@asynccontextmanager
async def _desk(settings: Settings, tenant: str) -> AsyncGenerator[_Desk, None]:
    """Raises: InvalidInput: there is no store; NotFound: no such tenant."""
    async with existing_log(settings) as log:
        records = log.store.records
        await Tenants(records).get(tenant)
        operator = Operator(records, settings.user or "operator")
        yield _Desk(Approvals(log), operator, operator.of(tenant))


async def ls(settings: Settings, *, tenant: str, wanted: Wanted, json: bool) -> int:
    async with _desk(settings, tenant) as desk:
        found = await _all(desk, wanted)
    screen = Screen(settings)
    if json:
        for each in found:
            screen.json(msgspec.json.encode(each))
        return 0
    if not found:
        Screen(settings, stderr=True).whole(("nothing waits for a person", "dim"))
        return 0
    now = clock.now()
    heads = ["ID", "AGENT", "TOOL", "WHAT", "ASKED", "UNTIL", "STATE"]
    screen.table(heads, [_row(each, now) for each in found])
    return 0


async def show(settings: Settings, *, tenant: str, meant: str, json: bool) -> int:
    async with _desk(settings, tenant) as desk:
        [found] = await _meant(desk, [meant], everything=True)
    screen = Screen(settings)
    if json:
        screen.json(msgspec.json.encode(found))
    else:
        _show(screen, found)
    return 0


async def answer(
    settings: Settings, *, tenant: str, meant: Sequence[str], said: Said, yes: bool, json: bool
) -> int:
    """The exit status is 1 if one of them was refused."""
    if said.message is not None and not 1 <= len(said.message) <= MAX_MESSAGE_CHARS:
        raise InvalidInput(f"--message: from 1 to {MAX_MESSAGE_CHARS} characters")
    asked = Answer(result=said.result, message=said.message, for_session=said.for_session)
    async with _desk(settings, tenant) as desk:
        found = await _meant(desk, meant, everything=len(meant) == 1)
        if len(found) > 1 and not yes:
            _confirm(Screen(settings, stderr=True), found, said.result)
        answered = await desk.approvals.answer_all(desk.who, [each.id for each in found], asked)
        for each in answered:
            if each.error is None:
                await desk.operator.note(tenant, f"approvals {said.result}", each.id)
    for each in answered:
        _tell(settings, each, json=json)
    return 1 if any(each.error for each in answered) else 0


def policy_given(  # noqa: PLR0913 (the options of the command)
    *,
    role: str | None,
    four_eyes: bool | None,
    expires_after: timedelta | None,
    on_expiry: str | None,
    escalate_after: timedelta | None,
    escalate_to: str | None,
    escalated_role: str | None,
) -> dict[str, Any]:
    """What is to be changed. No time at all takes a deadline away, and what goes with it."""
    spans = {"expires_after_seconds": expires_after, "escalate_after_seconds": escalate_after}
    others = {
        "role": role,
        "four_eyes": four_eyes,
        "on_expiry": on_expiry,
        "escalate_to": escalate_to,
        "escalated_role": escalated_role,
    }
    given: dict[str, Any] = {name: each for name, each in others.items() if each is not None}
    for name, span in spans.items():
        if span is not None:
            given[name] = int(span.total_seconds()) or None
    if given.get("escalate_after_seconds", 0) is None:
        given |= {"escalate_to": None, "escalated_role": None}
    return given


async def policy(
    settings: Settings,
    *,
    tenant: str,
    agent: str | None,
    given: dict[str, Any],
    reset: bool,
    json: bool,
) -> int:
    async with _desk(settings, tenant) as desk:
        policies = desk.approvals.policies
        if reset:
            held = await policies.unset(desk.who, agent)
        elif given:
            asked = msgspec.convert({**given, "agent_id": agent}, SetApprovalPolicy)
            held = await policies.set(desk.who, asked)
        else:
            held = await policies.of(tenant, agent)
        if reset or given:
            await desk.operator.note(tenant, "approvals policy", agent)
    screen = Screen(settings)
    if json:
        screen.json(msgspec.json.encode(held))
    else:
        _show_policy(screen, held)
    return 0


async def _all(desk: _Desk, wanted: Wanted) -> list[Approval]:
    found: list[Approval] = []
    page: str | None = None
    while True:
        listing = Listing(
            limit=_PAGE,
            page=page,
            label=wanted.agent_id,
            parent=wanted.session_id,
            include_archived=wanted.everything,
            is_ascending=True,
        )
        shown = await desk.approvals.page(desk.who, listing)
        found += shown.data
        if (page := shown.next_page) is None:
            return found


async def _meant(desk: _Desk, meant: Sequence[str], *, everything: bool) -> list[Approval]:
    """Raises: NotFound; InvalidInput: it could be several."""
    known = await _all(desk, Wanted(agent_id=None, session_id=None, everything=everything))
    found: dict[str, Approval] = {}
    for each in meant:
        approval = _one(known, each)
        found[approval.id] = approval
    return list(found.values())


def _one(known: Sequence[Approval], meant: str) -> Approval:
    whole = [each for each in known if each.id == meant]
    if whole:
        return whole[0]
    found = [each for each in known if len(meant) >= _LEAST and _is_called(each, meant)]
    if len(found) > 1:  # a call that was asked about anew: the one that waits is meant
        found = [each for each in found if each.status == "waiting"] or found
    if len(found) == 1:
        return found[0]
    if not found:
        raise NotFound("approval", meant)
    several = InvalidInput(f"{meant} could be any of {len(found)} approvals; give more of the id")
    several.add_note(f"did you mean {', '.join(each.id for each in found[:_NAMED])}?")
    raise several


def _is_called(approval: Approval, meant: str) -> bool:
    ids = (approval.id, approval.id.partition("_")[2], approval.tool_use_id)
    return any(id_.startswith(meant) or id_.endswith(meant) for id_ in ids)


def _confirm(screen: Screen, found: Sequence[Approval], result: Result) -> None:
    """Raises: InvalidInput, typer.Abort: nobody said yes."""
    for each in found:
        _show(screen, each)
        screen.whole(("", ""))
    if not sys.stdin.isatty():
        raise InvalidInput(f"{counted(len(found), 'call')}: look at them, then add --yes")
    typer.confirm(f"{result} these {len(found)}?", abort=True, err=True)


def _row(approval: Approval, now: datetime) -> list[tuple[str, str]]:
    return [
        (approval.id, ""),
        (_asker(approval), ""),
        (approval.name, "bold"),
        (_gist(approval), ""),
        (ago(now - approval.asked_at), "dim"),
        ("" if approval.expires_at is None else minute(approval.expires_at), "dim"),
        _state(approval, now),
    ]


def _asker(approval: Approval) -> str:
    called = approval.subagent
    return approval.agent_name if called is None else f"{called}, called by {approval.agent_name}"


def _gist(approval: Approval) -> str:
    if approval.preview:
        lines = [line for line in approval.preview.splitlines() if line.strip()]
        return one_line(lines[0])[:60] if lines else ""
    return one_line(msgspec.json.encode(approval.input).decode())[:60]


def _state(approval: Approval, now: datetime) -> tuple[str, str]:
    if approval.status == "void":
        return "void", "dim"
    if approval.status == "answered":
        by = f" by {approval.answered_by}" if approval.answered_by else ""
        return f"{approval.result}{by}", "dim"
    if approval.expires_at is not None and approval.expires_at <= now:
        return "overdue", "red"
    return ("", "") if approval.escalated_at is None else ("escalated", "yellow")


def _show(screen: Screen, approval: Approval) -> None:
    now = clock.now()
    screen.line((approval.name, "bold"), (f"  {approval.id}", "dim"))
    for part in effect(approval.preview, approval.input):
        screen.whole(part, indent=2)
    if approval.is_cut:
        screen.whole((f"cut; mainspring log show {approval.session_id} has all of it", "dim"))
    facts = {
        "asked because": approval.reason,
        "asked": f"{ago(now - approval.asked_at)}, {minute(approval.asked_at)}",
        "by": f"{_asker(approval)} in {approval.session_id}",
        "may answer": _who(approval.may_answer.role, four_eyes=approval.may_answer.four_eyes),
        "until": _deadline(approval),
        "state": _state(approval, now)[0] or "waiting",
        "message": approval.message,
    }
    for name, told in facts.items():
        if told:
            screen.whole((f"{name}: ", "dim"), (told, ""))


def _deadline(approval: Approval) -> str | None:
    if approval.expires_at is None:
        return None
    then = "it goes on waiting" if approval.is_left else "it is denied then"
    return f"{minute(approval.expires_at)}; {then}"


def _who(role: str, *, four_eyes: bool) -> str:
    who = role if role == "admin" else f"{role} or more"
    return f"{who}, not who spoke in the session" if four_eyes else who


def _tell(settings: Settings, answered: Answered, *, json: bool) -> None:
    if json:
        Screen(settings).json(msgspec.json.encode(answered))
    elif answered.approval is None:
        Screen(settings, stderr=True).whole((answered.error or "", "red"))
    else:
        word = "allowed " if answered.approval.result == "allow" else "denied "
        parts = ((word, "green"), (answered.approval.name, "bold"), (f"  {answered.id}", "dim"))
        Screen(settings).line(*parts)


def _show_policy(screen: Screen, policy: ApprovalPolicy) -> None:
    scope = f"of {policy.agent_id}" if policy.agent_id else "of the tenant"
    screen.line(("policy ", ""), (scope if policy.updated_at else "built in", "bold"))
    expires = "never"
    if policy.expires_after_seconds is not None:
        then = "denied" if policy.on_expiry == "deny" else "left waiting"
        expires = f"after {timedelta(seconds=policy.expires_after_seconds)}, then {then}"
    escalates = "never"
    if policy.escalate_after_seconds is not None:
        escalates = f"after {timedelta(seconds=policy.escalate_after_seconds)}"
        escalates += f", to {policy.escalate_to}" if policy.escalate_to else ""
        escalates += f", then for {policy.escalated_role}" if policy.escalated_role else ""
    screen.whole(("may answer: ", "dim"), (_who(policy.role, four_eyes=policy.four_eyes), ""))
    screen.whole(("expires: ", "dim"), (expires, ""))
    screen.whole(("escalates: ", "dim"), (escalates, ""))
