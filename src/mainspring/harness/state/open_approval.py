"""An approval as the log records it: requested, answered or void. Permission for a tool call is
part of the call (`open_call.py`)."""

from __future__ import annotations

from datetime import datetime

from msgspec import Struct
from msgspec.structs import replace

from mainspring.core.envelope import Event
from mainspring.core.events import ApprovalAnswered, ApprovalRequested, ApprovalVoided


class OpenApproval(Struct, frozen=True, kw_only=True):
    request: ApprovalRequested
    thread_id: str
    asked: int
    """The seq of the event that asked the person."""
    asked_at: datetime
    answer: ApprovalAnswered | None = None
    is_void: bool = False

    @property
    def id(self) -> str:
        return self.request.approval_id

    @property
    def is_of_call(self) -> bool:
        """Whether a tool call asks, and not another part."""
        return self.request.tool_use_id is not None

    @property
    def is_open(self) -> bool:
        return self.answer is None and not self.is_void


def fold_approvals(approvals: tuple[OpenApproval, ...], event: Event) -> tuple[OpenApproval, ...]:
    """The approvals after an event about them. Only the first answer counts, and only if the
    approval is not void."""
    match event.payload:
        case ApprovalRequested() as request:
            if any(item.id == request.approval_id and not item.is_void for item in approvals):
                return approvals
            others = tuple(item for item in approvals if item.id != request.approval_id)
            new = OpenApproval(
                request=request, thread_id=event.thread_id, asked=event.seq, asked_at=event.time
            )
            return (*others, new)
        case ApprovalAnswered() as answer:
            return apply_answer(approvals, answer)
        case ApprovalVoided(approval_id=id_):
            return tuple(
                replace(item, is_void=True) if item.id == id_ else item for item in approvals
            )
        case _:
            return approvals


def apply_answer(
    approvals: tuple[OpenApproval, ...], answer: ApprovalAnswered
) -> tuple[OpenApproval, ...]:
    return tuple(
        replace(item, answer=answer) if item.id == answer.approval_id and item.is_open else item
        for item in approvals
    )
