"""Model requests and evaluations of outcomes: start, end, usage."""

from __future__ import annotations

from typing import Literal, TypeAlias

from mainspring.core.events.payload import Payload
from mainspring.core.events.session import Usage


class ModelRequestStarted(Payload, frozen=True, kw_only=True, tag="span.model_request_start"):
    model: str | None = None
    purpose: str | None = None
    """The purpose of a request outside the conversation, such as `summary`; absent for a turn."""
    request_id: str | None = None
    """Our id, sent to the provider, so that both sides' records can be matched."""
    estimated_input_tokens: int | None = None
    max_tokens: int | None = None
    prefix: str | None = None
    """Hash of the blob with the prompt prefix: model, tools, system."""
    cache_break: str | None = None
    """Why this request does not extend the previous one; absent if it does."""


class ModelRequestEnded(Payload, frozen=True, kw_only=True, tag="span.model_request_end"):
    model_request_start_id: str
    model_usage: Usage
    is_error: bool = False
    purpose: str | None = None
    """The same as at its start."""
    model: str | None = None
    """The model that answered."""
    stop_reason: str | None = None
    cost_usd: str | None = None
    """A decimal number as a string: money is not a float."""


class OutcomeEvaluationStarted(
    Payload, frozen=True, kw_only=True, tag="span.outcome_evaluation_start"
):
    outcome_id: str
    iteration: int


class OutcomeEvaluationOngoing(
    Payload, frozen=True, kw_only=True, tag="span.outcome_evaluation_ongoing"
):
    outcome_id: str
    iteration: int


class OutcomeEvaluationEnded(Payload, frozen=True, kw_only=True, tag="span.outcome_evaluation_end"):
    outcome_evaluation_start_id: str
    outcome_id: str
    iteration: int
    result: Literal[
        "satisfied", "needs_revision", "max_iterations_reached", "failed", "interrupted"
    ]
    explanation: str
    usage: Usage


SpanPayload: TypeAlias = (
    ModelRequestStarted
    | ModelRequestEnded
    | OutcomeEvaluationStarted
    | OutcomeEvaluationOngoing
    | OutcomeEvaluationEnded
)
