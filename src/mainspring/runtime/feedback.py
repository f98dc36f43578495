"""A person's rating of what an agent did: checked, and linked to its subject."""

from __future__ import annotations

from typing import Literal, TypeAlias

from mainspring.core.envelope import event_types
from mainspring.core.errors import InvalidInput
from mainspring.core.events import (
    AgentMcpToolUse,
    AgentMessage,
    AgentToolUse,
    FeedbackGiven,
    RatedSubject,
)
from mainspring.log.session_log import SessionLog

Rating: TypeAlias = Literal["good", "bad"]

_RATED_EVENTS = {
    "message": event_types(AgentMessage),
    "tool_call": event_types(AgentToolUse, AgentMcpToolUse),
}
"""Subjects that are events of the session, with their event types."""


async def feedback_on_last_message(
    log: SessionLog, session_id: str, rating: Rating, text: str
) -> FeedbackGiven:
    """A rating of the agent's last message; of the session, if there is no message yet."""
    row = await log.session(session_id)
    messages = [
        event
        for event in await log.read(session_id, types=_RATED_EVENTS["message"])
        if event.thread_id == row.thread_id
    ]
    subject = (
        RatedSubject(type="message", id=messages[-1].id)
        if messages
        else RatedSubject(type="session", id=session_id)
    )
    return FeedbackGiven(subject=subject, rating=rating, text=text or None)


async def check_subject(log: SessionLog, session_id: str, subject: RatedSubject) -> None:
    """Raises: InvalidInput: it names another session, or an event that this one does not have."""
    if subject.type == "session" and subject.id != session_id:
        raise InvalidInput(f"subject.id: feedback is sent to the session it is about: {subject.id}")
    if (types := _RATED_EVENTS.get(subject.type)) is None:
        return
    if all(event.id != subject.id for event in await log.read(session_id, types=types)):
        raise InvalidInput(f"subject.id: this session has no {subject.type} {subject.id}")
