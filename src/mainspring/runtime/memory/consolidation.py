"""What becomes of new facts among those that are known: nothing if one is known already, an update
if it replaces one, a mark if two disagree, a paragraph more, or a new memory with links.

Pure. What a person wrote is never changed here: what disagrees with it stands beside it, marked.
"""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from math import log
from typing import Literal, TypeAlias

from mainspring.retrieval.stems import stems, words
from mainspring.runtime.memory.extraction import MemoryCandidate, MemoryEvidence
from mainspring.runtime.memory.memory_edits import EditAction, MemoryEdit
from mainspring.runtime.memory.note import (
    CONFLICTS,
    INDEX_FILE,
    RULE_TYPES,
    Note,
    content_hash,
    note_path,
    parse_note,
    render_note,
)

ARCHIVE = "archive/"
"""Where memories are that are no longer recalled, but not forgotten."""
MAX_LINKS = 3
_SAME, _MERGED = 0.85, 0.5
_MAX_VALUE = 3
"""Words of a value that replaces another."""
_MIN_LINK = 3.0
_MAX_CONTEXT = 160

Relation: TypeAlias = Literal["same", "replaced", "conflict", "merged", "related"]

_NEGATIONS = frozenset(("not", "no", "never", "don", "dont", "without", "stop", "avoid", "nobody"))
_FREQUENCIES = frozenset(("alway", "never"))
_CHANGES = frozenset(("now", "instead", "longer", "anymor"))
_REPLACING = re.compile(
    r"\b(?:now|instead|no longer|changed to|moved to|replaced|any ?more|new)\b", re.IGNORECASE
)
_KINDS = {
    "number": re.compile(r"\d+(?:[.,]\d+)*"),
    "weekday": re.compile(r"(?:mon|tues|wednes|thurs|fri|satur|sun)day"),
    "month": re.compile(
        r"januari|februari|march|april|may|june|juli|august|\w+ember|october|octob"
    ),
}


@dataclass(frozen=True, slots=True)
class _Statement:
    order: tuple[str, ...]
    is_negated: bool

    @property
    def stems(self) -> frozenset[str]:
        return frozenset(self.order)

    @classmethod
    def of(cls, text: str) -> _Statement:
        plain = words(text)
        negations = sum(word in _NEGATIONS for word in plain)
        without = _FREQUENCIES | _NEGATIONS | _CHANGES
        return cls(tuple(stem for stem in stems(text) if stem not in without), negations % 2 == 1)


@dataclass(slots=True)
class _Change:
    action: EditAction
    reasons: list[str] = field(default_factory=list[str])
    evidence: list[MemoryEvidence] = field(default_factory=list[MemoryEvidence])


class Consolidation:
    """The memories of one folder while facts are added to them; `edits` says what has changed."""

    def __init__(self, texts: Mapping[str, str]) -> None:
        """`texts`: the files by path."""
        self._texts = {path: text for path, text in texts.items() if path != INDEX_FILE}
        self.notes = {path: parse_note(path, text) for path, text in self._texts.items()}
        self._changes: dict[str, _Change] = {}
        self._by_stem: dict[str, set[str]] = defaultdict(set)
        for path, note in self.notes.items():
            self._enter(path, note)

    def add(self, candidate: MemoryCandidate) -> str | None:
        """The path where it went; `None` if it was known."""
        if candidate.trust == "foreign" and candidate.type in RULE_TYPES:
            candidate = replace(candidate, type="reference")
        statement = _Statement.of(candidate.text)
        disagrees: list[str] = []
        for path in self._nearby(statement.stems):
            note = self.notes[path]
            relation = _relation(candidate, statement, note)
            if relation == "same":
                return None
            if relation == "replaced":
                return self._update(path, candidate, "update", body=candidate.text)
            if relation == "merged":
                body = f"{note.body}\n\n{candidate.text}"
                return self._update(path, candidate, "merge", body=body)
            if relation == "conflict":
                disagrees.append(path)
        return self._add_new(candidate, statement, disagrees)

    def archive(self, path: str, reason: str, evidence: Iterable[MemoryEvidence] = ()) -> None:
        """Take a memory out of recall; its file stays, in the folder `archive`."""
        note = self.notes.pop(path)
        archived_note = replace(note, path=f"{ARCHIVE}{path}")
        self.notes[archived_note.path] = archived_note
        for changed in (path, archived_note.path):
            self._note(changed, "archive", reason, evidence)

    def edits(self) -> list[MemoryEdit]:
        memory_edits: list[MemoryEdit] = []
        for path, change in self._changes.items():
            note, before = self.notes.get(path), self._texts.get(path)
            text = None if note is None else render_note(note)
            if text == before:
                continue
            memory_edits.append(
                MemoryEdit(
                    path=path,
                    action=change.action,
                    reason="; ".join(dict.fromkeys(change.reasons)),
                    before="" if before is None else content_hash(before.encode()),
                    text=text,
                    evidence=tuple(dict.fromkeys(change.evidence)),
                    trust="agent" if note is None else note.trust,
                )
            )
        return memory_edits

    def _nearby(self, wanted: frozenset[str]) -> list[str]:
        counts = Counter(path for stem in wanted for path in self._by_stem.get(stem, ()))
        nearest = sorted(counts.items(), key=lambda item: (-item[1], item[0]))
        return [path for path, _ in nearest[:20] if path in self.notes]

    def _update(
        self, path: str, candidate: MemoryCandidate, action: EditAction, *, body: str
    ) -> str:
        note = self.notes[path]
        trust = "foreign" if "foreign" in (note.trust, candidate.trust) else candidate.trust
        changed = replace(note, body=body, trust=trust, updated=candidate.time.date().isoformat())
        self._put(changed)
        self._note_candidate(path, action, candidate)
        return path

    def _add_new(
        self, candidate: MemoryCandidate, statement: _Statement, disagrees: list[str]
    ) -> str:
        path = self._free_path(candidate)
        links = self._links(statement.stems)
        first = candidate.evidence[0] if candidate.evidence else None
        note = Note(
            path=path,
            name=candidate.title,
            description=candidate.description,
            body=candidate.text,
            type=candidate.type,
            created=candidate.time.date().isoformat(),
            updated=candidate.time.date().isoformat(),
            links=tuple(links),
            session="" if first is None else first.session_id,
            events=tuple(item.event_id for item in candidate.evidence),
            trust=candidate.trust,
            other_fields={CONFLICTS: disagrees} if disagrees else {},
        )
        self._put(note)
        self._note_candidate(path, "conflict" if disagrees else "add", candidate)
        for neighbour in links:
            self._evolve(neighbour, note, candidate)
        return path

    def _evolve(self, path: str, new: Note, candidate: MemoryCandidate) -> None:
        """A memory that the new one is linked to links back, and its context line says why."""
        note = self.notes[path]
        if note.trust == "person":
            return
        links = tuple(dict.fromkeys((new.path, *note.links)))[:MAX_LINKS]
        context = f"See also {new.path}: {' '.join(new.body.split())}"[:_MAX_CONTEXT]
        self._put(
            replace(note, links=links, other_fields={**note.other_fields, "context": context})
        )
        self._note(path, "link", f"related to {new.path}", candidate.evidence)

    def _links(self, wanted: frozenset[str]) -> list[str]:
        count = max(1, len(self.notes))
        scores: defaultdict[str, float] = defaultdict(float)
        for stem in wanted:
            paths = self._by_stem.get(stem, set())
            for path in paths:
                if path in self.notes and not path.startswith(ARCHIVE):
                    scores[path] += log(1 + count / len(paths))
        best = sorted(scores.items(), key=lambda item: (-item[1], item[0]))
        return [path for path, score in best[:MAX_LINKS] if score >= _MIN_LINK]

    def _free_path(self, candidate: MemoryCandidate) -> str:
        path = note_path(candidate.type, candidate.title)
        if path not in self.notes and path not in self._texts:
            return path
        return note_path(
            candidate.type, f"{candidate.title} {content_hash(candidate.text.encode())[:6]}"
        )

    def _put(self, note: Note) -> None:
        self.notes[note.path] = note
        self._enter(note.path, note)

    def _enter(self, path: str, note: Note) -> None:
        if not note.is_daily:
            for stem in _Statement.of(f"{note.name} {note.body}").stems:
                self._by_stem[stem].add(path)

    def _note_candidate(self, path: str, action: EditAction, candidate: MemoryCandidate) -> None:
        reasons = {
            "add": "learned from a session",
            "update": "replaces what was known",
            "merge": "says more about it",
            "conflict": "disagrees with another memory: a person should decide",
        }
        self._note(path, action, reasons.get(action, action), candidate.evidence)

    def _note(
        self, path: str, action: EditAction, reason: str, evidence: Iterable[MemoryEvidence]
    ) -> None:
        change = self._changes.setdefault(path, _Change(action))
        change.reasons.append(reason)
        change.evidence += evidence


def _relation(candidate: MemoryCandidate, new: _Statement, note: Note) -> Relation | None:
    """How a new fact relates to a memory: the closest of its sentences decides."""
    if note.path.startswith(ARCHIVE):
        return None
    relations = {
        _statement_relation(candidate, new, _Statement.of(part))
        for part in re.split(r"\n\s*\n|(?<=[.!?])\s+", note.body)
    }
    for relation in ("same", "replaced", "conflict", "merged"):
        if relation in relations:
            return _allowed(relation, note)
    return None


def _allowed(relation: Relation, note: Note) -> Relation:
    """What a person wrote is not replaced or extended."""
    if note.trust != "person":
        return relation
    if relation == "replaced":
        return "conflict"
    return "related" if relation == "merged" else relation


def _statement_relation(
    candidate: MemoryCandidate, new: _Statement, old: _Statement
) -> Relation | None:
    shared, both = new.stems & old.stems, new.stems | old.stems
    if not shared:
        return None
    closeness = len(shared) / len(both)
    covered = len(shared) / min(len(new.stems), len(old.stems))
    if closeness >= _SAME or new.stems <= old.stems:
        if new.is_negated == old.is_negated:
            return "same"
        return "replaced" if closeness >= _SAME else None
    if _has_other_value(candidate, new.order, old.order):
        return "replaced"
    if len(shared) > 1 and covered >= _MERGED and old.stems - shared and new.stems - shared:
        return "conflict" if len(both) - len(shared) <= len(shared) else None
    return "merged" if closeness >= _MERGED else None


def _has_other_value(
    candidate: MemoryCandidate, new: tuple[str, ...], old: tuple[str, ...]
) -> bool:
    """Whether the same is said of the same with another number, day or name at its end. A number
    with something after it is part of a name: room 1 is not room 2."""
    begin = next(
        (at for at, pair in enumerate(zip(new, old, strict=False)) if pair[0] != pair[1]), 0
    )
    rest, before = new[begin:], old[begin:]
    if not begin or not rest or not before or max(len(rest), len(before)) > _MAX_VALUE:
        return False
    is_name = any(any(map(str.isdigit, part[0])) and len(part) > 1 for part in (rest, before))
    if is_name:
        return False
    is_same_kind = any(
        form.fullmatch(rest[0]) and form.fullmatch(before[0]) for form in _KINDS.values()
    )
    is_change = candidate.is_correction or _REPLACING.search(candidate.text) is not None
    return is_change or (is_same_kind and len(rest) == len(before) == 1)
