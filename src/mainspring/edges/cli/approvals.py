"""`mainspring approvals`: how its commands are called."""

from __future__ import annotations

from datetime import timedelta
from enum import StrEnum
from functools import partial
from typing import TYPE_CHECKING, Annotated, TypeAlias

import typer

from mainspring.core.lazy_module import LazyModule
from mainspring.edges.cli.action import Action
from mainspring.edges.cli.keys import TenantOption
from mainspring.edges.cli.log import JsonOption, YesOption, parse_duration

if TYPE_CHECKING:
    from mainspring.edges.cli import approvals_acts
else:
    approvals_acts = LazyModule("mainspring.edges.cli.approvals_acts")

app = typer.Typer(help="Calls that wait for a person.", no_args_is_help=True, rich_markup_mode=None)

_NEVER = "never"
ApprovalIds: TypeAlias = Annotated[
    list[str], typer.Argument(metavar="ID...", help="Of approvals or calls, or parts of them.")
]


class ApproverRoleName(StrEnum):
    user = "user"
    operator = "operator"
    admin = "admin"


class OnExpiryName(StrEnum):
    deny = "deny"
    leave = "leave"


def _parse_deadline(text: str) -> timedelta:
    """`never` is no time at all."""
    return timedelta(0) if text.strip() == _NEVER else parse_duration(text)


@app.command()
def ls(
    tenant: TenantOption = "default",
    agent: Annotated[str | None, typer.Option(help="Only of this agent.", metavar="ID")] = None,
    session: Annotated[
        str | None, typer.Option("--session", "-s", help="Only in this session.", metavar="ID")
    ] = None,
    everything: Annotated[bool, typer.Option("--all", help="Answered ones too.")] = False,
    json: JsonOption = False,
) -> Action:
    """List what waits, the longest waiting first."""
    wanted = approvals_acts.ApprovalFilter(
        agent_id=agent, session_id=session, everything=everything
    )
    return partial(approvals_acts.ls, tenant=tenant, approval_filter=wanted, json=json)


@app.command()
def show(
    meant: Annotated[
        str, typer.Argument(metavar="ID", help="Of an approval or a call, or a part of it.")
    ],
    tenant: TenantOption = "default",
    json: JsonOption = False,
) -> Action:
    """Show what a call would do, why somebody is asked, and until when."""
    return partial(approvals_acts.show, tenant=tenant, meant=meant, json=json)


@app.command()
def allow(
    meant: ApprovalIds,
    tenant: TenantOption = "default",
    for_session: Annotated[
        bool,
        typer.Option("--for-session", help="And the like of it in its session, from now on."),
    ] = False,
    yes: YesOption = False,
    json: JsonOption = False,
) -> Action:
    """Let calls be made. Several are shown first."""
    answer = approvals_acts.AnswerOptions(approval_result="allow", for_session=for_session)
    return partial(
        approvals_acts.answer, tenant=tenant, meant=meant, answer_options=answer, yes=yes, json=json
    )


@app.command()
def deny(
    meant: ApprovalIds,
    tenant: TenantOption = "default",
    message: Annotated[
        str | None,
        typer.Option("--message", "-m", help="Why not; the agent reads it.", metavar="TEXT"),
    ] = None,
    yes: YesOption = False,
    json: JsonOption = False,
) -> Action:
    """Have calls not made. Several are shown first."""
    answer = approvals_acts.AnswerOptions(approval_result="deny", message=message)
    return partial(
        approvals_acts.answer, tenant=tenant, meant=meant, answer_options=answer, yes=yes, json=json
    )


@app.command()
def policy(  # noqa: PLR0913, PLR0917 (the options of the command)
    tenant: TenantOption = "default",
    agent: Annotated[str | None, typer.Option(help="Of this agent only.", metavar="ID")] = None,
    role: Annotated[
        ApproverRoleName | None, typer.Option(help="The least that may answer.")
    ] = None,
    four_eyes: Annotated[
        bool | None,
        typer.Option(
            "--four-eyes/--no-four-eyes", help="Whoever made the session or spoke in it may not."
        ),
    ] = None,
    expires_after: Annotated[
        timedelta | None,
        typer.Option(
            parser=_parse_deadline,
            metavar="TIME",
            help="How long an answer is waited for: 2h, never.",
        ),
    ] = None,
    on_expiry: Annotated[OnExpiryName | None, typer.Option(help="What becomes of it then.")] = None,
    escalate_after: Annotated[
        timedelta | None,
        typer.Option(
            parser=_parse_deadline,
            metavar="TIME",
            help="After how long others are told: 30m, never.",
        ),
    ] = None,
    escalate_to: Annotated[
        str | None, typer.Option(help="Whom, in your own words.", metavar="GROUP")
    ] = None,
    escalated_role: Annotated[
        ApproverRoleName | None, typer.Option(help="The least that may answer from then on.")
    ] = None,
    reset: Annotated[bool, typer.Option("--reset", help="As if nothing had been set.")] = False,
    json: JsonOption = False,
) -> Action:
    """Show who may answer and what happens if nobody does; with options, change it."""
    given = approvals_acts.policy_changes(
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
        approvals_acts.policy, tenant=tenant, agent=agent, given=given, reset=reset, json=json
    )
