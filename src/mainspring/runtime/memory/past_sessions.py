"""Finds messages of earlier sessions, which a memory search ranks together with notes. It uses the
log's own word index and copies nothing.

Only messages of people and of the agent count, never text of tools or pages.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime

from mainspring.core.envelope import Event, message_text
from mainspring.core.errors import SessionNotFound
from mainspring.core.events import AgentMessage, SessionCreated, UserMessage
from mainspring.core.sender import OriginType
from mainspring.log.session_log import SessionLog
from mainspring.log.store import SearchHit, SessionScope
from mainspring.retrieval.cues import is_question
from mainspring.retrieval.history import search_history
from mainspring.retrieval.stems import content_words
from mainspring.runtime.memory.note import Note

SESSION = "session"
"""The scope of hits that come from a session, not from a memory folder."""
_NOT_WORK: tuple[OriginType, ...] = ("eval", "grader", "dream", "campaign", "command")
_CANDIDATES = 40
_MAX_CHARACTERS = 20_000


@dataclass(frozen=True, slots=True, kw_only=True)
class PastMessage:
    session_id: str
    seq: int
    event_id: str
    time: datetime
    is_of_person: bool
    text: str

    @property
    def name(self) -> str:
        return f"{self.session_id}#{self.seq}"

    @property
    def is_statement_of_person(self) -> bool:
        """Whether a person states something; an earlier question cannot answer a new one."""
        return self.is_of_person and not is_question(self.text)

    @property
    def note(self) -> Note:
        """The message in the form of a memory."""
        return Note(
            path=self.session_id,
            body=self.text,
            type="episode",
            updated=self.time.isoformat(),
            session=self.session_id,
            events=(self.event_id,),
            trust="person" if self.is_of_person else "agent",
        )


@dataclass(frozen=True, slots=True)
class PastSessions:
    """Earlier sessions of the same agent and the same person, on their machine."""

    log: SessionLog
    session_id: str

    async def search(self, query: str) -> list[PastMessage]:
        if not content_words(query) or (scope := await self._scope()) is None:
            return []
        return await _search(self.log, query, scope)

    async def _scope(self) -> SessionScope | None:
        """`None` if the log does not name the session's agent and person."""
        (first,) = await self.log.read(self.session_id, limit=1)
        match first.payload:
            case SessionCreated(agent_name=str(agent)) if first.sender is not None:
                lineage = await self.log.lineage(self.session_id)
                return SessionScope(
                    tenant=None,
                    agent=agent,
                    user=first.sender.id,
                    without_origins=_NOT_WORK,
                    without_sessions=tuple(segment.session_id for segment in lineage),
                )
            case _:
                return None


async def search_sessions_of(log: SessionLog, user_id: str, query: str) -> list[PastMessage]:
    """Search all sessions of one person, with any agent."""
    if not content_words(query):
        return []
    scope = SessionScope(tenant=None, user=user_id, without_origins=_NOT_WORK)
    return await _search(log, query, scope)


async def _search(log: SessionLog, query: str, scope: SessionScope) -> list[PastMessage]:
    hits = await search_history(log, query, scope=scope, limit=_CANDIDATES)
    messages = [message for hit in hits if (message := await _message(log, hit)) is not None]
    return _without_copies(messages)


async def _message(log: SessionLog, hit: SearchHit) -> PastMessage | None:
    """`None` if it is not a message, or was deleted meanwhile."""
    try:
        (event,) = await log.read(hit.session_id, after=hit.seq - 1, limit=1)
    except (SessionNotFound, ValueError):
        return None
    return _past_message(hit.session_id, event)


def _past_message(session_id: str, event: Event) -> PastMessage | None:
    match event.payload:
        case UserMessage():
            is_of_person = event.sender is not None and event.sender.kind == "person"
        case AgentMessage():
            is_of_person = False
        case _:
            return None
    return PastMessage(
        session_id=session_id,
        seq=event.seq,
        event_id=event.id,
        time=event.time,
        is_of_person=is_of_person,
        text=message_text(event.payload)[:_MAX_CHARACTERS],
    )


def _without_copies(messages: Sequence[PastMessage]) -> list[PastMessage]:
    """Drop messages whose text occurs in several sessions, except the best hit."""
    return list({message.text: message for message in reversed(messages)}.values())[::-1]
