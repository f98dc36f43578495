"""Approvals: a person is asked about a subject, answers, or the question becomes void.

A tool call that needs permission is asked about by `tool_call.authorized` (decision `ask`) and
answered by `user.tool_confirmation`; every other subject uses the events here.
"""

from __future__ import annotations

from typing import Literal, TypeAlias

from msgspec import Struct

from mainspring.core.events.payload import Payload

SubjectType: TypeAlias = Literal[
    "tool_call",
    "elicitation",  # a question that a tool asks in mid-call, with a form
    "workflow_node",
    "gateway_call",
    "memory_change",
    "promotion",
    "plan",
]
StaleWhen: TypeAlias = Literal[
    "content_changed",  # what the person was shown is no longer what would happen
    "base_changed",  # what the change starts from has another version
    "call_ended",  # the tool call that asked is settled
]


class Evidence(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Something that the person is shown before they decide."""

    title: str
    text: str = ""
    ref: str | None = None
    """Where it is: an event id, a blob's hash, a file, a version."""


class ApprovalSubject(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """What an approval is about."""

    type: SubjectType
    id: str
    hash: str
    """Of everything that the person is shown. An answer to another hash is void."""
    evidence: tuple[Evidence, ...] = ()
    stale_when: tuple[StaleWhen, ...] = ("content_changed",)


class ApprovalRequested(Payload, frozen=True, kw_only=True, tag="approval.requested"):
    approval_id: str
    subject: ApprovalSubject
    question: str
    form_schema: dict[str, object] | None = None
    """JSON Schema of the form that goes with `allow`: an object with flat properties."""
    tool_use_id: str | None = None
    """The call that asks and waits."""


class ApprovalAnswered(Payload, frozen=True, kw_only=True, tag="approval.answered"):
    approval_id: str
    decision: Literal["allow", "deny"]
    text: str | None = None
    form: dict[str, object] | None = None
    tool_use_id: str | None = None
    answered_by: str | None = None
    """Who it was, as the service knows them: a client cannot say it."""


class ApprovalVoided(Payload, frozen=True, kw_only=True, tag="approval.voided"):
    approval_id: str
    reason: str
    tool_use_id: str | None = None


ApprovalPayload: TypeAlias = ApprovalRequested | ApprovalAnswered | ApprovalVoided
