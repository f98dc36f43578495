"""Passages in PostgreSQL, without extensions: a row for each word of a passage finds candidates, by
the same formula as SQLite's FTS5, so that both rank alike. They are in their own schema, which is
derived from the memories and may be dropped at any time.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Collection, Generator, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from itertools import chain
from threading import RLock
from typing import Any, Final, LiteralString, TypeAlias

import psycopg

from mainspring.log.postgres.connect import Address, translate_errors
from mainspring.retrieval.passage_store import (
    MAX_CONTAINERS,
    MAX_DATED,
    SAMPLE,
    DateRange,
    Place,
    StoredContainer,
    Totals,
)
from mainspring.retrieval.passages import GAP, CorpusStatistics, PassageRow

Db: TypeAlias = psycopg.Connection[tuple[Any, ...]]
Rows: TypeAlias = list[tuple[Any, ...]]
_LOCK: Final = 0x4D535058
"""Key of the advisory lock: one writer at a time, since the numbers of passages are consecutive."""
_MIN_RARITY = 1e-6  # as SQLite has it, so that both stores rank alike
_SCHEMA: Final[tuple[LiteralString, ...]] = (
    "drop schema if exists mainspring_passages cascade",
    "create schema mainspring_passages",
    # one row; lengths are in words
    """
    create table mainspring_passages.fact(
      fingerprint text not null, created timestamptz not null, changes bigint not null,
      passages bigint not null, passage_length bigint not null,
      containers bigint not null, container_length bigint not null, last bigint not null
    )
    """,
    """
    create table mainspring_passages.container(
      id bigint primary key, scope text collate "C" not null, name text collate "C" not null,
      hash text not null, unique(scope, name)
    )
    """,
    """
    create table mainspring_passages.passage(
      id bigint primary key, container bigint not null, scope text collate "C" not null,
      position integer not null, author text not null, year integer not null,
      month integer not null, day integer not null, flags integer not null, vector bytea,
      words text not null, stems text not null, length integer not null
    )
    """,
    "create index passage_by_container on mainspring_passages.passage(container)",
    "create index passage_by_date on mainspring_passages.passage(month, day)",
    # the length of the text in each row saves a join per candidate
    """
    create table mainspring_passages.passage_word(
      word text collate "C", scope text collate "C", number bigint, count integer not null,
      length integer not null, primary key(word, scope, number)
    )
    """,
    """
    create table mainspring_passages.container_word(
      word text collate "C", scope text collate "C", number bigint, count integer not null,
      length integer not null, primary key(word, scope, number)
    )
    """,
    """
    create table mainspring_passages.word(
      word text collate "C" primary key, passages bigint not null, containers bigint not null
    )
    """,
)
_TABLES: Final[tuple[LiteralString, ...]] = (
    *("container", "passage", "passage_word", "container_word", "word"),
)


class PostgresPassages:
    """May be used by several threads, one after the other. Raises: StoreFailed."""

    def __init__(self, url: str) -> None:
        self._address = Address.of(url)
        self._connection: Db | None = None
        self._in_use = RLock()

    def close(self) -> None:
        with self._in_use:
            if self._connection is not None:
                self._connection.close()

    def require(self, fingerprint: str) -> None:
        with self._reading() as db:
            if _fingerprint(db) == fingerprint:
                return
        with self._writing() as db:
            if _fingerprint(db) == fingerprint:
                return
            for statement in _SCHEMA:
                db.execute(statement)
            db.execute(
                "insert into mainspring_passages.fact values (%s, now(), 0, 0, 0, 0, 0, 0)",
                [fingerprint],
            )

    def hashes(self, scope: str) -> dict[str, str]:
        rows = self._rows(
            "select name, hash from mainspring_passages.container where scope = %s", [scope]
        )
        return dict(rows)

    def put(self, containers: Sequence[StoredContainer]) -> None:
        latest = {(item.scope, item.name): item for item in containers}
        with self._writing() as db:
            changes = _Changes()
            _remove(db, list(latest), changes)
            _insert(db, list(latest.values()), changes)
            changes.write(db)

    def remove(self, scope: str, names: Collection[str]) -> None:
        with self._writing() as db:
            changes = _Changes()
            _remove(db, [(scope, name) for name in names], changes)
            changes.write(db)

    def clear(self) -> None:
        with self._writing() as db:
            for table in _TABLES:
                db.execute(f"truncate mainspring_passages.{table}")
            db.execute(
                "update mainspring_passages.fact set changes = changes + 1, passages = 0,"
                " passage_length = 0, containers = 0, container_length = 0"
            )

    def purge(self) -> None:
        """Rewrite the tables, so that their files lose removed rows. The write-ahead log and
        backups of the server contain them until they are recycled."""
        with self._reading() as db:
            db.execute("delete from mainspring_passages.word where passages = 0 and containers = 0")
            for table in _TABLES:
                db.execute(f"vacuum full mainspring_passages.{table}")

    def statistics(self, terms: Sequence[str], scopes: Sequence[str]) -> CorpusStatistics:
        """The statistics of all scopes: words that are common elsewhere are common here."""
        ((count, length),) = self._rows(
            "select passages, (select avg(greatest(length, 1))::float8 from (select length from"
            " mainspring_passages.passage order by id desc limit %s) newest)"
            " from mainspring_passages.fact",
            [SAMPLE],
        )
        having = "select word, passages from mainspring_passages.word where word = any(%s)"
        frequency = self._rows(f"{having} and passages > 0", [list(terms)])
        return CorpusStatistics(count, length or 1.0, dict(frequency))

    def find_words(self, terms: Sequence[str], scopes: Sequence[str], limit: int) -> list[int]:
        return [number for number, _ in self._best("passage", terms, scopes, limit)]

    def find_dates(self, dates: DateRange, scopes: Sequence[str]) -> list[int]:
        rows = self._rows(
            "select id from mainspring_passages.passage where month = any(%s)"
            " and day between %s and %s and scope = any(%s) order by id limit %s",
            [dates.months, dates.first_day, dates.last_day, list(scopes), MAX_DATED],
        )
        return [number for (number,) in rows]

    def rows(self, numbers: Iterable[int], scopes: Sequence[str]) -> list[PassageRow]:
        condition = "where id = any(%s) and scope = any(%s)"
        return [row for _, row in self._passage_rows(condition, [list(numbers), list(scopes)])]

    def rows_after(self, number: int, limit: int) -> list[tuple[str, PassageRow]]:
        return self._passage_rows("where id > %s order by id limit %s", [number, limit])

    def _passage_rows(
        self, condition: LiteralString, values: Sequence[object]
    ) -> list[tuple[str, PassageRow]]:
        rows = self._rows(
            "select scope, id, container, author, year, month, day, flags, vector, words, stems"
            f" from mainspring_passages.passage {condition}",
            values,
        )
        return [(scope, PassageRow(*fields, text.split(" "))) for scope, *fields, text in rows]  # pyright: ignore[reportCallIssue]

    def totals(self) -> Totals:
        counted = "select passages, containers, created::text from mainspring_passages.fact"
        return Totals(*self._rows(counted)[0])

    def numbers(self) -> list[int]:
        return [number for (number,) in self._rows("select id from mainspring_passages.passage")]

    def container_scores(self, terms: Sequence[str], scopes: Sequence[str]) -> dict[int, float]:
        return dict(self._best("container", terms, scopes, MAX_CONTAINERS))

    def vector_state(self) -> object:
        return self._rows("select created, changes from mainspring_passages.fact")

    def vectors(self, scopes: Sequence[str]) -> Iterator[tuple[int, bytes]]:
        rows = self._rows(
            "select id, vector from mainspring_passages.passage where scope = any(%s)"
            " and vector is not null",
            [list(scopes)],
        )
        yield from rows

    def places(self, numbers: Sequence[int]) -> dict[int, Place]:
        rows = self._rows(
            "select p.id, c.scope, c.name, p.position from mainspring_passages.passage p"
            " join mainspring_passages.container c on c.id = p.container where p.id = any(%s)",
            [list(numbers)],
        )
        return {number: Place(*fields) for number, *fields in rows}

    def _best(
        self, kind: LiteralString, terms: Sequence[str], scopes: Sequence[str], limit: int
    ) -> Rows:
        """BM25 as in FTS5 (k1 1.2, b 0.75); the scope counts as one more word of each text."""
        ((total, length),) = self._rows(
            f"select {kind}s, {kind}_length from mainspring_passages.fact"
        )
        counts = self._rows(
            f"select word, {kind}s from mainspring_passages.word"
            f" where word = any(%s) and {kind}s > 0",
            [list(terms)],
        )
        return self._rows(
            "select number, round(sum(rarity * count * 2.2::float8"
            " / (count + 1.2::float8 * (0.25 + 0.75 * (length + 1) / %s::float8)))::numeric, 9)"
            "  ::float8 as score"
            " from unnest(%s::text[], %s::float8[]) as asked(word, rarity)"
            f" join mainspring_passages.{kind}_word using (word)"
            " where scope = any(%s) group by number order by score desc, number limit %s",
            [
                length / total + 1 if total else 1.0,
                [word for word, _ in counts],
                [_rarity(total, having) for _, having in counts],
                list(scopes),
                limit,
            ],
        )

    def _rows(self, statement: LiteralString, values: Sequence[object] = ()) -> Rows:
        with self._reading() as db:
            return db.execute(statement, values, binary=True).fetchall()

    @contextmanager
    def _reading(self) -> Generator[Db]:
        with self._in_use, translate_errors(self._address):
            if self._connection is None or self._connection.closed:
                settings: dict[str, Any] = {  # Any: psycopg's own settings
                    "application_name": "mainspring",
                    "connect_timeout": 5,
                    **self._address.settings,
                }
                self._connection = psycopg.connect(autocommit=True, **settings)
            yield self._connection

    @contextmanager
    def _writing(self) -> Generator[Db]:
        with self._reading() as db, db.transaction():
            db.execute("select pg_advisory_xact_lock(%s)", [_LOCK])
            yield db


def _fingerprint(db: Db) -> str | None:
    row = db.execute("select to_regclass('mainspring_passages.fact') is not null").fetchone()
    if row != (True,):
        return None
    row = db.execute("select fingerprint from mainspring_passages.fact").fetchone()
    return None if row is None else row[0]


def _rarity(total: int, having: int) -> float:
    return max(math.log((total - having + 0.5) / (having + 0.5)), _MIN_RARITY)


@dataclass(frozen=True, slots=True)
class _Changes:
    """The changes of a transaction to the counts of words and texts."""

    passage_words: Counter[str] = field(default_factory=Counter[str])
    container_words: Counter[str] = field(default_factory=Counter[str])
    totals: Counter[str] = field(default_factory=Counter[str])

    def count(self, texts: Sequence[Sequence[str]], sign: int) -> None:
        """Count the passages of one container."""
        words = [set(text) for text in texts]
        for present in words:
            self._add(self.passage_words, present, sign)
        self._add(self.container_words, set[str]().union(*words), sign)
        length = sign * sum(map(len, texts))
        self.totals.update(
            passages=sign * len(texts), containers=sign, passage_length=length,
            container_length=length,
        )  # fmt: skip

    @staticmethod
    def _add(counts: Counter[str], words: Iterable[str], sign: int) -> None:
        for word in words:
            counts[word] += sign

    def write(self, db: Db) -> None:
        words = sorted(self.passage_words.keys() | self.container_words.keys())
        db.execute(
            "insert into mainspring_passages.word"
            " select * from unnest(%s::text[], %s::bigint[], %s::bigint[])"
            " on conflict (word) do update set passages = word.passages + excluded.passages,"
            " containers = word.containers + excluded.containers",
            [
                words,
                [self.passage_words[word] for word in words],
                [self.container_words[word] for word in words],
            ],
        )
        names = ("passages", "passage_length", "containers", "container_length")
        db.execute(
            "update mainspring_passages.fact set changes = changes + 1, passages = passages + %s,"
            " passage_length = passage_length + %s, containers = containers + %s,"
            " container_length = container_length + %s",
            [self.totals[name] for name in names],
        )


def _remove(db: Db, places: Sequence[tuple[str, str]], changes: _Changes) -> None:
    containers = db.execute(
        "delete from mainspring_passages.container c"
        " using unnest(%s::text[], %s::text[]) as gone(scope, name)"
        " where c.scope = gone.scope and c.name = gone.name returning c.id, c.scope",
        [[scope for scope, _ in places], [name for _, name in places]],
    ).fetchall()
    if not containers:
        return
    rows = db.execute(
        "delete from mainspring_passages.passage where container = any(%s)"
        " returning id, container, scope, stems",
        [[number for number, _ in containers]],
    ).fetchall()
    texts: dict[int, list[list[str]]] = {number: [] for number, _ in containers}
    for _, container, _, stems in rows:
        texts[container].append(stems.split())
    for of_container in texts.values():
        changes.count(of_container, -1)
    _remove_words(db, "passage", [(at, scope, set(text.split())) for at, _, scope, text in rows])
    container_texts = [(at, scope, set[str]().union(*texts[at])) for at, scope in containers]
    _remove_words(db, "container", container_texts)


def _remove_words(
    db: Db, kind: LiteralString, texts: Iterable[tuple[int, str, Collection[str]]]
) -> None:
    listed = [(word, scope, number) for number, scope, words in texts for word in words]
    db.execute(
        f"delete from mainspring_passages.{kind}_word w"
        " using unnest(%s::text[], %s::text[], %s::bigint[]) as gone(word, scope, number)"
        " where w.word = gone.word and w.scope = gone.scope and w.number = gone.number",
        [list(column) for column in zip(*listed, strict=True)] or [[], [], []],
    )


def _insert(db: Db, containers: Sequence[StoredContainer], changes: _Changes) -> None:
    last = db.execute(
        "select (select coalesce(max(id), 0) from mainspring_passages.container),"
        " (select last from mainspring_passages.fact)"
    ).fetchone()
    container, passage = last or (0, 0)
    rows: dict[LiteralString, Rows] = {table: [] for table in _TABLES[:4]}
    for item in containers:
        container += 1
        # free numbers separate containers, so neighbours by number are neighbours in a text
        passage += GAP
        texts = [stored.stems for stored in item.passages]
        rows["container"].append((container, item.scope, item.name, item.hash))
        rows["container_word"] += _counted(item.scope, container, list(chain(*texts)))
        changes.count(texts, 1)
        for at, stored in enumerate(item.passages):
            passage += 1
            rows["passage"].append(
                (
                    *(passage, container, item.scope, at, stored.author, stored.year),
                    *(stored.month, stored.day, stored.flags, stored.vector, stored.words),
                    *(" ".join(stored.stems), len(stored.stems)),
                )
            )
            rows["passage_word"] += _counted(item.scope, passage, stored.stems)
    db.execute("update mainspring_passages.fact set last = %s", [passage])
    for table, listed in rows.items():
        with db.cursor().copy(f"copy mainspring_passages.{table} from stdin") as copy:
            for row in listed:
                copy.write_row(row)


def _counted(scope: str, number: int, words: Sequence[str]) -> Rows:
    counts = Counter(words)
    return [(word, scope, number, count, len(words)) for word, count in counts.items()]
