"""Dreams in the log: each is a session whose events record what it reads, what it proposed, and
whether that was applied; another session for each store lists its dreams."""

from __future__ import annotations

from collections.abc import Iterable
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import datetime
from decimal import Decimal
from typing import Literal, TypeAlias

import msgspec

from mainspring.core import events, ids
from mainspring.core.content import plain_text
from mainspring.core.envelope import Event
from mainspring.core.errors import InvalidInput, SessionNotFound
from mainspring.core.events import (
    DreamApplied,
    DreamCreated,
    DreamProposed,
    DreamRolledBack,
    SessionCreated,
)
from mainspring.core.sender import Origin, Sender
from mainspring.improve.listed_sessions import create_listed, read_list
from mainspring.log.session_log import SessionLog
from mainspring.runtime.memory.learning.memory_edits import MemoryEdit

DreamStatus: TypeAlias = Literal["running", "proposed", "applied", "rolled_back"]
_EDITS = msgspec.json.Decoder(tuple[MemoryEdit, ...])
_ENCODER = msgspec.json.Encoder()


@dataclass(slots=True)
class Dream:
    """A dream, as a fold of its log."""

    created: DreamCreated
    time: datetime
    proposed: DreamProposed | None = None
    applied: DreamApplied | None = None
    rolled_back: DreamRolledBack | None = None
    answers: dict[str, str] = field(default_factory=dict[str, str])
    """The model's answers, by the id of the request."""
    cost_usd: Decimal = Decimal(0)
    _open: str | None = None

    @property
    def id(self) -> str:
        return self.created.dream_id

    @property
    def status(self) -> DreamStatus:
        if self.rolled_back is not None:
            return "rolled_back"
        if self.applied is not None:
            return "applied"
        return "running" if self.proposed is None else "proposed"

    def apply(self, event: Event) -> None:
        match event.payload:
            case DreamProposed() as proposed:
                self.proposed = proposed
            case DreamApplied() as applied:
                self.applied = applied
            case DreamRolledBack() as rolled_back:
                self.rolled_back = rolled_back
            case events.ModelRequestStarted(request_id=request_id):
                self._open = request_id
            case events.AgentMessage(content=content) if self._open is not None:
                self.answers[self._open] = plain_text(content)
            case events.ModelRequestEnded(cost_usd=cost):
                self.cost_usd += Decimal(cost or 0)
                self._open = None
            case _:
                pass


def fold_dream(log: Iterable[Event]) -> Dream | None:
    """`None` if it is not the log of a dream."""
    dream: Dream | None = None
    for event in log:
        if isinstance(event.payload, DreamCreated):
            dream = dream or Dream(event.payload, event.time)
        elif dream is not None:
            dream.apply(event)
    return dream


def dream_session(dream_id: str) -> str:
    """The session that is the dream."""
    return ids.stable_id(ids.SESSION, "dream", dream_id)


def list_session(store: str) -> str:
    return ids.stable_id(ids.SESSION, "dreams", store)


async def read_dream(log: SessionLog, dream_id: str) -> Dream:
    """Raises: InvalidInput: there is no such dream."""
    with suppress(SessionNotFound):
        dream = fold_dream(await log.read(dream_session(dream_id)))
        if dream is not None:
            return dream
    raise InvalidInput(f"there is no dream {dream_id}")


async def read_edits(log: SessionLog, dream: Dream) -> tuple[MemoryEdit, ...]:
    """The edits that it proposed; empty if it has not proposed any yet."""
    if dream.proposed is None:
        return ()
    return _EDITS.decode(await log.blob(dream.proposed.proposal))


async def list_dreams(log: SessionLog, store: str) -> list[DreamCreated]:
    """The dreams of a store, oldest first. `store` is the argument of `create_dream`."""
    return await read_list(log, list_session(store), DreamCreated)


async def create_dream(
    log: SessionLog, created: DreamCreated, *, store: str, sender: Sender
) -> None:
    """Write a dream's first event, and list it. Repeating it after a crash changes nothing."""
    origin = Origin(type="dream", id=created.dream_id)
    titles = {
        dream_session(created.dream_id): f"dream of {len(created.session_ids)} sessions",
        list_session(store): f"dreams of {created.store_id}",
    }
    sessions = {
        session_id: SessionCreated(title=title, origin=origin)
        for session_id, title in titles.items()
    }
    await create_listed(log, created, sessions, key=lambda dream: dream.dream_id, sender=sender)


def encode_edits(edits: Iterable[MemoryEdit]) -> bytes:
    return _ENCODER.encode(tuple(edits))
