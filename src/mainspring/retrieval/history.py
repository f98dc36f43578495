"""Searches the history of sessions in the log's own word index, with stems."""

from __future__ import annotations

from mainspring.log.search import search
from mainspring.log.session_log import SessionLog
from mainspring.log.store import LogSearchHit, SessionScope
from mainspring.retrieval.stems import content_words, stem

_MIN_PREFIX = 3  # characters; shorter roots are the beginning of too many words


async def search_history(
    log: SessionLog,
    query: str,
    *,
    session_id: str | None = None,
    scope: SessionScope | None = None,
    limit: int = 20,
) -> list[LogSearchHit]:
    """Events with all words of the query first, then those with some of them in any form; in one
    session with its inherited history, in the sessions of a scope, or in all.

    Raises:
        InvalidInput: the query has no words.
    """
    hits = await search(log, query, session_id=session_id, scope=scope, limit=limit)
    beginnings = " ".join(dict.fromkeys(map(_beginning, content_words(query))))
    if len(hits) >= limit or not beginnings:
        return hits
    more = await search(
        log, beginnings, session_id=session_id, scope=scope, limit=limit, is_loose=True
    )
    positions = {(hit.session_id, hit.seq) for hit in hits}
    return [*hits, *(hit for hit in more if (hit.session_id, hit.seq) not in positions)][:limit]


def _beginning(word: str) -> str:
    """The common beginning of the forms of a word: "repl" for "replies" and "reply"."""
    root = stem(word)
    while not word.startswith(root):
        root = root[:-1]
    root = root.removesuffix("i")
    return root if len(root) >= _MIN_PREFIX else word
