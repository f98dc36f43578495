"""What an index of passages needs of a store: SQLite or PostgreSQL, with the same contract."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Protocol

from mainspring.retrieval.passages import CorpusStatistics, PassageRow

MAX_DATED = 200
MAX_CONTAINERS = 500
SAMPLE = 500
"""The newest passages: a store takes the mean length from them."""


@dataclass(frozen=True, slots=True, kw_only=True)
class StoredPassage:
    """A passage as a store stores it."""

    author: str
    year: int
    month: int
    day: int
    flags: int
    stems: list[str]
    vector: bytes | None = None
    words: str = ""
    """With vectors, the words that are no stop words."""


@dataclass(frozen=True, slots=True, kw_only=True)
class StoredContainer:
    scope: str
    name: str
    hash: str
    passages: Sequence[StoredPassage]


@dataclass(frozen=True, slots=True, kw_only=True)
class DateRange:
    months: list[int]
    first_day: int
    last_day: int


@dataclass(frozen=True, slots=True)
class Place:
    scope: str
    container: str
    position: int


@dataclass(frozen=True, slots=True)
class Totals:
    passages: int
    containers: int
    created: str
    """When the tables were made again, numbers begin again too: this differs then."""


class PassageFinder(Protocol):
    """Finds candidates: a store does, and its passages in memory."""

    def statistics(self, terms: Sequence[str], scopes: Sequence[str]) -> CorpusStatistics: ...
    def find_words(self, terms: Sequence[str], scopes: Sequence[str], limit: int) -> list[int]:
        """The best by BM25 as SQLite's FTS5 has it, to nine digits; of equals the first."""
        ...

    def find_dates(self, dates: DateRange, scopes: Sequence[str]) -> list[int]:
        """The first `MAX_DATED`."""
        ...

    def container_scores(self, terms: Sequence[str], scopes: Sequence[str]) -> dict[int, float]:
        """How well the best `MAX_CONTAINERS` answer as a whole; BM25 as above."""
        ...


class PassageStore(PassageFinder, Protocol):
    """Blocks. One writer at a time; others wait. Numbers of passages in one container follow each
    other, and `GAP` numbers are free between containers. A number is not used again: what was
    read of it once holds until it is removed."""

    def close(self) -> None: ...
    def require(self, fingerprint: str) -> None:
        """Tables that were filled by another version of the code are made again."""
        ...

    def hashes(self, scope: str) -> dict[str, str]: ...
    def put(self, containers: Sequence[StoredContainer]) -> None:
        """Replace the passages of containers, all or none."""
        ...

    def remove(self, scope: str, names: Collection[str]) -> None: ...
    def clear(self) -> None: ...
    def purge(self) -> None:
        """Leave no word of what was removed in its files."""
        ...

    def rows(self, numbers: Iterable[int], scopes: Sequence[str]) -> list[PassageRow]: ...
    def rows_after(self, number: int, limit: int) -> list[tuple[str, PassageRow]]:
        """The next by number, of all scopes, each with its own."""
        ...

    def totals(self) -> Totals: ...
    def numbers(self) -> list[int]: ...
    def vector_state(self) -> object:
        """Another value whenever the vectors may have changed, in any process."""
        ...

    def vectors(self, scopes: Sequence[str]) -> Iterator[tuple[int, bytes]]: ...
    def places(self, numbers: Sequence[int]) -> dict[int, Place]: ...
