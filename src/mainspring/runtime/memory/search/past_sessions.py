"""Finds messages of earlier sessions, which a memory search ranks together with notes. It uses the
log's own word index and copies nothing.

Only messages of people and of the agent count, never text of tools or pages.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import datetime

from mainspring.core.envelope import Event, message_text
from mainspring.core.errors import SessionNotFound
from mainspring.core.events import AgentMessage, SessionCreated, UserMessage
from mainspring.core.sender import OriginType
from mainspring.log.session_log import SessionLog
from mainspring.log.store import SessionScope
from mainspring.retrieval.cues import is_question
from mainspring.retrieval.history import search_history
from mainspring.retrieval.passages import SPAN
from mainspring.retrieval.stems import content_words
from mainspring.runtime.memory.note import Note

SESSION = "session"
"""The scope of hits that come from a session, not from a memory folder."""
_NOT_WORK: tuple[OriginType, ...] = ("eval", "grader", "dream", "campaign", "command")
_CANDIDATES = 100
"""Hits of the word index to rank, with the messages near them. With 40 the first ten have about as
much of the evidence, with 300 one point more; a search takes 50, 70 and 80 ms of CPU
(`bench/run.py memory`)."""
_AROUND = 40
"""Events before and after a hit that are looked through for the messages around it: calls and their
results lie between messages."""
_MAX_WINDOW = 500
"""Messages read in one go; a session with more hits than that is read in several parts."""
_MAX_CHARACTERS = 20_000  # of one message in the index
_MESSAGES = frozenset(("user.message", "agent.message"))


@dataclass(frozen=True, slots=True, kw_only=True)
class PastMessage:
    session_id: str
    seq: int
    event_id: str
    time: datetime
    is_of_person: bool
    author: str
    text: str
    is_hit: bool = True
    """It may be found; otherwise it only surrounds messages that may."""

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
    """The messages that have words of the query, and those around them, by session and in order."""
    hits = await search_history(log, query, scope=scope, limit=_CANDIDATES)
    hits_by_session: dict[str, list[int]] = {}
    for hit in hits:
        hits_by_session.setdefault(hit.session_id, []).append(hit.seq)
    messages = [
        message
        for session_id, seqs in hits_by_session.items()
        for message in await _messages_around(log, session_id, sorted(seqs))
    ]
    return _without_copies(messages)


async def _messages_around(
    log: SessionLog, session_id: str, seqs: Sequence[int]
) -> list[PastMessage]:
    """Nothing, if the session was deleted meanwhile."""
    messages: dict[int, PastMessage] = {}
    for first, last in _ranges(seqs):
        try:
            events = await log.read(
                session_id, after=first - 1, upto=last, types=_MESSAGES, limit=_MAX_WINDOW
            )
        except SessionNotFound:
            return []
        for event in events:
            if (message := _past_message(session_id, event)) is not None:
                messages[event.seq] = message
    return _with_hits([messages[seq] for seq in sorted(messages)], frozenset(seqs))


def _with_hits(messages: Sequence[PastMessage], seqs: frozenset[int]) -> list[PastMessage]:
    """The messages, of which those near a hit are hits too: an answer need not repeat the words of
    its question."""
    hits = [at for at, message in enumerate(messages) if message.seq in seqs]
    near = {at + offset for at in hits for offset in range(-SPAN, SPAN + 1)}
    return [replace(message, is_hit=at in near) for at, message in enumerate(messages)]


def _ranges(seqs: Sequence[int]) -> list[tuple[int, int]]:
    """What to read around positions in order; ranges that touch are one."""
    ranges: list[tuple[int, int]] = []
    for seq in seqs:
        first, last = max(1, seq - _AROUND), seq + _AROUND
        if ranges and first <= ranges[-1][1] + 1 and last - ranges[-1][0] < _MAX_WINDOW:
            first = ranges.pop()[0]
        ranges.append((first, last))
    return ranges


def _past_message(session_id: str, event: Event) -> PastMessage | None:
    match event.payload:
        case UserMessage():
            is_of_person = event.sender is not None and event.sender.kind == "person"
            author = "" if event.sender is None else event.sender.id.rpartition(":")[2]
        case AgentMessage():
            is_of_person, author = False, ""
        case _:
            return None
    return PastMessage(
        session_id=session_id,
        seq=event.seq,
        event_id=event.id,
        time=event.time,
        is_of_person=is_of_person,
        author=author,
        text=message_text(event.payload)[:_MAX_CHARACTERS],
    )


def _without_copies(messages: Sequence[PastMessage]) -> list[PastMessage]:
    """Of messages whose text occurs in several sessions, only the first is a hit."""
    first = {message.text: message.name for message in reversed(messages) if message.is_hit}
    return [
        message if first.get(message.text) == message.name else replace(message, is_hit=False)
        for message in messages
    ]
