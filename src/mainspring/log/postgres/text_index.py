"""The full-text index of the PostgreSQL store. Plain functions over a connection."""

from __future__ import annotations

import unicodedata
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import msgspec

from mainspring.log.postgres import queries
from mainspring.log.postgres import statements as sql
from mainspring.log.postgres.connect import Connection
from mainspring.log.store import EventRange, IndexedText, LogSearchHit, Row, SessionScope

MAX_CHARACTERS = 100_000
"""The maximum length of an event's indexed text: a tsvector holds one megabyte. A longer text is a
blob, of which only a preview is indexed."""

_SNIPPET_WORDS = 24  # shown around a match
_BEFORE = 8  # of them before it


def normalize_words(text: str) -> str:
    """Lower-case words without accents, separated by one space."""
    plain = unicodedata.normalize("NFKD", text).casefold()
    characters = (item for item in plain if not unicodedata.combining(item))
    return " ".join("".join(item if item.isalnum() else " " for item in characters).split())


def indexable_text(text: str) -> str:
    """The beginning of the text, without NUL, which PostgreSQL cannot store."""
    return text[:MAX_CHARACTERS].replace("\0", " ")


def snippet(text: str, words: Sequence[str]) -> str:
    """The words around the first match of `words`, with an ellipsis where text is omitted."""
    pieces = text.split()
    word_parts = {part for word in words for part in normalize_words(word).split()}
    at = next(_matching_words(pieces, word_parts), 0)
    begin = max(0, min(at - _BEFORE, len(pieces) - _SNIPPET_WORDS))
    end = begin + _SNIPPET_WORDS
    excerpt = " ".join(pieces[begin:end])
    return f"{'…' if begin else ''}{excerpt}{'…' if end < len(pieces) else ''}"


def _matching_words(pieces: Sequence[str], word_parts: set[str]) -> Iterator[int]:
    return (
        at
        for at, piece in enumerate(pieces)
        if not word_parts.isdisjoint(normalize_words(piece).split())
    )


async def unindexed(db: Connection, session_id: str | None, limit: int) -> list[tuple[str, Row]]:
    if session_id is None:
        rows = await queries.fetch_all(db, sql.UNINDEXED, [limit])
    else:
        rows = await queries.fetch_all(db, sql.UNINDEXED_IN, [session_id, limit])
    return [(item[0], Row._make(item[1:])) for item in rows]


async def index(
    db: Connection, indexed_texts: Sequence[IndexedText], upto: Sequence[tuple[str, int]]
) -> None:
    texts = [indexable_text(indexed_text.text) for indexed_text in indexed_texts]
    await db.shared_cursor.execute(
        sql.INDEX,
        {
            "sessions": [session_id for session_id, _ in upto],
            "uptos": [seq for _, seq in upto],
            "ids": [indexed_text.session_id for indexed_text in indexed_texts],
            "seqs": [indexed_text.seq for indexed_text in indexed_texts],
            "texts": texts,
            "folded": [normalize_words(text) for text in texts],
        },
        prepare=True,
    )


@dataclass(frozen=True, slots=True)
class MatchQuery:
    words: Sequence[str]
    text: str
    """In the syntax of PostgreSQL's `tsquery`."""


def match_query(words: Sequence[str], *, is_loose: bool) -> MatchQuery:
    """A query for normalized words. A word that consists of several is searched as a phrase."""
    phrases = ["'" + word.replace(" ", "' <-> '") + "'" for word in words if word]
    if is_loose:
        return MatchQuery(words, " | ".join(f"({phrase}:*)" for phrase in phrases))
    return MatchQuery(words, " & ".join(f"({phrase})" for phrase in phrases))


async def search(
    db: Connection,
    query: MatchQuery,
    event_ranges: Sequence[EventRange],
    scope: SessionScope | None,
    limit: int,
) -> list[LogSearchHit]:
    for event_range in event_ranges:
        await queries.key_of(db, event_range.session_id)
    values: dict[str, object] = {
        "query": query.text,
        "everywhere": not event_ranges,
        "ids": [event_range.session_id for event_range in event_ranges],
        "afters": [event_range.after for event_range in event_ranges],
        "uptos": [event_range.upto for event_range in event_ranges],
        "limit": limit,
    }
    if scope is None:
        rows = await queries.fetch_all(db, sql.SEARCH, values)
    else:
        rows = await queries.fetch_all(db, sql.SEARCH_IN_SCOPE, {**values, **_scope_values(scope)})
    return [
        LogSearchHit(session_id=session_id, seq=seq, snippet=snippet(text, query.words))
        for session_id, seq, text in rows
    ]


async def in_scope(db: Connection, scope: SessionScope, session_ids: Sequence[str]) -> list[str]:
    values = {"ids": list(session_ids), **_scope_values(scope)}
    return [session_id for (session_id,) in await queries.fetch_all(db, sql.IN_SCOPE, values)]


def _scope_values(scope: SessionScope) -> dict[str, object]:
    """Values to compare as JSON, because PostgreSQL has no text with NUL."""
    return {
        "tenant": scope.tenant,
        "any_tenant": scope.any_tenant,
        "agent": _as_json(scope.agent),
        "user": _as_json(scope.user),
        "without_origins": [_as_json(origin) for origin in scope.without_origins],
        "without_sessions": list(scope.without_sessions),
    }


def _as_json(text: str | None) -> str | None:
    return None if text is None else msgspec.json.encode(text).decode()
