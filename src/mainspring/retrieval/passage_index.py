"""An index of passages in a SQLite file: derived from files, rebuilt at any time, changed in one
transaction a container.

FTS5 finds candidates over our own stems; `passages.py` scores them. Scopes are a predicate of the
query itself: a passage outside of them is neither a candidate nor a neighbour.
"""

from __future__ import annotations

import hashlib
import sqlite3
from collections.abc import Collection, Iterable, Sequence
from contextlib import closing
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path

from mainspring.retrieval.cues import PassageCues
from mainspring.retrieval.passages import (
    SPAN,
    CorpusFacts,
    PassageRow,
    PassageScorer,
    Question,
    ScoredPassage,
)
from mainspring.retrieval.stems import FINGERPRINT, stems

_SEEDS, _SEEDS_OF_LARGE = 150, 90
_MAX_DATED = 200
_COMMON_SHARE = 0.05
"""A word in more of the passages than this is too common to find candidates by in a large index."""
_LARGE = 5_000
"""Passages: of fewer, all words find candidates, which is a point better and slow only later."""
_MIN_RARE = 3
_MAX_CONTAINERS = 500
_SAMPLE = 500
"""Passages that the mean length is taken from."""
_DAY_SLACK = 3
_LAYOUT = 2
"""Of the tables, beside the stems: an index of another one is made again."""
_FINGERPRINT = f"{FINGERPRINT}/{_LAYOUT}"
_SCHEMA = """
create table if not exists container(
  id integer primary key, scope text not null, name text not null, hash text not null,
  unique(scope, name)
);
create table if not exists passage(
  id integer primary key, container integer not null, scope text not null, position int not null,
  author text not null, year int not null, month int not null, day int not null,
  flags int not null, stems text not null, scope_word text not null
);
create index if not exists passage_by_container on passage(container);
create index if not exists passage_by_date on passage(month, day);
create virtual table if not exists words using fts5(
  stems, scope_word, tokenize = 'unicode61', content = 'passage', content_rowid = 'id'
);
create virtual table if not exists container_words using fts5(
  stems, tokenize = 'unicode61', content = ''
);
create virtual table if not exists word_counts using fts5vocab(words, col);
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class Passage:
    text: str
    author: str = ""
    time: datetime | None = None
    title: str = ""
    """Searched with the text, but no cue is taken from it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Container:
    """What passages belong to, in their order: a file, a day, a conversation."""

    scope: str
    name: str
    hash: str
    """Of what the passages were made from."""
    passages: Sequence[Passage]


@dataclass(frozen=True, slots=True, kw_only=True)
class PassageHit:
    scope: str
    container: str
    position: int
    scored: ScoredPassage


class PassageIndex:
    """Blocks. One writer at a time; SQLite makes others wait."""

    def __init__(self, path: Path | None) -> None:
        self._db = sqlite3.connect(path or ":memory:", isolation_level=None, timeout=60)
        self._db.execute("pragma journal_mode = wal")
        self._db.execute("pragma synchronous = normal")
        self._require_fingerprint()

    def close(self) -> None:
        self._db.close()

    def hashes(self, scope: str) -> dict[str, str]:
        """What is indexed, by container."""
        rows = self._db.execute("select name, hash from container where scope = ?", (scope,))
        return dict(rows.fetchall())

    def put(self, *containers: Container) -> None:
        """Replace the passages of containers, all or none."""
        with _transaction(self._db) as db:
            for container in containers:
                _remove(db, container.scope, container.name)
                _insert(db, container)

    def remove(self, scope: str, container: str) -> None:
        with _transaction(self._db) as db:
            _remove(db, scope, container)

    def clear(self) -> None:
        with _transaction(self._db) as db:
            db.execute("insert into words(words) values ('delete-all')")
            db.execute("insert into container_words(container_words) values ('delete-all')")
            db.execute("delete from passage")
            db.execute("delete from container")

    def optimize(self) -> None:
        """Removed words leave the file only when segments are merged."""
        self._db.execute("insert into words(words) values ('optimize')")
        self._db.execute("insert into container_words(container_words) values ('optimize')")
        self._db.execute("vacuum")
        self._db.execute("pragma wal_checkpoint(truncate)")

    def search(self, query: str, scopes: Collection[str], limit: int) -> list[PassageHit]:
        """The passages that answer a question best, of these scopes and no others."""
        question = Question.of(query)
        if not question.stems or not scopes:
            return []
        facts = self._facts(question)
        seeds = self._seeds(question, facts, sorted(scopes))
        candidates = {seed + offset for seed in seeds for offset in range(-SPAN, SPAN + 1)}
        around = {at + offset for at in candidates for offset in range(-SPAN, SPAN + 1)}
        rows = self._rows(around, sorted(scopes))
        scorer = PassageScorer(question, facts, rows, self._container_scores(question, rows))
        return self._hits(scorer.best(candidates, limit))

    def _require_fingerprint(self) -> None:
        """Tables of another layout, and stems that were cut in another way, are made again."""
        self._db.execute("create table if not exists fact(name text primary key, value text)")
        row = self._db.execute("select value from fact where name = 'stems'").fetchone()
        if row is None or row[0] != _FINGERPRINT:
            for table in ("word_counts", "words", "container_words", "passage", "container"):
                self._db.execute(f"drop table if exists {table}")
            self._db.execute("insert or replace into fact values ('stems', ?)", (_FINGERPRINT,))
        self._db.executescript(_SCHEMA)

    def forget_fingerprint(self) -> None:
        """The next time it is opened, it starts over."""
        self._db.execute("delete from fact where name = 'stems'")

    def _facts(self, question: Question) -> CorpusFacts:
        terms = question.terms
        count, length = self._db.execute(
            "select (select count(*) from passage),"
            " (select avg(length(stems) - length(replace(stems, ' ', '')) + 1) from"
            "  (select stems from passage order by id desc limit ?))",
            (_SAMPLE,),
        ).fetchone()
        frequency = self._db.execute(
            f"select term, doc from word_counts where term in ({_marks(terms)}) and col = 'stems'",
            terms,
        )
        return CorpusFacts(count, length or 1.0, dict(frequency.fetchall()))

    def _seeds(self, question: Question, facts: CorpusFacts, scopes: list[str]) -> list[int]:
        words = [_scope_word(scope) for scope in scopes]
        common = _COMMON_SHARE * facts.passages
        rare = [word for word in question.terms if facts.frequency.get(word, 0) <= common]
        is_choosy = facts.passages > _LARGE and len(rare) >= _MIN_RARE
        terms = rare if is_choosy else question.terms
        seeds = _SEEDS_OF_LARGE if facts.passages > _LARGE else _SEEDS
        found = self._db.execute(
            "select rowid from words where words match ? order by bm25(words, 1.0, 0.0) limit ?",
            (f"{{stems}}: ({_any_of(terms)}) AND {{scope_word}}: ({_any_of(words)})", seeds),
        ).fetchall()
        cues = question.cues
        if cues.months and cues.day is not None:
            months = sorted(cues.months)
            found += self._db.execute(
                f"select id from passage where month in ({_marks(months)})"
                f" and day between ? and ? and scope in ({_marks(scopes)}) limit ?",
                (*months, cues.day - _DAY_SLACK, cues.day + _DAY_SLACK, *scopes, _MAX_DATED),
            ).fetchall()
        return [row[0] for row in found]

    def _rows(self, numbers: Iterable[int], scopes: list[str]) -> list[PassageRow]:
        listed = ",".join(map(str, numbers))  # integers of our own
        rows = self._db.execute(
            "select id, container, author, year, month, day, flags, stems from passage"
            f" where id in ({listed}) and scope in ({_marks(scopes)})",
            scopes,
        )
        return [PassageRow(*fields, words.split(" ")) for *fields, words in rows]  # pyright: ignore[reportCallIssue]

    def _container_scores(self, question: Question, rows: Sequence[PassageRow]) -> dict[int, float]:
        """How well whole containers answer, those of the rows among the best; FTS5's own BM25."""
        containers = {row.container for row in rows}
        scores = self._db.execute(
            "select rowid, -rank from container_words where container_words match ?"
            " order by rank limit ?",
            (_any_of(question.terms), _MAX_CONTAINERS),
        )
        return {number: score for number, score in scores if number in containers}

    def _hits(self, best: Sequence[ScoredPassage]) -> list[PassageHit]:
        rows = {
            row[0]: row[1:]
            for row in self._db.execute(
                "select passage.id, container.scope, container.name, passage.position"
                " from passage join container on container.id = passage.container"
                f" where passage.id in ({','.join(str(item.number) for item in best)})"
            )
        }
        return [
            PassageHit(scope=scope, container=name, position=position, scored=item)
            for item in best
            if item.number in rows
            for scope, name, position in (rows[item.number],)
        ]


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


def _any_of(words: Sequence[str]) -> str:
    return " OR ".join(f'"{word}"' for word in words)


def _scope_word(scope: str) -> str:
    """A scope as one word, so that the full-text search itself is limited to it."""
    return f"s{hashlib.sha256(scope.encode()).hexdigest()}"


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
    db.execute(
        "insert into container_words(container_words, rowid, stems) values ('delete', ?, ?)",
        (row[0], _joined_stems(db, row[0])),
    )
    db.execute("delete from passage where container = ?", row)
    db.execute("delete from container where id = ?", row)


def _insert(db: sqlite3.Connection, container: Container) -> None:
    with closing(db.cursor()) as cursor:
        number = cursor.execute(
            "insert into container(scope, name, hash) values (?, ?, ?)",
            (container.scope, container.name, container.hash),
        ).lastrowid
        # free numbers keep containers apart: neighbours by number are neighbours in a text
        last = cursor.execute("select coalesce(max(id), 0) from passage").fetchone()[0]
        rows = [
            (last + SPAN + 1 + at, number, container.scope, at, *_row(passage))
            for at, passage in enumerate(container.passages)
        ]
        word = _scope_word(container.scope)
        cursor.executemany(
            "insert into passage values (?,?,?,?,?,?,?,?,?,?,?)", [(*row, word) for row in rows]
        )
        cursor.executemany(
            "insert into words(rowid, stems, scope_word) values (?, ?, ?)",
            [(row[0], row[-1], word) for row in rows],
        )
        cursor.execute(
            "insert into container_words(rowid, stems) values (?, ?)",
            (number, " ".join(row[-1] for row in rows)),
        )


def _joined_stems(db: sqlite3.Connection, container: int) -> str:
    rows = db.execute("select stems from passage where container = ? order by id", (container,))
    return " ".join(row[0] for row in rows)


def _row(passage: Passage) -> tuple[str, int, int, int, int, str]:
    cues, time = PassageCues.of(passage.text), passage.time
    flags = cues.is_question | cues.has_time << 1 | cues.has_number << 2 | cues.has_name << 3
    year, month, day = (0, 0, 0) if time is None else (time.year, time.month, time.day)
    text = f"{passage.title} {passage.text}" if passage.title else passage.text
    return passage.author.lower(), year, month, day, flags, " ".join(stems(text))
