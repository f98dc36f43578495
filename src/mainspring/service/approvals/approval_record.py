"""An approval: a call that waits or waited for a person, as stored and as shown."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from typing import Any, Literal, TypeAlias

import msgspec
from msgspec import Struct

from mainspring.core.clock import Clock
from mainspring.core.events import ApprovalSubject
from mainspring.core.ids import stable_id
from mainspring.log.records import Records
from mainspring.service.storage.repository import IndexColumns, Repository

KIND = "approval"
MAX_INPUT_BYTES = 32 * 1024  # of a call's input that is stored; the log has all of it
MAX_PREVIEW_CHARS = 64 * 1024  # of what will run
_CUT_CHARS = 500  # of a long field
_CUT_FIELDS = 50  # of a large input

AnswerRole: TypeAlias = Literal["user", "operator", "admin"]
ApprovalStatus: TypeAlias = Literal["waiting", "answered", "void"]
"""`void`: closed without an answer because it was interrupted or its session ended."""
ApprovalResult: TypeAlias = Literal["allow", "deny"]
CallInput: TypeAlias = dict[str, Any]


class MayAnswer(Struct, frozen=True, kw_only=True):
    role: AnswerRole
    four_eyes: bool


class Approval(Struct, frozen=True, kw_only=True):
    id: str
    session_id: str
    session_thread_id: str
    agent_id: str
    agent_name: str
    tool_use_id: str
    """The call; if another part asks, such as a workflow, its question's id."""
    name: str
    """The name of the tool; if another part asks, the type of the subject."""
    input: CallInput
    """The input as in the log, without secrets."""
    preview: str | None
    """The tool's preview of the effect: a diff, a command."""
    is_cut: bool
    """The input or preview is truncated; the session's events contain all of it."""
    reason: str | None
    """Why a person is asked."""
    asked: int
    """The log position of the question: asking again creates another approval."""
    asked_at: datetime
    may_answer: MayAnswer
    expires_at: datetime | None = None
    """When it is denied, unless `is_left`."""
    is_left: bool = False
    escalates_at: datetime | None = None
    escalate_to: str | None = None
    escalated_at: datetime | None = None
    status: ApprovalStatus = "waiting"
    result: ApprovalResult | None = None
    answered_by: str | None = None
    """`<key>:<name>`, `cli:<user>`, or `expired`."""
    message: str | None = None
    subagent: str | None = None
    """The subagent that makes the call, if any; `session_thread_id` is its thread."""
    closed_at: datetime | None = None
    """When it was answered or became void."""
    subject: ApprovalSubject | None = None
    """What it is about; `null` in old records, which are about calls."""
    question_id: str | None = None
    """The id of the approval in the session's log, if the call itself asks a question."""
    question: str | None = None
    """The question that a running call asks; `null`: the approval is for running the call."""
    form_schema: dict[str, Any] | None = None
    """JSON Schema of the form that goes with `allow`."""
    form: dict[str, Any] | None = None
    choices: tuple[str, ...] = ()
    """What the person may choose; `allow` then takes one of them."""
    choice: str | None = None
    type: Literal["approval"] = "approval"

    @property
    def is_of_call(self) -> bool:
        """Whether a tool call waits, and not another part."""
        return self.subject is None or self.subject.type in ("tool_call", "elicitation")

    @property
    def due(self) -> datetime | None:
        """When it is escalated or expires if nobody answers."""
        escalates = self.escalates_at if self.escalated_at is None else None
        expires = None if self.is_left else self.expires_at
        moments = [item for item in (escalates, expires) if item is not None]
        return min(moments) if moments and self.status == "waiting" else None


def approval_id(session_id: str, call_id: str, asked: int) -> str:
    """Starts with the log position, so that questions keep the order of their calls."""
    _, _, digits = stable_id("", session_id, call_id, str(asked)).partition("_")
    return f"appr_{asked:06x}{digits[:26]}"


def approval_repository(records: Records, clock: Clock) -> Repository[Approval]:
    return Repository(records, KIND, Approval, columns=_index_columns, clock=clock)


def _index_columns(approval: Approval) -> IndexColumns:
    return IndexColumns(
        parent=approval.session_id,
        label=approval.agent_id,
        due=approval.due,
        is_archived=approval.status != "waiting",
        created=approval.asked_at,
    )


def shorten_input(input_: Mapping[str, object]) -> tuple[CallInput, bool]:
    """The input, shortened if it is too long, and whether it was."""
    if len(msgspec.json.encode(input_)) <= MAX_INPUT_BYTES:
        return dict(input_), False
    names = list(input_)[:_CUT_FIELDS]
    return {name[:_CUT_CHARS]: _shorten_value(input_[name]) for name in names}, True


def _shorten_value(value: object) -> str:
    text = value if isinstance(value, str) else msgspec.json.encode(value).decode()
    return text if len(text) <= _CUT_CHARS else f"{text[:_CUT_CHARS]}..."
