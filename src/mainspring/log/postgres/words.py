"""Words of a text as they are indexed and looked for, and the piece of it to show. Pure.

Folded here, not by the server's parser: a word is found whatever the database's locale, inside
paths, hosts and identifiers too, and with or without its accents, as in the SQLite store.
"""

from __future__ import annotations

import unicodedata
from collections.abc import Iterator, Sequence

MAX_CHARACTERS = 100_000
"""Of one event; a tsvector holds a megabyte. More than this is a blob, with a preview here."""

_SNIPPET_WORDS = 24
_BEFORE = 8


def folded(text: str) -> str:
    """Lower-case words without accents, one space between."""
    plain = unicodedata.normalize("NFKD", text).casefold()
    kept = (each for each in plain if not unicodedata.combining(each))
    return " ".join("".join(each if each.isalnum() else " " for each in kept).split())


def storable(text: str) -> str:
    """What PostgreSQL can keep of a text: all but NUL."""
    return text[:MAX_CHARACTERS].replace("\0", " ")


def snippet(text: str, words: Sequence[str]) -> str:
    """The words around the first of `words`, with an ellipsis where text was left out."""
    pieces = text.split()
    wanted = {part for word in words for part in folded(word).split()}
    at = next(_matches(pieces, wanted), 0)
    begin = max(0, min(at - _BEFORE, len(pieces) - _SNIPPET_WORDS))
    end = begin + _SNIPPET_WORDS
    shown = " ".join(pieces[begin:end])
    return f"{'…' if begin else ''}{shown}{'…' if end < len(pieces) else ''}"


def _matches(pieces: Sequence[str], wanted: set[str]) -> Iterator[int]:
    return (at for at, piece in enumerate(pieces) if not wanted.isdisjoint(folded(piece).split()))
