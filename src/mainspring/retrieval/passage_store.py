"""The protocol of a store of passages: SQLite or PostgreSQL, with the same contract."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Protocol

from mainspring.retrieval.passages import CorpusStatistics, PassageRow

MAX_DATED = 200  # passages of the days that a question names
MAX_CONTAINERS = 500  # whose scores count; others have none
SAMPLE = 500
"""The number of newest passages from which a store takes the mean length."""


@dataclass(frozen=True, slots=True, kw_only=True)
class StoredPassage:
    """A passage in the form that a store takes."""

    author: str
    year: int
    month: int
    day: int
    flags: int
    stems: list[str]
    vector: bytes | None = None
    words: str = ""
    """With vectors, the words except stop words."""


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
    """Differs after the tables were rebuilt, which also restarts the numbers."""


class PassageFinder(Protocol):
    """Finds candidates; implemented by stores and by passages in memory."""

    def statistics(self, terms: Sequence[str], scopes: Sequence[str]) -> CorpusStatistics: ...
    def find_words(self, terms: Sequence[str], scopes: Sequence[str], limit: int) -> list[int]:
        """The best passages by BM25 as in SQLite's FTS5, to nine digits; among equals the first."""
        ...

    def find_dates(self, dates: DateRange, scopes: Sequence[str]) -> list[int]:
        """The first `MAX_DATED` passages of the dates."""
        ...

    def container_scores(self, terms: Sequence[str], scopes: Sequence[str]) -> dict[int, float]:
        """The scores of the best `MAX_CONTAINERS` containers, each as one text; BM25 as above."""
        ...


class PassageStore(PassageFinder, Protocol):
    """Its methods block. One writer at a time; others wait. The passages of a container have
    consecutive numbers, and `GAP` numbers are free between containers. A number is never reused, so
    a passage with a number does not change until it is removed."""

    def close(self) -> None: ...
    def require(self, fingerprint: str) -> None:
        """Rebuild tables that another version of the code has filled."""
        ...

    def hashes(self, scope: str) -> dict[str, str]: ...
    def put(self, containers: Sequence[StoredContainer]) -> None:
        """Replace the passages of containers, all or none."""
        ...

    def remove(self, scope: str, names: Collection[str]) -> None: ...
    def clear(self) -> None: ...
    def purge(self) -> None:
        """Erase all removed text from the files of the store."""
        ...

    def rows(self, numbers: Iterable[int], scopes: Sequence[str]) -> list[PassageRow]: ...
    def rows_after(self, number: int, limit: int) -> list[tuple[str, PassageRow]]:
        """The next passages by number in all scopes, each with its scope."""
        ...

    def totals(self) -> Totals: ...
    def numbers(self) -> list[int]: ...
    def vector_state(self) -> object:
        """A value that changes whenever any process may have changed the vectors."""
        ...

    def vectors(self, scopes: Sequence[str]) -> Iterator[tuple[int, bytes]]: ...
    def places(self, numbers: Sequence[int]) -> dict[int, Place]: ...
