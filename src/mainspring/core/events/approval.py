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
    "elicitation",  # a question that a tool asks during a call, with a form
    "workflow_node",
    "gateway_call",
    "memory_change",
    "promotion",
    "plan",
]
StaleWhen: TypeAlias = Literal[
    "content_changed",  # the action is no longer what the person saw
    "base_changed",  # the version that the change is based on was replaced
    "call_ended",  # the tool call that asked is settled
]


class Evidence(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Material that the person sees before deciding."""

    title: str
    text: str = ""
    ref: str | None = None
    """Its location: an event id, a blob's hash, a file, a version."""
    hash: str | None = None
    """SHA-256 of the whole material, which `text` may show only in part."""


class ApprovalSubject(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """What an approval is about."""

    type: SubjectType
    id: str
    hash: str
    """Hash of everything that the person sees. An answer to another hash is void."""
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
    choices: tuple[str, ...] = ()
    """What the person may choose; `allow` names one of them."""


class ApprovalAnswered(Payload, frozen=True, kw_only=True, tag="approval.answered"):
    approval_id: str
    decision: Literal["allow", "deny"]
    text: str | None = None
    form: dict[str, object] | None = None
    tool_use_id: str | None = None
    answered_by: str | None = None
    """The person as authenticated by the service; a client cannot set it."""
    choice: str | None = None
    """One of the `choices`."""


class ApprovalVoided(Payload, frozen=True, kw_only=True, tag="approval.voided"):
    approval_id: str
    reason: str
    tool_use_id: str | None = None


ApprovalPayload: TypeAlias = ApprovalRequested | ApprovalAnswered | ApprovalVoided
