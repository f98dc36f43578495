"""Passages in a SQLite file. FTS5 finds candidates; the scope is a word in the same query."""

from __future__ import annotations

import hashlib
import sqlite3
from collections.abc import Collection, Iterable, Iterator, Sequence
from pathlib import Path

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

_MERGED_PAGES = 3
"""Pages of the full-text index to merge with each change; merging many at once would be slow."""
_SCHEMA = """
create table if not exists container(
  id integer primary key, scope text not null, name text not null, hash text not null,
  unique(scope, name)
);
create table if not exists passage(
  id integer primary key, container integer not null, scope text not null, position int not null,
  author text not null, year int not null, month int not null, day int not null,
  flags int not null, vector blob, words text not null, stems text not null,
  scope_word text not null
);
create index if not exists passage_by_container on passage(container);
create index if not exists passage_by_date on passage(month, day);
create virtual table if not exists words using fts5(
  stems, scope_word, tokenize = 'unicode61', content = 'passage', content_rowid = 'id'
);
create virtual table if not exists container_words using fts5(
  stems, scope_word, tokenize = 'unicode61', content = ''
);
create virtual table if not exists word_counts using fts5vocab(words, col);
"""
_FULL_TEXT = ("words", "container_words")


class SqlitePassages:
    """`path`: `None` for an index in memory. Several threads may use it, one at a time."""

    def __init__(self, path: Path | None) -> None:
        self._db = sqlite3.connect(
            path or ":memory:", isolation_level=None, timeout=60, check_same_thread=False
        )
        try:
            self._db.execute("pragma journal_mode = wal")
            self._db.execute("pragma synchronous = normal")
        except BaseException:
            self._db.close()
            raise

    def close(self) -> None:
        self._db.close()

    def require(self, fingerprint: str) -> None:
        self._db.execute("create table if not exists fact(name text primary key, value text)")
        row = self._db.execute("select value from fact where name = 'stems'").fetchone()
        if row is not None and row[0] == fingerprint:
            return
        with _transaction(self._db) as db:
            for table in ("word_counts", *_FULL_TEXT, "passage", "container"):
                db.execute(f"drop table if exists {table}")
            for statement in filter(str.strip, _SCHEMA.split(";")):
                db.execute(statement)
            for table in _FULL_TEXT:
                db.execute(f"insert into {table}({table}, rank) values ('automerge', 0)")
                db.execute(f"insert into {table}({table}, rank) values ('crisismerge', 400)")
            db.execute("insert or replace into fact values ('stems', ?)", (fingerprint,))
            db.execute("insert or replace into fact values ('created', hex(randomblob(8)))")
            db.execute("insert or replace into fact values ('changes', '0')")
            db.execute("insert or replace into fact values ('last', '0')")

    def hashes(self, scope: str) -> dict[str, str]:
        rows = self._db.execute("select name, hash from container where scope = ?", (scope,))
        return dict(rows.fetchall())

    def put(self, containers: Sequence[StoredContainer]) -> None:
        with _transaction(self._db) as db:
            for container in containers:
                _remove(db, container.scope, container.name)
                _insert(db, container)
            _count_change(db, len(containers))

    def remove(self, scope: str, names: Collection[str]) -> None:
        with _transaction(self._db) as db:
            for name in names:
                _remove(db, scope, name)
            _count_change(db, len(names))

    def clear(self) -> None:
        with _transaction(self._db) as db:
            for table in _FULL_TEXT:
                db.execute(f"insert into {table}({table}) values ('delete-all')")
            db.execute("delete from passage")
            db.execute("delete from container")
            _count_change(db, 1)

    def purge(self) -> None:
        """Merge segments, so that the file loses removed words."""
        for table in _FULL_TEXT:
            self._db.execute(f"insert into {table}({table}) values ('optimize')")
        self._db.execute("vacuum")
        self._db.execute("pragma wal_checkpoint(truncate)")

    def statistics(self, terms: Sequence[str], scopes: Sequence[str]) -> CorpusStatistics:
        """The statistics of all scopes: words that are common elsewhere are common here."""
        count, length = self._db.execute(
            "select (select count(*) from passage),"
            " (select avg(length(stems) - length(replace(stems, ' ', '')) + 1) from"
            "  (select stems from passage order by id desc limit ?))",
            (SAMPLE,),
        ).fetchone()
        frequency = self._db.execute(
            f"select term, doc from word_counts where term in ({_marks(terms)}) and col = 'stems'",
            list(terms),
        )
        return CorpusStatistics(count, length or 1.0, dict(frequency.fetchall()))

    def find_words(self, terms: Sequence[str], scopes: Sequence[str], limit: int) -> list[int]:
        rows = self._db.execute(
            "select rowid from words where words match ?"
            " order by round(bm25(words, 1.0, 0.0), 9), rowid limit ?",
            (_match(terms, scopes), limit),
        )
        return [row[0] for row in rows]

    def find_dates(self, dates: DateRange, scopes: Sequence[str]) -> list[int]:
        rows = self._db.execute(
            f"select id from passage where month in ({_marks(dates.months)})"
            f" and day between ? and ? and scope in ({_marks(scopes)}) order by id limit ?",
            (*dates.months, dates.first_day, dates.last_day, *scopes, MAX_DATED),
        )
        return [row[0] for row in rows]

    def rows(self, numbers: Iterable[int], scopes: Sequence[str]) -> list[PassageRow]:
        listed = ",".join(map(str, numbers))  # integers of our own
        rows = self._db.execute(
            "select id, container, author, year, month, day, flags, vector, words, stems"
            f" from passage where id in ({listed}) and scope in ({_marks(scopes)})",
            list(scopes),
        )
        return [PassageRow(*fields, text.split(" ")) for *fields, text in rows]  # pyright: ignore[reportCallIssue]

    def rows_after(self, number: int, limit: int) -> list[tuple[str, PassageRow]]:
        rows = self._db.execute(
            "select scope, id, container, author, year, month, day, flags, vector, words, stems"
            " from passage where id > ? order by id limit ?",
            (number, limit),
        )
        return [(scope, PassageRow(*fields, text.split(" "))) for scope, *fields, text in rows]  # pyright: ignore[reportCallIssue]

    def totals(self) -> Totals:
        row = self._db.execute(
            "select (select count(*) from passage), (select count(*) from container), value"
            " from fact where name = 'created'"
        ).fetchone()
        return Totals(*row)

    def numbers(self) -> list[int]:
        return [row[0] for row in self._db.execute("select id from passage")]

    def container_scores(self, terms: Sequence[str], scopes: Sequence[str]) -> dict[int, float]:
        scores = self._db.execute(
            "select rowid, round(-bm25(container_words, 1.0, 0.0), 9) score from container_words"
            " where container_words match ? order by score desc, rowid limit ?",
            (_match(terms, scopes), MAX_CONTAINERS),
        )
        return dict(scores.fetchall())

    def vector_state(self) -> object:
        return tuple(self._db.execute("select value from fact order by name"))

    def vectors(self, scopes: Sequence[str]) -> Iterator[tuple[int, bytes]]:
        return self._db.execute(
            f"select id, vector from passage where scope in ({_marks(scopes)})"
            " and vector is not null",
            list(scopes),
        )

    def places(self, numbers: Sequence[int]) -> dict[int, Place]:
        rows = self._db.execute(
            "select passage.id, container.scope, container.name, passage.position"
            " from passage join container on container.id = passage.container"
            f" where passage.id in ({','.join(map(str, numbers))})"
        )
        return {number: Place(*fields) for number, *fields in rows}


class _transaction:  # noqa: N801 (reads as a word of SQL)
    def __init__(self, db: sqlite3.Connection) -> None:
        self._db = db

    def __enter__(self) -> sqlite3.Connection:
        self._db.execute("begin immediate")
        return self._db

    def __exit__(self, kind: object, *_: object) -> None:
        self._db.execute("commit" if kind is None else "rollback")


def _marks(values: Sequence[object]) -> str:
    return ",".join("?" * len(values))


def _match(terms: Sequence[str], scopes: Sequence[str]) -> str:
    words = [_scope_word(scope) for scope in scopes]
    return f"{{stems}}: ({_any_of(terms)}) AND {{scope_word}}: ({_any_of(words)})"


def _any_of(words: Sequence[str]) -> str:
    return " OR ".join(f'"{word}"' for word in words)


def _scope_word(scope: str) -> str:
    """A scope as one word, so that the full-text search itself is limited to it."""
    return f"s{hashlib.sha256(scope.encode()).hexdigest()}"


def _count_change(db: sqlite3.Connection, changes: int) -> None:
    db.execute("update fact set value = value + 1 where name = 'changes'")
    pages = _MERGED_PAGES * max(1, changes)
    for table in _FULL_TEXT:
        db.execute(f"insert into {table}({table}, rank) values ('merge', ?)", (pages,))


def _remove(db: sqlite3.Connection, scope: str, container: str) -> None:
    row = db.execute(
        "select id from container where scope = ? and name = ?", (scope, container)
    ).fetchone()
    if row is None:
        return
    db.execute(
        "insert into words(words, rowid, stems, scope_word)"
        " select 'delete', id, stems, scope_word from passage where container = ?",
        row,
    )
    texts = db.execute("select stems from passage where container = ? order by id", row)
    db.execute(
        "insert into container_words(container_words, rowid, stems, scope_word)"
        " values ('delete', ?, ?, ?)",
        (row[0], " ".join(text for (text,) in texts), _scope_word(scope)),
    )
    db.execute("delete from passage where container = ?", row)
    db.execute("delete from container where id = ?", row)


def _insert(db: sqlite3.Connection, container: StoredContainer) -> None:
    number = db.execute(
        "insert into container(scope, name, hash) values (?, ?, ?)",
        (container.scope, container.name, container.hash),
    ).lastrowid
    # free numbers separate containers, so neighbours by number are neighbours in a text
    (last,) = db.execute("select cast(value as integer) from fact where name = 'last'").fetchone()
    word = _scope_word(container.scope)
    rows = [
        (
            *(last + GAP + 1 + at, number, container.scope, at, item.author, item.year),
            *(item.month, item.day, item.flags, item.vector, item.words),
            *(" ".join(item.stems), word),
        )
        for at, item in enumerate(container.passages)
    ]
    db.executemany(f"insert into passage values ({_marks(range(13))})", rows)
    db.execute(
        "update fact set value = ? where name = 'last'", (last + GAP + len(container.passages),)
    )
    db.executemany(
        "insert into words(rowid, stems, scope_word) values (?, ?, ?)",
        [(row[0], row[-2], word) for row in rows],
    )
    db.execute(
        "insert into container_words(rowid, stems, scope_word) values (?, ?, ?)",
        (number, " ".join(row[-2] for row in rows), word),
    )
