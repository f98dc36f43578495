"""A tool call of the newest round, settled or not, as the log records it."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from typing import Literal, TypeAlias

from msgspec import Struct
from msgspec.structs import replace

from mainspring.core import events
from mainspring.core.envelope import AnyPayload, Event
from mainspring.core.tool import InDoubtPolicy
from mainspring.harness.state.open_approval import OpenApproval, fold_approvals

CallKind: TypeAlias = Literal[
    "tool",
    "custom",  # a tool of the client
    "client",  # one of our tools that the client runs
]


CallResult: TypeAlias = (
    events.AgentToolResult
    | events.AgentMcpToolResult
    | events.UserCustomToolResult
    | events.UserToolResult
)


class OpenCall(Struct, frozen=True, kw_only=True):
    """A call of the newest round: proposed, authorized, started, settled."""

    id: str
    name: str
    input: Mapping[str, object]
    kind: CallKind = "tool"
    thread_id: str = ""
    asked: int = 0
    """The seq of the event that asked a person to confirm it; 0 if no question is open."""
    asked_at: datetime | None = None
    """When it was proposed, or when a person was last asked."""
    decision: events.Permission | None = None
    reason: str | None = None
    answer: events.UserToolConfirmation | None = None
    started: str | None = None
    """Its idempotency key, once it has started."""
    attempts: int = 0
    in_doubt: InDoubtPolicy | None = None
    """How to settle it, if the process died between its start and its result."""
    is_foreign: bool = False
    """Started by the session that this one was forked from."""
    call_hash: str | None = None
    """Hash of the call that a person was asked about."""
    preview: str | None = None
    """What it would do, as shown to the person."""
    stashed: object = None
    """The value that it has stored for its next attempt."""
    settled: bool = False
    failure: events.Failure | None = None
    """The kind of failure, if its result is an error."""
    approvals: tuple[OpenApproval, ...] = ()
    """The questions that the call itself asks people while it runs."""
    is_suspended: bool = False
    """It has asked, has no result yet, and is repeated when all questions are answered."""

    @property
    def open_approval(self) -> OpenApproval | None:
        """The question of the call that a person has to answer next."""
        return next((item for item in self.approvals if item.is_open), None)

    @property
    def has_answer(self) -> bool:
        """Whether a person has approved or denied it, or answered all its questions."""
        return self.open_approval is None if self.is_suspended else self.answer is not None

    @property
    def is_answered(self) -> bool:
        """Whether an answer lets it continue; a call that the client runs needs a result."""
        return self.has_answer and self.kind == "tool"

    @property
    def wants_answer(self) -> bool:
        """Whether a person or a client must answer before it can be settled."""
        is_asked = (
            self.kind != "tool" or self.is_suspended or "ask" in (self.decision, self.in_doubt)
        )
        return is_asked and not self.is_answered and not self.settled

    @property
    def is_approved(self) -> bool:
        """Whether a person has approved exactly this call."""
        return self.answer is not None and self.answer.result == "allow"

    @property
    def is_asked(self) -> bool:
        return self.asked > 0

    @property
    def is_ours(self) -> bool:
        """Whether the worker that runs the session, not a client, has started it."""
        is_started = self.started is not None and self.kind == "tool"
        return is_started and not (self.in_doubt and self.answer)

    def after(self, event: Event) -> OpenCall:
        """The call after an event about it; calls change nowhere else."""
        match event.payload:
            case events.ToolCallAuthorized() as payload:
                return self._authorized(event, payload)
            case events.UserToolConfirmation() as payload:
                return replace(self, answer=payload, asked=0)
            case events.ToolCallStarted() as payload:
                return replace(
                    self,
                    started=payload.idempotency_key,
                    attempts=payload.attempt,
                    kind="client" if payload.by_client else self.kind,
                    in_doubt=None,
                    asked=0,
                    is_suspended=False,
                )
            case events.ApprovalRequested() | events.ApprovalAnswered() | events.ApprovalVoided():
                return self._questioned(event)
            case events.ToolCallInDoubt(policy=policy):
                # an earlier answer applied to the attempt in doubt, not to a new one
                at = event.time if policy == "ask" else self.asked_at
                return replace(self, in_doubt=policy, answer=None, asked_at=at)
            case events.ToolCallStashed(value=value):
                return replace(self, stashed=value)
            case payload:
                return self._settled(payload)

    def _authorized(self, event: Event, payload: events.ToolCallAuthorized) -> OpenCall:
        is_asked = payload.decision == "ask"
        return replace(
            self,
            decision=payload.decision,
            reason=payload.reason,
            call_hash=payload.call_hash,
            preview=payload.preview,
            input=self.input if payload.updated_input is None else payload.updated_input,
            # a person who is asked again has not answered yet
            answer=None if is_asked else self.answer,
            asked=event.seq if is_asked and self.kind != "custom" else 0,
            asked_at=event.time if is_asked else self.asked_at,
        )

    def _questioned(self, event: Event) -> OpenCall:
        approvals = fold_approvals(self.approvals, event)
        waiting = next((item for item in approvals if item.is_open), None)
        return replace(
            self,
            approvals=approvals,
            is_suspended=self.is_suspended or isinstance(event.payload, events.ApprovalRequested),
            asked=0 if waiting is None else waiting.asked,
            asked_at=self.asked_at if waiting is None else waiting.asked_at,
        )

    def _settled(self, payload: AnyPayload) -> OpenCall:
        """Clients may send results only for calls that they run; only the first result counts."""
        if isinstance(payload, events.UserCustomToolResult | events.UserToolResult):
            is_allowed, error = self.kind != "tool", None
        elif isinstance(payload, events.AgentToolResult | events.AgentMcpToolResult):
            is_allowed, error = True, payload.error
        else:
            return self
        if self.settled or not is_allowed:
            return self
        failure = error or ("failed" if payload.is_error else None)
        return replace(self, settled=True, failure=failure, is_suspended=False)

    def without_decisions(self) -> OpenCall:
        """The same call without a decision and without an answer."""
        return replace(
            self,
            decision=None,
            answer=None,
            in_doubt=None,
            call_hash=None,
            preview=None,
            approvals=(),
            is_suspended=False,
            is_foreign=self.started is not None,
        )


def proposed_call(event: Event) -> OpenCall | None:
    """The call that an event proposes; `None` for other events."""
    match event.payload:
        case (
            events.AgentToolUse(name=name, input=input_)
            | events.AgentMcpToolUse(name=name, input=input_)
        ):
            kind: CallKind = "tool"
        case events.AgentCustomToolUse(name=name, input=input_):
            kind = "custom"
        case _:
            return None
    return OpenCall(
        id=event.id,
        name=name,
        input=input_,
        kind=kind,
        thread_id=event.thread_id,
        asked_at=event.time,
    )


def asking_call(approval: OpenApproval) -> OpenCall:
    """The question of a part that is not a tool call, such as a workflow, as a call that waits for
    its answer. People answer both in the same way."""
    return OpenCall(
        id=approval.id,
        name=approval.request.subject.type,
        input={},
        thread_id=approval.thread_id,
        asked=approval.asked,
        asked_at=approval.asked_at,
        approvals=(approval,),
        is_suspended=True,
    )


_CALL_ID_FIELDS: dict[type[AnyPayload], str] = {
    events.ToolCallAuthorized: "tool_use_id",
    events.ToolCallStarted: "tool_use_id",
    events.ToolCallInDoubt: "tool_use_id",
    events.ToolCallStashed: "tool_use_id",
    events.UserToolConfirmation: "tool_use_id",
    events.UserToolResult: "tool_use_id",
    events.UserCustomToolResult: "custom_tool_use_id",
    events.AgentToolResult: "tool_use_id",
    events.AgentMcpToolResult: "mcp_tool_use_id",
    events.ApprovalRequested: "tool_use_id",
    events.ApprovalAnswered: "tool_use_id",
    events.ApprovalVoided: "tool_use_id",
}


def call_id_of(payload: AnyPayload) -> str | None:
    """The call that an event decides, answers, starts or settles; `None` for other events."""
    field = _CALL_ID_FIELDS.get(type(payload))
    return None if field is None else getattr(payload, field)
