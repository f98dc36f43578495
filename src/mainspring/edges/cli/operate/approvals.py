"""The commands of `mainspring approvals`, which work directly on the store. An answer goes into the
session's inbox; a running service reads it within a second."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from datetime import datetime
from functools import partial
from typing import Annotated, TypeAlias

import msgspec
import typer

from mainspring.config import Settings
from mainspring.core import clock
from mainspring.core.errors import InvalidInput, NotFound
from mainspring.core.events import Evidence
from mainspring.edges.cli.commands import command, command_group
from mainspring.edges.cli.operate.local_approvals import (
    LocalApproval,
    answer_local,
    approval_cells,
    local_approvals,
)
from mainspring.edges.cli.operate.operator_access import Operator
from mainspring.edges.cli.options import (
    ChoiceOption,
    FormOption,
    JsonOption,
    TenantOption,
    YesOption,
)
from mainspring.edges.cli.render.printing import (
    Screen,
    age_text,
    confirm,
    local_time,
    plural,
    print_list,
    print_note,
    print_view,
    sanitize_line,
)
from mainspring.edges.cli.run.approval_prompt import preview_lines
from mainspring.edges.cli.session_lookup import open_existing_log
from mainspring.error_table import with_hints
from mainspring.runtime.approvals import Answer, parse_form
from mainspring.service.access.principal import Principal
from mainspring.service.access.tenants import Tenants
from mainspring.service.approvals.approval_record import Approval, ApprovalResult
from mainspring.service.approvals.approvals import (
    MAX_MESSAGE_CHARS,
    AnswerResult,
    ApprovalAnswer,
    Approvals,
)
from mainspring.service.storage.repository import ListQuery, all_pages

_PAGE_SIZE = 1000  # sessions or approvals read at once
_MIN_ID_CHARS = 6
"""The minimum length of a part of an id."""
_MAX_SUGGESTIONS = 5  # ids offered when one is not found


app = command_group()
"""`approval_policy` adds the command `policy`."""

_LOCAL_TENANT = "default"
"""The tenant of a store without others; the sessions of `run` and `chat` have none."""
ApprovalIds: TypeAlias = Annotated[
    list[str], typer.Argument(metavar="ID...", help="Ids of approvals or calls, or parts of them.")
]


@dataclass(frozen=True, slots=True)
class ApprovalContext:
    approvals: Approvals
    operator: Operator
    who: Principal


@asynccontextmanager
async def open_approvals(settings: Settings, tenant: str) -> AsyncGenerator[ApprovalContext, None]:
    """Raises: InvalidInput: there is no store; NotFound: no such tenant."""
    async with open_existing_log(settings) as log:
        records = log.store.records
        await Tenants(records).get(tenant)
        operator = Operator(records, settings.user or "operator")
        yield ApprovalContext(Approvals(log), operator, operator.principal_in(tenant))


@command(app)
async def ls(
    settings: Settings,
    *,
    tenant: TenantOption = "default",
    agent: Annotated[
        str | None, typer.Option(help="Only calls of this agent.", metavar="ID")
    ] = None,
    session: Annotated[
        str | None,
        typer.Option("--session", "-s", help="Only calls of this session.", metavar="ID"),
    ] = None,
    everything: Annotated[bool, typer.Option("--all", help="Include answered approvals.")] = False,
    json: JsonOption = False,
) -> int:
    """List pending approvals, oldest first. Those of the sessions of `run` and `chat` are listed
    with the tenant `default`."""
    query = ListQuery(
        limit=_PAGE_SIZE,
        label=agent,
        parent=session,
        include_archived=everything,
        is_ascending=True,
    )
    approvals: list[Approval | LocalApproval] = []
    if tenant == _LOCAL_TENANT and agent is None:
        async with open_existing_log(settings) as log:
            approvals += [
                item
                for item in await local_approvals(log)
                if session is None or session in item.session_id
            ]
    if tenant != _LOCAL_TENANT or await _has_tenant(settings, tenant):
        async with open_approvals(settings, tenant) as context:
            approvals += await all_pages(partial(context.approvals.page, context.who), query)
    now = clock.now()
    return print_list(
        settings,
        approvals,
        json=json,
        heads=["ID", "AGENT", "TOOL", "WHAT", "ASKED", "UNTIL", "STATE"],
        row=lambda approval: (
            approval_cells(approval)
            if isinstance(approval, LocalApproval)
            else _approval_row(approval, now)
        ),
        empty="nothing waits for approval",
    )


@command(app)
async def show(
    settings: Settings,
    *,
    id_or_part: Annotated[
        str, typer.Argument(metavar="ID", help="The id of an approval or a call, or a part of it.")
    ],
    tenant: TenantOption = "default",
    json: JsonOption = False,
) -> int:
    """Show a call that waits for approval. Prints what it would do, why it needs approval, and the
    deadline."""
    async with open_approvals(settings, tenant) as context:
        [approval] = await _find_approvals(context, [id_or_part], everything=True)
    return print_view(settings, approval, _print_approval, json=json)


@command(app)
async def allow(  # parameters: the options of the command
    settings: Settings,
    *,
    ids: ApprovalIds,
    tenant: TenantOption = "default",
    for_session: Annotated[
        bool,
        typer.Option(
            "--for-session", help="Also allow similar calls in the same session from now on."
        ),
    ] = False,
    form: FormOption = None,
    choice: ChoiceOption = None,
    yes: YesOption = False,
    json: JsonOption = False,
) -> int:
    """Allow calls. If there are several, they are shown first."""
    answer = ApprovalAnswer(
        result="allow", for_session=for_session, form=parse_form(form), choice=choice
    )
    return await _answer(settings, tenant, ids, answer, yes=yes, json=json)


@command(app)
async def deny(
    settings: Settings,
    *,
    ids: ApprovalIds,
    tenant: TenantOption = "default",
    message: Annotated[
        str | None,
        typer.Option("--message", "-m", help="The reason, which the agent reads.", metavar="TEXT"),
    ] = None,
    yes: YesOption = False,
    json: JsonOption = False,
) -> int:
    """Deny calls. If there are several, they are shown first."""
    if message is not None and not 1 <= len(message) <= MAX_MESSAGE_CHARS:
        raise InvalidInput(f"--message: from 1 to {MAX_MESSAGE_CHARS} characters")
    answer = ApprovalAnswer(result="deny", message=message)
    return await _answer(settings, tenant, ids, answer, yes=yes, json=json)


async def _answer(
    settings: Settings,
    tenant: str,
    ids: Sequence[str],
    answer: ApprovalAnswer,
    *,
    yes: bool,
    json: bool,
) -> int:
    """Returns the exit status: 1 if an answer was refused."""
    if tenant == _LOCAL_TENANT and await _is_local(settings, ids):
        return await _answer_local(settings, ids, answer, json=json)
    async with open_approvals(settings, tenant) as context:
        approvals = await _find_approvals(context, ids, everything=len(ids) == 1)
        is_asked = len(approvals) > 1 and not yes
        if is_asked and not _confirm_answers(settings, approvals, answer.result):
            return 1
        results = await context.approvals.answer_all(
            context.who, [approval.id for approval in approvals], answer
        )
        for result in results:
            if result.error is None:
                await context.operator.audit(tenant, f"approvals {answer.result}", result.id)
    for result in results:
        _print_answer(settings, result, json=json)
    return 1 if any(result.error for result in results) else 0


async def _has_tenant(settings: Settings, tenant: str) -> bool:
    async with open_existing_log(settings) as log:
        try:
            await Tenants(log.store.records).get(tenant)
        except NotFound:
            return False
        return True


async def _is_local(settings: Settings, ids: Sequence[str]) -> bool:
    """Whether these are calls of the sessions of `run` and `chat`."""
    async with open_existing_log(settings) as log:
        waiting = await local_approvals(log)
    return all(any(id_ in item.id for item in waiting) for id_ in ids)


async def _answer_local(
    settings: Settings, ids: Sequence[str], answer: ApprovalAnswer, *, json: bool
) -> int:
    if answer.for_session:
        problem = "--for-session is for sessions of the service"
        raise with_hints(InvalidInput(problem), "in chat, `s` allows similar calls in the session")
    reply = Answer(
        decision=answer.result, text=answer.message, form=answer.form, choice=answer.choice
    )
    async with open_existing_log(settings) as log:
        approvals = await answer_local(settings, log, ids, reply)
    screen = Screen(settings)
    for item in approvals:
        if json:
            screen.json(item)
        else:
            verb = "allowed " if answer.result == "allow" else "denied "
            screen.line((verb, "green"), (item.name, "bold"), (f"  {item.id}", "dim"))
    for session_id in dict.fromkeys(item.session_id for item in approvals):
        print_note(settings, f"continue: mainspring run --resume {session_id[-8:]}")
    return 0


async def _find_approvals(
    context: ApprovalContext, ids: Sequence[str], *, everything: bool
) -> list[Approval]:
    """Raises: NotFound; InvalidInput: an id is ambiguous."""
    query = ListQuery(limit=_PAGE_SIZE, include_archived=everything, is_ascending=True)
    approvals = await all_pages(partial(context.approvals.page, context.who), query)
    matches = (_find_approval(approvals, id_or_part) for id_or_part in ids)
    return list({approval.id: approval for approval in matches}.values())


def _find_approval(approvals: Sequence[Approval], id_or_part: str) -> Approval:
    if exact := [approval for approval in approvals if approval.id == id_or_part]:
        return exact[0]
    is_long_enough = len(id_or_part) >= _MIN_ID_CHARS
    matches = [item for item in approvals if is_long_enough and _matches_id(item, id_or_part)]
    if len(matches) > 1:  # a call that was asked about again: take the pending one
        matches = [item for item in matches if item.status == "waiting"] or matches
    if len(matches) == 1:
        return matches[0]
    if not matches:
        raise NotFound("approval", id_or_part)
    problem = f"{id_or_part} could be any of {len(matches)} approvals; give more of the id"
    suggestions = ", ".join(item.id for item in matches[:_MAX_SUGGESTIONS])
    raise with_hints(InvalidInput(problem), f"did you mean {suggestions}?")


def _matches_id(approval: Approval, id_or_part: str) -> bool:
    ids = (approval.id, approval.id.partition("_")[2], approval.tool_use_id)
    return any(id_.startswith(id_or_part) or id_.endswith(id_or_part) for id_ in ids)


def _confirm_answers(
    settings: Settings, approvals: Sequence[Approval], result: ApprovalResult
) -> bool:
    """Raises: InvalidInput: there is no terminal."""
    screen = Screen(settings, stderr=True)
    for item in approvals:
        _print_approval(screen, item)
        screen.paragraph(("", ""))
    refusal = f"{plural(len(approvals), 'call')}: review them, then add --yes"
    return confirm(settings, f"{result} these {len(approvals)}?", refusal=refusal)


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
    subagent, agent = approval.subagent, approval.agent_name
    return agent if subagent is None else f"{subagent}, called by {agent}"


def _call_summary(approval: Approval) -> str:
    if text := approval.question or approval.preview:
        lines = [line for line in text.splitlines() if line.strip()]
        return sanitize_line(lines[0])[:60] if lines else ""
    return sanitize_line(_json_text(approval.input))[:60]


def _json_text(value: object) -> str:
    return msgspec.json.encode(value).decode()


def _approval_state(approval: Approval, now: datetime) -> tuple[str, str]:
    if approval.status == "void":
        return "void", "dim"
    if approval.status == "answered":
        choice = f" {approval.choice}" if approval.choice else ""
        by = f" by {approval.answered_by}" if approval.answered_by else ""
        return f"{approval.result}{choice}{by}", "dim"
    if approval.expires_at is not None and approval.expires_at <= now:
        return "overdue", "red"
    return ("", "") if approval.escalated_at is None else ("escalated", "yellow")


def _print_approval(screen: Screen, approval: Approval) -> None:
    now = clock.now()
    screen.line((approval.name, "bold"), (f"  {approval.id}", "dim"))
    for part in preview_lines(approval.preview, approval.input) if approval.is_of_call else ():
        screen.paragraph(part, indent=2)
    if approval.is_cut:
        screen.paragraph(
            (f"truncated; `mainspring log show {approval.session_id}` shows all of it", "dim")
        )
    facts = {
        "question": approval.question,
        **{item.title: item.text or item.ref for item in _evidence(approval)},
        "choices": ", ".join(approval.choices),
        "form": _json_text(approval.form_schema) if approval.form_schema else None,
        "asked because": approval.reason,
        "asked": f"{age_text(now - approval.asked_at)}, {local_time(approval.asked_at)}",
        "by": f"{_requester(approval)} in {approval.session_id}",
        "may answer": role_text(approval.may_answer.role, four_eyes=approval.may_answer.four_eyes),
        "until": _deadline_text(approval),
        "state": _approval_state(approval, now)[0] or "waiting",
        "message": approval.message,
    }
    for name, value in facts.items():
        if value:
            screen.paragraph((f"{name}: ", "dim"), (value, ""))


def _evidence(approval: Approval) -> tuple[Evidence, ...]:
    """The material of a question; a call shows its preview instead."""
    is_shown = approval.question is not None and approval.subject is not None
    return approval.subject.evidence if is_shown and approval.subject is not None else ()


def _deadline_text(approval: Approval) -> str | None:
    if approval.expires_at is None:
        return None
    outcome = "then it keeps waiting" if approval.is_left else "then it is denied"
    return f"{local_time(approval.expires_at)}; {outcome}"


def role_text(role: str, *, four_eyes: bool) -> str:
    roles = role if role == "admin" else f"{role} or more"
    return f"{roles}, except those who wrote in the session" if four_eyes else roles


def _print_answer(settings: Settings, result: AnswerResult, *, json: bool) -> None:
    if json:
        Screen(settings).json(result)
    elif result.approval is None:
        Screen(settings, stderr=True).paragraph((result.error or "", "red"))
    else:
        verb = "allowed " if result.approval.result == "allow" else "denied "
        name = (result.approval.name, "bold")
        Screen(settings).line((verb, "green"), name, (f"  {result.id}", "dim"))
