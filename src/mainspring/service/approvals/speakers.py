"""Who spoke in a session, for those who may not approve what they asked for themselves."""

from __future__ import annotations

from contextlib import suppress

from msgspec import Struct

from mainspring.core import clock as clocks
from mainspring.core.clock import Clock
from mainspring.core.errors import AlreadyThere, NotFound
from mainspring.core.ids import stable_id
from mainspring.log.records import Records
from mainspring.service.access.principal import Principal
from mainspring.service.keeping.drawer import Drawer, Tabs
from mainspring.service.sessions.record import SessionRecord

KIND = "session_speaker"


class _Speaker(Struct, frozen=True, kw_only=True):
    id: str
    session_id: str
    key_id: str


class Speakers:
    def __init__(self, records: Records, *, clock: Clock = clocks.now) -> None:
        self._drawer = Drawer(
            records,
            KIND,
            _Speaker,
            tabs=lambda speaker: Tabs(parent=speaker.session_id),
            clock=clock,
        )

    async def note(self, who: Principal, session: SessionRecord) -> None:
        """Whoever made the session need not be noted."""
        if await self.has(who, session):
            return
        id_ = _id(session.id, who.key_id)
        with suppress(AlreadyThere):  # they said two things at once
            await self._drawer.put(
                who.tenant, _Speaker(id=id_, session_id=session.id, key_id=who.key_id)
            )

    async def has(self, who: Principal, session: SessionRecord) -> bool:
        if who.key_id == session.created_by.key_id:
            return True
        try:
            await self._drawer.get(who.tenant, _id(session.id, who.key_id))
        except NotFound:
            return False
        return True


def _id(session_id: str, key_id: str) -> str:
    return stable_id("spkr", session_id, key_id)
