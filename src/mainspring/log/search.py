"""Full-text search over the log. Each search first updates the index."""

from __future__ import annotations

from contextlib import suppress
from itertools import count

from mainspring.core.envelope import message_text
from mainspring.core.errors import InvalidInput, MalformedEvent, SessionNotFound
from mainspring.log.session_log import SessionLog
from mainspring.log.store import EventRange, IndexedText, LogSearchHit, Row, SessionScope
from mainspring.log.upcast import read_payload

_PAGE = 500  # events indexed at once
_SCOPE_PAGES = 8  # of events indexed before a search within few sessions; the next one goes on


async def search(
    log: SessionLog,
    query: str,
    *,
    session_id: str | None = None,
    limit: int = 20,
    is_loose: bool = False,
    scope: SessionScope | None = None,
) -> list[LogSearchHit]:
    """Events whose text has all words of the query, best first: of one session with its inherited
    history, of the sessions of a scope, or of all sessions. `is_loose`: at least one word, or a
    longer word that starts with it. With a scope, each search indexes a limited number of new
    events, so that the first search of a long history does not wait for all of it.

    Raises:
        InvalidInput: the query has no words.
    """
    parts = query.replace("\0", " ").split()
    words = [part for part in parts if any(map(str.isalnum, part))]
    if not words:
        raise InvalidInput(f"nothing to search for in {query!r}: enter at least one word")
    event_ranges: list[EventRange] = []
    if session_id is None:
        await _update_index(log, None, pages=None if scope is None else _SCOPE_PAGES)
    else:
        for segment in await log.lineage(session_id):
            await _update_index(log, segment.session_id)
            event_ranges.append(
                EventRange(session_id=segment.session_id, after=segment.after, upto=segment.upto)
            )
    return await log.store.search(
        words, event_ranges=event_ranges, limit=limit, is_loose=is_loose, scope=scope
    )


async def _update_index(log: SessionLog, session_id: str | None, pages: int | None = None) -> None:
    for _ in count() if pages is None else range(pages):
        if not (rows := await log.store.unindexed(session_id, limit=_PAGE)):
            return
        upto: dict[str, int] = {}
        texts: list[IndexedText] = []
        for owner, row in rows:
            upto[owner] = row.seq
            if text := _text(row):
                texts.append(IndexedText(session_id=owner, seq=row.seq, text=text))
        # if a session was deleted in the meantime, the next attempt indexes the others
        with suppress(SessionNotFound):
            await log.store.index(texts, list(upto.items()))


def _text(row: Row) -> str:
    try:
        return message_text(read_payload(row.type, row.body, row.version))
    except MalformedEvent:  # `verify` reports it; the rest stays searchable
        return ""
