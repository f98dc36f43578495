"""`mainspring approvals policy`: who may answer, and what happens if nobody does."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from datetime import timedelta
from typing import Annotated, Any, Literal, TypeAlias

import msgspec
import typer

from mainspring.config import Settings
from mainspring.edges.cli.commands import command
from mainspring.edges.cli.operate.approvals import app, open_approvals, role_text
from mainspring.edges.cli.options import JsonOption, TenantOption, parse_duration
from mainspring.edges.cli.render.printing import Screen, print_view
from mainspring.service.approvals.approval_policy import ApprovalPolicy, SetApprovalPolicy

_NEVER = "never"


ApproverRole: TypeAlias = Literal["user", "operator", "admin"]


def _parse_deadline(text: str) -> timedelta:
    """`never` is a deadline of zero."""
    return timedelta(0) if text.strip() == _NEVER else parse_duration(text)


@dataclass(frozen=True, slots=True, kw_only=True)
class PolicyChanges:
    role: Annotated[ApproverRole | None, typer.Option(help="The lowest role that may answer.")] = (
        None
    )
    four_eyes: Annotated[
        bool | None,
        typer.Option(
            "--four-eyes/--no-four-eyes",
            help="Refuse answers of people who created the session or wrote in it.",
        ),
    ] = None
    expires_after: Annotated[
        timedelta | None,
        typer.Option(
            parser=_parse_deadline,
            metavar="TIME",
            help="How long to wait for an answer, such as 2h; or never.",
        ),
    ] = None
    on_expiry: Annotated[
        Literal["deny", "leave"] | None, typer.Option(help="What happens at the deadline.")
    ] = None
    escalate_after: Annotated[
        timedelta | None,
        typer.Option(
            parser=_parse_deadline,
            metavar="TIME",
            help="When to notify others, such as 30m; or never.",
        ),
    ] = None
    escalate_to: Annotated[
        str | None, typer.Option(help="Whom to notify, as free text.", metavar="GROUP")
    ] = None
    escalated_role: Annotated[
        ApproverRole | None,
        typer.Option(help="The lowest role that may answer after the notification."),
    ] = None

    def fields(self) -> dict[str, Any]:  # Any: of several types, converted to a struct
        """The fields to change. A time of zero removes a deadline and its options."""
        changes = {name: value for name, value in asdict(self).items() if value is not None}
        for name in ("expires_after", "escalate_after"):
            if name in changes:
                changes[f"{name}_seconds"] = int(changes.pop(name).total_seconds()) or None
        if changes.get("escalate_after_seconds", 0) is None:
            changes |= {"escalate_to": None, "escalated_role": None}
        return changes


@command(app)
async def policy(
    settings: Settings,
    *,
    tenant: TenantOption = "default",
    agent: Annotated[str | None, typer.Option(help="Only for this agent.", metavar="ID")] = None,
    changes: PolicyChanges,
    reset: Annotated[bool, typer.Option("--reset", help="Restore the defaults.")] = False,
    json: JsonOption = False,
) -> int:
    """Show who may answer approvals, and what happens without an answer. Options change this
    policy."""
    fields = changes.fields()
    if reset and fields:
        raise typer.BadParameter("cannot be combined with other options", param_hint="--reset")
    async with open_approvals(settings, tenant) as context:
        policies = context.approvals.policies
        if reset:
            result = await policies.unset(context.who, agent)
        elif fields:
            change = msgspec.convert({**fields, "agent_id": agent}, SetApprovalPolicy)
            result = await policies.set(context.who, change)
        else:
            result = await policies.of(tenant, agent)
        if reset or fields:
            await context.operator.audit(tenant, "approvals policy", agent)
    return print_view(settings, result, _print_policy, json=json)


def _print_policy(screen: Screen, policy: ApprovalPolicy) -> None:
    scope = f"of {policy.agent_id}" if policy.agent_id else "of the tenant"
    screen.line(("policy ", ""), (scope if policy.updated_at else "built in", "bold"))
    expires = "never"
    if policy.expires_after_seconds is not None:
        outcome = "denied" if policy.on_expiry == "deny" else "left waiting"
        expires = f"after {timedelta(seconds=policy.expires_after_seconds)}, then {outcome}"
    escalates = "never"
    if policy.escalate_after_seconds is not None:
        escalates = f"after {timedelta(seconds=policy.escalate_after_seconds)}"
        escalates += f", to {policy.escalate_to}" if policy.escalate_to else ""
        escalates += f", then for {policy.escalated_role}" if policy.escalated_role else ""
    screen.paragraph(
        ("may answer: ", "dim"), (role_text(policy.role, four_eyes=policy.four_eyes), "")
    )
    screen.paragraph(("expires: ", "dim"), (expires, ""))
    screen.paragraph(("escalates: ", "dim"), (escalates, ""))
