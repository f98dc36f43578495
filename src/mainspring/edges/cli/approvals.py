"""`mainspring approvals`: arguments and options."""

from __future__ import annotations

from datetime import timedelta
from enum import StrEnum
from functools import partial
from typing import TYPE_CHECKING, Annotated, TypeAlias

import typer

from mainspring.core.lazy_module import LazyModule
from mainspring.edges.cli.commands import Action, command_group
from mainspring.edges.cli.options import JsonOption, TenantOption, YesOption, parse_duration

if TYPE_CHECKING:
    from mainspring.edges.cli import approval_commands
else:
    approval_commands = LazyModule("mainspring.edges.cli.approval_commands")

app = command_group()

_NEVER = "never"
ApprovalIds: TypeAlias = Annotated[
    list[str], typer.Argument(metavar="ID...", help="Ids of approvals or calls, or parts of them.")
]


class ApproverRoleName(StrEnum):
    user = "user"
    operator = "operator"
    admin = "admin"


class OnExpiryName(StrEnum):
    deny = "deny"
    leave = "leave"


def _parse_deadline(text: str) -> timedelta:
    """`never` is a deadline of zero."""
    return timedelta(0) if text.strip() == _NEVER else parse_duration(text)


@app.command()
def ls(
    tenant: TenantOption = "default",
    agent: Annotated[
        str | None, typer.Option(help="Only calls of this agent.", metavar="ID")
    ] = None,
    session: Annotated[
        str | None, typer.Option("--session", "-s", help="Only in this session.", metavar="ID")
    ] = None,
    everything: Annotated[bool, typer.Option("--all", help="Include answered ones.")] = False,
    json: JsonOption = False,
) -> Action:
    """List pending approvals, oldest first."""
    wanted = approval_commands.ApprovalFilter(
        agent_id=agent, session_id=session, everything=everything
    )
    return partial(approval_commands.ls, tenant=tenant, approval_filter=wanted, json=json)


@app.command()
def show(
    id_or_part: Annotated[
        str, typer.Argument(metavar="ID", help="The id of an approval or a call, or a part of it.")
    ],
    tenant: TenantOption = "default",
    json: JsonOption = False,
) -> Action:
    """Show what a call would do, why approval is needed, and until when."""
    return partial(approval_commands.show, tenant=tenant, id_or_part=id_or_part, json=json)


@app.command()
def allow(
    id_or_part: ApprovalIds,
    tenant: TenantOption = "default",
    for_session: Annotated[
        bool,
        typer.Option("--for-session", help="Also allow similar calls in its session from now on."),
    ] = False,
    yes: YesOption = False,
    json: JsonOption = False,
) -> Action:
    """Allow calls. If there are several, they are shown first."""
    answer = approval_commands.AnswerOptions(approval_result="allow", for_session=for_session)
    return partial(
        approval_commands.answer,
        tenant=tenant,
        id_or_part=id_or_part,
        answer_options=answer,
        yes=yes,
        json=json,
    )


@app.command()
def deny(
    id_or_part: ApprovalIds,
    tenant: TenantOption = "default",
    message: Annotated[
        str | None,
        typer.Option("--message", "-m", help="Why not; the agent reads it.", metavar="TEXT"),
    ] = None,
    yes: YesOption = False,
    json: JsonOption = False,
) -> Action:
    """Deny calls. If there are several, they are shown first."""
    answer = approval_commands.AnswerOptions(approval_result="deny", message=message)
    return partial(
        approval_commands.answer,
        tenant=tenant,
        id_or_part=id_or_part,
        answer_options=answer,
        yes=yes,
        json=json,
    )


@app.command()
def policy(  # noqa: PLR0913, PLR0917 (the options of the command)
    tenant: TenantOption = "default",
    agent: Annotated[str | None, typer.Option(help="Only for this agent.", metavar="ID")] = None,
    role: Annotated[
        ApproverRoleName | None, typer.Option(help="The lowest role that may answer.")
    ] = None,
    four_eyes: Annotated[
        bool | None,
        typer.Option(
            "--four-eyes/--no-four-eyes",
            help="Whoever created the session or wrote in it may not answer.",
        ),
    ] = None,
    expires_after: Annotated[
        timedelta | None,
        typer.Option(
            parser=_parse_deadline,
            metavar="TIME",
            help="How long to wait for an answer: 2h, never.",
        ),
    ] = None,
    on_expiry: Annotated[OnExpiryName | None, typer.Option(help="What happens then.")] = None,
    escalate_after: Annotated[
        timedelta | None,
        typer.Option(
            parser=_parse_deadline,
            metavar="TIME",
            help="After how long others are notified: 30m, never.",
        ),
    ] = None,
    escalate_to: Annotated[
        str | None, typer.Option(help="Whom to notify, in your own words.", metavar="GROUP")
    ] = None,
    escalated_role: Annotated[
        ApproverRoleName | None, typer.Option(help="The lowest role that may answer from then on.")
    ] = None,
    reset: Annotated[bool, typer.Option("--reset", help="Restore the defaults.")] = False,
    json: JsonOption = False,
) -> Action:
    """Show who may answer and what happens without an answer. With options, change it."""
    given = approval_commands.policy_changes(
        role=role and role.value,
        four_eyes=four_eyes,
        expires_after=expires_after,
        on_expiry=on_expiry and on_expiry.value,
        escalate_after=escalate_after,
        escalate_to=escalate_to,
        escalated_role=escalated_role and escalated_role.value,
    )
    if reset and given:
        raise typer.BadParameter("--reset stands alone", param_hint="--reset")
    return partial(
        approval_commands.policy, tenant=tenant, agent=agent, given=given, reset=reset, json=json
    )
