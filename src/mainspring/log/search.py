"""Full-text search over the log. The index is brought up to date by each search."""

from __future__ import annotations

from contextlib import suppress
from itertools import count

from mainspring.core.envelope import message_text
from mainspring.core.errors import InvalidInput, MalformedEvent, SessionNotFound
from mainspring.log.session_log import SessionLog
from mainspring.log.store import EventRange, IndexedText, Row, SearchHit, SessionScope
from mainspring.log.upcast import read_payload

_PAGE = 500
_SCOPE_PAGES = 8


async def search(
    log: SessionLog,
    query: str,
    *,
    session_id: str | None = None,
    limit: int = 20,
    is_loose: bool = False,
    scope: SessionScope | None = None,
) -> list[SearchHit]:
    """Events whose text has all words of the query, best first; in one session with its
    inherited history, in those of a scope, or in all. `is_loose`: any word that begins like one of
    them. In a scope, texts that nobody has searched before are indexed a part at a time, so that
    the first search of a long record does not wait for all of it.

    Raises:
        InvalidInput: there is no word in the query.
    """
    parts = query.replace("\0", " ").split()
    words = [part for part in parts if any(map(str.isalnum, part))]
    if not words:
        raise InvalidInput(f"nothing to search for in {query!r}: give one word or more")
    spans: list[EventRange] = []
    if session_id is None:
        await _catch_up(log, None, pages=None if scope is None else _SCOPE_PAGES)
    else:
        for segment in await log.lineage(session_id):
            await _catch_up(log, segment.session_id)
            spans.append(
                EventRange(session_id=segment.session_id, after=segment.after, upto=segment.upto)
            )
    return await log.store.search(
        words, event_ranges=spans, limit=limit, is_loose=is_loose, scope=scope
    )


async def _catch_up(log: SessionLog, session_id: str | None, pages: int | None = None) -> None:
    for _ in count() if pages is None else range(pages):
        if not (rows := await log.store.unindexed(session_id, limit=_PAGE)):
            return
        upto: dict[str, int] = {}
        texts: list[IndexedText] = []
        for owner, row in rows:
            upto[owner] = row.seq
            if text := _text(row):
                texts.append(IndexedText(session_id=owner, seq=row.seq, text=text))
        with suppress(
            SessionNotFound
        ):  # one was deleted in the meantime; the others are indexed by the next attempt
            await log.store.index(texts, list(upto.items()))


def _text(row: Row) -> str:
    try:
        return message_text(read_payload(row.type, row.body, row.version))
    except MalformedEvent:  # `verify` reports it; the rest stays searchable
        return ""
