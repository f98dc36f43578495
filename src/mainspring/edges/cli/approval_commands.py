"""The commands of `mainspring approvals`: they work directly on the store. An answer goes into the
session's inbox; a running service reads it within a second."""

from __future__ import annotations

import sys
from collections.abc import AsyncGenerator, Awaitable, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

import msgspec
import typer

from mainspring.config import Settings
from mainspring.core import clock
from mainspring.core.errors import InvalidInput, NotFound
from mainspring.edges.cli.approval_prompt import preview_lines
from mainspring.edges.cli.operator_access import Operator, all_pages
from mainspring.edges.cli.printing import (
    Screen,
    age_text,
    local_time,
    plural,
    print_list,
    sanitize_line,
)
from mainspring.edges.cli.session_lookup import open_existing_log
from mainspring.service.access.principal import Principal
from mainspring.service.access.tenants import Tenants
from mainspring.service.approvals.approval_policy import ApprovalPolicy, SetApprovalPolicy
from mainspring.service.approvals.approval_record import Approval, ApprovalResult
from mainspring.service.approvals.approvals import (
    MAX_MESSAGE_CHARS,
    AnswerResult,
    ApprovalAnswer,
    Approvals,
)
from mainspring.service.storage.pagination import Page
from mainspring.service.storage.repository import ListQuery

_PAGE_SIZE = 1000
_MIN_ID_CHARS = 6
"""The least number of characters that may stand for an id."""
_MAX_SUGGESTIONS = 5


@dataclass(frozen=True, slots=True, kw_only=True)
class ApprovalFilter:
    agent_id: str | None
    session_id: str | None
    everything: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class AnswerOptions:
    approval_result: ApprovalResult
    message: str | None = None
    for_session: bool = False


@dataclass(frozen=True, slots=True)
class _ApprovalContext:
    approvals: Approvals
    operator: Operator
    who: Principal


@asynccontextmanager
async def _open_approvals(
    settings: Settings, tenant: str
) -> AsyncGenerator[_ApprovalContext, None]:
    """Raises: InvalidInput: there is no store; NotFound: no such tenant."""
    async with open_existing_log(settings) as log:
        records = log.store.records
        await Tenants(records).get(tenant)
        operator = Operator(records, settings.user or "operator")
        yield _ApprovalContext(Approvals(log), operator, operator.principal_in(tenant))


async def ls(
    settings: Settings, *, tenant: str, approval_filter: ApprovalFilter, json: bool
) -> int:
    async with _open_approvals(settings, tenant) as context:
        approvals = await _list_approvals(context, approval_filter)
    now = clock.now()
    return print_list(
        settings,
        approvals,
        json=json,
        heads=["ID", "AGENT", "TOOL", "WHAT", "ASKED", "UNTIL", "STATE"],
        row=lambda approval: _approval_row(approval, now),
        empty="nothing waits for approval",
    )


async def show(settings: Settings, *, tenant: str, id_or_part: str, json: bool) -> int:
    async with _open_approvals(settings, tenant) as context:
        [approval] = await _find_approvals(context, [id_or_part], everything=True)
    screen = Screen(settings)
    if json:
        screen.json(approval)
    else:
        _print_approval(screen, approval)
    return 0


async def answer(
    settings: Settings,
    *,
    tenant: str,
    id_or_part: Sequence[str],
    answer_options: AnswerOptions,
    yes: bool,
    json: bool,
) -> int:
    """Exit status 1 if an answer was refused."""
    if (
        answer_options.message is not None
        and not 1 <= len(answer_options.message) <= MAX_MESSAGE_CHARS
    ):
        raise InvalidInput(f"--message: from 1 to {MAX_MESSAGE_CHARS} characters")
    asked = ApprovalAnswer(
        result=answer_options.approval_result,
        message=answer_options.message,
        for_session=answer_options.for_session,
    )
    async with _open_approvals(settings, tenant) as context:
        found = await _find_approvals(context, id_or_part, everything=len(id_or_part) == 1)
        if len(found) > 1 and not yes:
            _confirm_answers(Screen(settings, stderr=True), found, answer_options.approval_result)
        answered = await context.approvals.answer_all(
            context.who, [each.id for each in found], asked
        )
        for entry in answered:
            if entry.error is None:
                await context.operator.audit(
                    tenant, f"approvals {answer_options.approval_result}", entry.id
                )
    for item in answered:
        _print_answer(settings, item, json=json)
    return 1 if any(item.error for item in answered) else 0


def policy_changes(  # noqa: PLR0913 (the options of the command)
    *,
    role: str | None,
    four_eyes: bool | None,
    expires_after: timedelta | None,
    on_expiry: str | None,
    escalate_after: timedelta | None,
    escalate_to: str | None,
    escalated_role: str | None,
) -> dict[str, Any]:
    """The fields to change. A time of zero removes a deadline and its options."""
    spans = {"expires_after_seconds": expires_after, "escalate_after_seconds": escalate_after}
    others = {
        "role": role,
        "four_eyes": four_eyes,
        "on_expiry": on_expiry,
        "escalate_to": escalate_to,
        "escalated_role": escalated_role,
    }
    given: dict[str, Any] = {name: value for name, value in others.items() if value is not None}
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
    async with _open_approvals(settings, tenant) as context:
        policies = context.approvals.policies
        if reset:
            held = await policies.unset(context.who, agent)
        elif given:
            asked = msgspec.convert({**given, "agent_id": agent}, SetApprovalPolicy)
            held = await policies.set(context.who, asked)
        else:
            held = await policies.of(tenant, agent)
        if reset or given:
            await context.operator.audit(tenant, "approvals policy", agent)
    screen = Screen(settings)
    if json:
        screen.json(held)
    else:
        _print_policy(screen, held)
    return 0


async def _list_approvals(
    approval_context: _ApprovalContext, approval_filter: ApprovalFilter
) -> list[Approval]:
    def fetch(cursor: str | None) -> Awaitable[Page[Approval]]:
        query = ListQuery(
            limit=_PAGE_SIZE,
            page=cursor,
            label=approval_filter.agent_id,
            parent=approval_filter.session_id,
            include_archived=approval_filter.everything,
            is_ascending=True,
        )
        return approval_context.approvals.page(approval_context.who, query)

    return await all_pages(fetch)


async def _find_approvals(
    approval_context: _ApprovalContext, id_or_part: Sequence[str], *, everything: bool
) -> list[Approval]:
    """Raises: NotFound; InvalidInput: it could be several."""
    known = await _list_approvals(
        approval_context, ApprovalFilter(agent_id=None, session_id=None, everything=everything)
    )
    found: dict[str, Approval] = {}
    for item in id_or_part:
        approval = _find_approval(known, item)
        found[approval.id] = approval
    return list(found.values())


def _find_approval(known: Sequence[Approval], id_or_part: str) -> Approval:
    whole = [item for item in known if item.id == id_or_part]
    if whole:
        return whole[0]
    found = [
        item for item in known if len(id_or_part) >= _MIN_ID_CHARS and _matches_id(item, id_or_part)
    ]
    if len(found) > 1:  # a call that was asked about again: take the pending one
        found = [item for item in found if item.status == "waiting"] or found
    if len(found) == 1:
        return found[0]
    if not found:
        raise NotFound("approval", id_or_part)
    several = InvalidInput(
        f"{id_or_part} could be any of {len(found)} approvals; give more of the id"
    )
    several.add_note(f"did you mean {', '.join(item.id for item in found[:_MAX_SUGGESTIONS])}?")
    raise several


def _matches_id(approval: Approval, id_or_part: str) -> bool:
    ids = (approval.id, approval.id.partition("_")[2], approval.tool_use_id)
    return any(id_.startswith(id_or_part) or id_.endswith(id_or_part) for id_ in ids)


def _confirm_answers(
    screen: Screen, found: Sequence[Approval], approval_result: ApprovalResult
) -> None:
    """Raises: InvalidInput, typer.Abort: the user did not agree."""
    for item in found:
        _print_approval(screen, item)
        screen.paragraph(("", ""))
    if not sys.stdin.isatty():
        raise InvalidInput(f"{plural(len(found), 'call')}: look at them, then add --yes")
    typer.confirm(f"{approval_result} these {len(found)}?", abort=True, err=True)


def _approval_row(approval: Approval, now: datetime) -> list[tuple[str, str]]:
    return [
        (approval.id, ""),
        (_requester(approval), ""),
        (approval.name, "bold"),
        (_call_summary(approval), ""),
        (age_text(now - approval.asked_at), "dim"),
        ("" if approval.expires_at is None else local_time(approval.expires_at), "dim"),
        _approval_state(approval, now),
    ]


def _requester(approval: Approval) -> str:
    called = approval.subagent
    return approval.agent_name if called is None else f"{called}, called by {approval.agent_name}"


def _call_summary(approval: Approval) -> str:
    if approval.preview:
        lines = [line for line in approval.preview.splitlines() if line.strip()]
        return sanitize_line(lines[0])[:60] if lines else ""
    return sanitize_line(msgspec.json.encode(approval.input).decode())[:60]


def _approval_state(approval: Approval, now: datetime) -> tuple[str, str]:
    if approval.status == "void":
        return "void", "dim"
    if approval.status == "answered":
        by = f" by {approval.answered_by}" if approval.answered_by else ""
        return f"{approval.result}{by}", "dim"
    if approval.expires_at is not None and approval.expires_at <= now:
        return "overdue", "red"
    return ("", "") if approval.escalated_at is None else ("escalated", "yellow")


def _print_approval(screen: Screen, approval: Approval) -> None:
    now = clock.now()
    screen.line((approval.name, "bold"), (f"  {approval.id}", "dim"))
    for part in preview_lines(approval.preview, approval.input):
        screen.paragraph(part, indent=2)
    if approval.is_cut:
        screen.paragraph(
            (f"truncated; `mainspring log show {approval.session_id}` shows all of it", "dim")
        )
    facts = {
        "asked because": approval.reason,
        "asked": f"{age_text(now - approval.asked_at)}, {local_time(approval.asked_at)}",
        "by": f"{_requester(approval)} in {approval.session_id}",
        "may answer": _role_text(approval.may_answer.role, four_eyes=approval.may_answer.four_eyes),
        "until": _deadline_text(approval),
        "state": _approval_state(approval, now)[0] or "waiting",
        "message": approval.message,
    }
    for name, value in facts.items():
        if value:
            screen.paragraph((f"{name}: ", "dim"), (value, ""))


def _deadline_text(approval: Approval) -> str | None:
    if approval.expires_at is None:
        return None
    then = "it keeps waiting" if approval.is_left else "it is denied then"
    return f"{local_time(approval.expires_at)}; {then}"


def _role_text(role: str, *, four_eyes: bool) -> str:
    who = role if role == "admin" else f"{role} or more"
    return f"{who}, except those who wrote in the session" if four_eyes else who


def _print_answer(settings: Settings, answer_result: AnswerResult, *, json: bool) -> None:
    if json:
        Screen(settings).json(answer_result)
    elif answer_result.approval is None:
        Screen(settings, stderr=True).paragraph((answer_result.error or "", "red"))
    else:
        word = "allowed " if answer_result.approval.result == "allow" else "denied "
        parts = (
            (word, "green"),
            (answer_result.approval.name, "bold"),
            (f"  {answer_result.id}", "dim"),
        )
        Screen(settings).line(*parts)


def _print_policy(screen: Screen, policy: ApprovalPolicy) -> None:
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
    screen.paragraph(
        ("may answer: ", "dim"), (_role_text(policy.role, four_eyes=policy.four_eyes), "")
    )
    screen.paragraph(("expires: ", "dim"), (expires, ""))
    screen.paragraph(("escalates: ", "dim"), (escalates, ""))
