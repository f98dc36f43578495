"""Why the loop continues and why it ends: two closed sets that are recorded in the log."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, TypeAlias

from mainspring.core.events import StopReason

EndReason: TypeAlias = Literal[
    "completed",
    "compacted",
    "handed_off",
    "max_turns",
    "budget_reached",
    "requires_action",
    "interrupted_streaming",
    "interrupted_tools",
    "prompt_too_long",
    "output_truncated",
    "output_invalid",
    "model_error",
    "stop_hook_prevented",
    "hook_stopped",
    "loop_detected",
    "refusal",
    "recovery_exhausted",
    "rescheduled",
]

PROMPT_TOO_LONG_ERROR = "prompt_too_long_error"
"""The type of the `session.error` of a context that cannot be compacted any further."""
INTERRUPTED_REASONS: tuple[EndReason, ...] = ("interrupted_streaming", "interrupted_tools")

ContinueReason: TypeAlias = Literal[
    "next_turn",
    "compacted_retry",
    "reactive_compact_retry",
    "broken_stream_retry",
    "output_escalated",
    "output_continued",
    "stop_hook_feedback",
    "outcome_revision",
    "provider_failed_over",
    "budget_continuation",
    "inbox_message",
]


@dataclass(frozen=True, slots=True)
class Continue:
    reason: ContinueReason
    detail: str | None = None
    """Text for the model, if any."""


@dataclass(frozen=True, slots=True)
class Ended:
    reason: EndReason
    detail: str | None = None
    waiting_for: tuple[str, ...] = ()
    """Calls that people or clients must answer, with `requires_action`."""


Step: TypeAlias = Continue | Ended


def stop_reason(ended: Ended) -> StopReason:
    """The coarser stop reason of the Managed Agents API."""
    match ended.reason:
        case "requires_action":
            return StopReason(type="requires_action", event_ids=ended.waiting_for)
        case "budget_reached" | "max_turns":
            return StopReason(type="budget_reached")
        case "refusal":
            return StopReason(type="refusal")
        case (
            "model_error"
            | "recovery_exhausted"
            | "prompt_too_long"
            | "loop_detected"
            | "rescheduled"
        ):
            return StopReason(type="retries_exhausted")
        case (
            "completed"
            | "compacted"
            | "handed_off"
            | "interrupted_streaming"
            | "interrupted_tools"
            | "output_truncated"
            | "output_invalid"
            | "stop_hook_prevented"
            | "hook_stopped"
        ):
            return StopReason(type="end_turn")
