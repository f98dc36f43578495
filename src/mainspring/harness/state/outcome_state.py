"""The outcome that a thread works for: a fold of the thread's events."""

from __future__ import annotations

from msgspec import Struct
from msgspec.structs import replace

from mainspring.core import events
from mainspring.core.envelope import Event
from mainspring.core.errors import InvalidInput

RELEVANT = frozenset[type](
    (
        events.UserDefineOutcome,
        events.OutcomeEvaluationStarted,
        events.OutcomeEvaluationEnded,
        events.SessionForked,
        events.SessionReceived,
    )
)
"""Types of events that may change it."""
DEFAULT_ITERATIONS = 3  # the Managed Agents API's own default
MAX_ITERATIONS = 20  # the Managed Agents API's own limit


class OpenOutcome(Struct, frozen=True, kw_only=True):
    """An outcome without a final verdict."""

    id: str
    description: str
    rubric: str
    max_iterations: int
    iteration: int = 0
    """The number of the current or last evaluation."""
    started: str | None = None
    """The event that started the open evaluation."""


def outcome_definition(
    description: str, rubric: str, max_iterations: int | None = None
) -> events.UserDefineOutcome:
    """The event that makes an agent work until a grader finds that the rubric is met.

    Raises:
        InvalidInput: no rubric, or a number of gradings that is not allowed.
    """
    if not rubric.strip() or not description.strip():
        raise InvalidInput("an outcome needs a description and a rubric")
    if max_iterations is not None and not 1 <= max_iterations <= MAX_ITERATIONS:
        raise InvalidInput(f"max_iterations must be from 1 to {MAX_ITERATIONS}")
    return events.UserDefineOutcome(
        description=description,
        rubric=events.TextRubric(content=rubric),
        max_iterations=max_iterations,
    )


def outcome_id(event_id: str, defined: events.UserDefineOutcome) -> str:
    """The id in the definition, or one derived from its event."""
    return defined.outcome_id or f"outc_{event_id.partition('_')[2]}"


def fold(outcome: OpenOutcome | None, event: Event) -> OpenOutcome | None:
    match event.payload:
        case events.UserDefineOutcome() as defined:
            rubric = defined.rubric
            text = rubric.content if isinstance(rubric, events.TextRubric) else ""
            allowed = defined.max_iterations or DEFAULT_ITERATIONS
            return OpenOutcome(
                id=outcome_id(event.id, defined),
                description=defined.description,
                rubric=text,
                max_iterations=min(allowed, MAX_ITERATIONS),
            )
        case events.OutcomeEvaluationStarted(iteration=iteration) if outcome is not None:
            return replace(outcome, iteration=iteration, started=event.id)
        case events.OutcomeEvaluationEnded(result="needs_revision") if outcome is not None:
            return replace(outcome, started=None)
        case events.OutcomeEvaluationEnded():
            return None
        case events.SessionForked() | events.SessionReceived() if outcome is not None:
            return replace(outcome, started=None)
        case _:
            return outcome
