"""Decides what a new fact does to existing memories: nothing if one already says it, an update if
it replaces one, a conflict mark if they disagree, another paragraph, or a new memory with links.

Pure. A memory that a person wrote is never changed: a fact that conflicts with it becomes a memory
of its own, marked as a conflict.
"""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from math import log
from typing import Literal, TypeAlias

from mainspring.retrieval.stems import stems
from mainspring.runtime.memory.learning.extraction import MemoryCandidate, MemoryEvidence
from mainspring.runtime.memory.learning.memory_edits import EditAction, MemoryEdit
from mainspring.runtime.memory.learning.note_changes import (
    NoteChange,
    StatementStems,
    can_disagree,
    changed_notes,
    first_sentence,
    is_stated,
    mentions,
)
from mainspring.runtime.memory.learning.statements import (
    change_in_progress,
    exchange_of,
    names_in,
    title_of,
)
from mainspring.runtime.memory.note import (
    CONFLICTS,
    INDEX_FILE,
    RULE_TYPES,
    Note,
    NoteType,
    content_hash,
    note_path,
    parse_note,
    render_note,
)

KEYWORDS = "keywords"
"""The field with the names that a memory has."""
ARCHIVE = "archive/"
"""The folder of memories that are no longer recalled but not forgotten."""
MAX_LINKS = 3  # of a note, the newest or best ones; recall follows them
# Shares of equal words from which a fact is the same, or is merged. Lower ones join facts that
# differ, higher ones keep repetitions.
_SAME, _MERGED = 0.85, 0.5
_MAX_VALUE = 3
"""The longest value, in words, that can replace another."""
_MIN_LINK = 3.0  # sum of log rarities; a shared name alone reaches it
_COMMON = 20  # a name in more than one of 20 notes links too many of them: it is the project's own
_MAX_CONTEXT = 160  # characters of the line "See also" in a note

Relation: TypeAlias = Literal["same", "replaced", "conflict", "merged", "related"]

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


@dataclass(slots=True)
class _Change:
    action: EditAction
    reasons: list[str] = field(default_factory=list[str])
    evidence: list[MemoryEvidence] = field(default_factory=list[MemoryEvidence])


class Consolidation:
    """The memories of one folder while facts are added to them; `edits` returns the changes."""

    def __init__(self, texts: Mapping[str, str], newest: Sequence[str] = ()) -> None:
        """`texts`: the files by path. `newest`: the paths that changed last, the newest first."""
        self._newest = newest
        self._texts = {path: text for path, text in texts.items() if path != INDEX_FILE}
        self.notes = {path: parse_note(path, text) for path, text in self._texts.items()}
        self._changes: dict[str, _Change] = {}
        self._by_stem: dict[str, set[str]] = defaultdict(set)
        for path, note in self.notes.items():
            self._index_stems(path, note)

    def add(self, candidate: MemoryCandidate) -> str | None:
        """Returns the path of the memory that now has the fact; `None` if one had it already."""
        if candidate.trust == "foreign" and candidate.type in RULE_TYPES:
            candidate = replace(candidate, type="reference")
        if candidate.retracts:
            return self._forget(candidate)
        statement = StatementStems.of(candidate.text)
        notes = self._near_notes(candidate, statement)
        changes = changed_notes(candidate, notes)
        paths = [
            self._change(change, candidate) for change in changes if change.note.trust != "person"
        ]
        if paths:
            return paths[0]
        if candidate.value or is_stated(candidate, notes):
            return None  # nobody knows what it corrects, or a memory says it
        return self._compare(candidate, statement, [change.note.path for change in changes])

    def _compare(
        self, candidate: MemoryCandidate, statement: StatementStems, conflicts: list[str]
    ) -> str | None:
        """What the words that it shares with memories say about a fact."""
        for path in self._nearby(statement.stems):
            note = self.notes[path]
            relation = None if path in conflicts else _relation(candidate, statement, note)
            if relation == "same":
                return None
            if relation == "replaced":
                return self.replace(path, candidate)
            if relation == "merged":
                return self.merge(path, candidate)
            if relation == "conflict" and can_disagree(candidate, note):
                conflicts.append(path)
        return self._add_new(candidate, statement, conflicts)

    def replace(self, path: str, candidate: MemoryCandidate) -> str:
        """The fact takes the place of a memory's text."""
        note = self.notes[path]
        if note.trust == "person":
            return self.mark_conflict(path, candidate)
        return self._change(NoteChange(note, candidate.text, note.body, candidate.text), candidate)

    def merge(self, path: str, candidate: MemoryCandidate) -> str:
        """The fact becomes another paragraph of a memory."""
        note = self.notes[path]
        if note.trust == "person":
            return self._add_new(candidate, StatementStems.of(candidate.text), [])
        body = f"{note.body}\n\n{candidate.text}"
        return self._change(NoteChange(note, body, "", candidate.text), candidate, "merge")

    def mark_conflict(self, path: str, candidate: MemoryCandidate) -> str:
        """The fact becomes a memory beside the one that it disagrees with."""
        return self._add_new(candidate, StatementStems.of(candidate.text), [path])

    def retract(self, path: str, candidate: MemoryCandidate) -> str | None:
        """A person asked to forget a memory; what a person wrote stays."""
        if self.notes[path].trust == "person":
            return None
        del self.notes[path]
        self._record_change(path, "forget", "a person asked to forget it", candidate.evidence)
        return path

    def archive(self, path: str, reason: str, evidence: Iterable[MemoryEvidence] = ()) -> None:
        """Take a memory out of recall; its file stays, in the folder `archive`."""
        note = self.notes.pop(path)
        archived_note = replace(note, path=f"{ARCHIVE}{path}")
        self.notes[archived_note.path] = archived_note
        for changed in (path, archived_note.path):
            self._record_change(changed, "archive", reason, evidence)

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

    def _nearby(self, fact_stems: frozenset[str]) -> list[str]:
        counts = Counter(path for stem in fact_stems for path in self._by_stem.get(stem, ()))
        nearest = sorted(counts.items(), key=lambda item: (-item[1], item[0]))
        return [path for path, _ in nearest[:20] if path in self.notes]

    def _near_notes(self, candidate: MemoryCandidate, statement: StatementStems) -> list[Note]:
        """The notes that a fact may change."""
        exchange = exchange_of(candidate.text)
        old = frozenset(stems(exchange.old)) if exchange else frozenset[str]()
        if candidate.value:
            paths = [path for path in self._newest if path in self.notes]
        elif candidate.type == "user":  # "I moved to ...": few words are shared
            paths = list(self.notes)
        else:
            paths = self._nearby(statement.stems | old)
        notes = [self.notes[path] for path in paths]
        return [note for note in notes if not note.is_daily and not note.path.startswith(ARCHIVE)]

    def _forget(self, candidate: MemoryCandidate) -> str | None:
        """Remove the one memory that says what a person asks to forget; if several do, none."""
        asked = StatementStems.of(candidate.text).stems
        paths = [
            path
            for path in self._nearby(asked)
            if asked
            and asked <= StatementStems.of(f"{self.notes[path].name} {self.notes[path].body}").stems
            and self.notes[path].trust != "person"
        ]
        return self.retract(paths[0], candidate) if len(paths) == 1 else None

    def _change(
        self, change: NoteChange, candidate: MemoryCandidate, action: EditAction = "update"
    ) -> str:
        """A memory with another text: its name, file, sources and the links to it follow."""
        note, name, path = change.note, change.note.name, change.note.path
        is_derived = name in ("", title_of(first_sentence(note.body)))
        if is_derived or mentions(name, change.old):
            name = title_of(first_sentence(change.body))
        is_named_so = note_path(note.type, note.name) == path
        if (is_named_so and name != note.name) or mentions(path, change.old):
            path = self._path_for(note.type, name, candidate)
        changed = replace(
            note,
            path=path,
            supersedes=note.supersedes if path == note.path else (note.path, *note.supersedes),
            body=change.body,
            name=name,
            description="" if mentions(note.description, change.old) else note.description,
            trust="foreign" if "foreign" in (note.trust, candidate.trust) else candidate.trust,
            updated=candidate.time.date().isoformat(),
            session=candidate.evidence[0].session_id if candidate.evidence else note.session,
            events=tuple(item.event_id for item in candidate.evidence) or note.events,
        )
        self._put(changed)
        self._record_candidate(path, action, candidate)
        if path != note.path:
            del self.notes[note.path]
            self._record_change(note.path, "update", f"is now {path}", candidate.evidence)
            self._move_links(note.path, path, candidate)
        return path

    def _path_for(self, note_type: NoteType, name: str, candidate: MemoryCandidate) -> str:
        path = note_path(note_type, name)
        if path in self.notes or path in self._texts:
            return note_path(note_type, f"{name} {content_hash(candidate.text.encode())[:6]}")
        return path

    def _move_links(self, old: str, new: str, candidate: MemoryCandidate) -> None:
        for path, note in list(self.notes.items()):
            if old in note.links and note.trust != "person":
                links = tuple(new if link == old else link for link in note.links)
                self._put(replace(note, links=links))
                self._record_change(path, "link", f"{old} is now {new}", candidate.evidence)

    def _add_new(
        self, candidate: MemoryCandidate, statement: StatementStems, conflicts: list[str]
    ) -> str:
        path = self._free_path(candidate)
        links = self._links(candidate.text, statement.stems)
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
            other_fields={
                **({CONFLICTS: conflicts} if conflicts else {}),
                **({KEYWORDS: keywords} if (keywords := names_in(candidate.text)) else {}),
            },
        )
        self._put(note)
        self._record_candidate(path, "conflict" if conflicts else "add", candidate)
        for neighbour in links:
            self._link_back(neighbour, note, candidate)
        return path

    def _link_back(self, path: str, new: Note, candidate: MemoryCandidate) -> None:
        """Link a memory back to the new one that links to it, and say why in its context line."""
        note = self.notes[path]
        if note.trust == "person":
            return
        links = tuple(dict.fromkeys((new.path, *note.links)))[:MAX_LINKS]
        context = f"See also {new.path}: {' '.join(new.body.split())}"[:_MAX_CONTEXT]
        other_fields: dict[str, object] = {**note.other_fields, "context": context}
        description, reason = note.description, f"related to {new.path}"
        change = change_in_progress(candidate.text)
        if change is not None and mentions(note.body, change.old):
            what = f"{change.old} to {change.new}"
            since = candidate.time.date().isoformat()
            description = f"{note.name}; a change from {what} is in progress since {since}"
            reason = f"{new.path} changes it"
        self._put(replace(note, links=links, description=description, other_fields=other_fields))
        self._record_change(path, "link", reason, candidate.evidence)

    def _links(self, text: str, fact_stems: frozenset[str]) -> list[str]:
        """The memories that share a name with a fact, or several rare words."""
        names = {stem for name in names_in(text) for stem in stems(name)}
        count = max(1, len(self.notes))
        scores: defaultdict[str, float] = defaultdict(float)
        for stem in fact_stems:
            paths = self._by_stem.get(stem, set())
            for path in paths:
                if path in self.notes and not path.startswith(ARCHIVE):
                    is_name = stem in names and len(paths) <= max(MAX_LINKS, count // _COMMON)
                    scores[path] += _MIN_LINK if is_name else log(1 + count / len(paths))
        best = sorted(scores.items(), key=lambda item: (-item[1], item[0]))
        return [path for path, score in best[:MAX_LINKS] if score >= _MIN_LINK]

    def _free_path(self, candidate: MemoryCandidate) -> str:
        return self._path_for(candidate.type, candidate.title, candidate)

    def _put(self, note: Note) -> None:
        self.notes[note.path] = note
        self._index_stems(note.path, note)

    def _index_stems(self, path: str, note: Note) -> None:
        if not note.is_daily:
            for stem in StatementStems.of(f"{note.name} {note.body}").stems:
                self._by_stem[stem].add(path)

    def _record_candidate(self, path: str, action: EditAction, candidate: MemoryCandidate) -> None:
        reasons = {
            "add": "learned from a session",
            "update": "replaces an earlier statement",
            "merge": "adds detail",
            "conflict": "conflicts with another memory: a person should decide",
        }
        self._record_change(path, action, reasons.get(action, action), candidate.evidence)

    def _record_change(
        self, path: str, action: EditAction, reason: str, evidence: Iterable[MemoryEvidence]
    ) -> None:
        change = self._changes.setdefault(path, _Change(action))
        change.reasons.append(reason)
        change.evidence += evidence


def _relation(candidate: MemoryCandidate, new: StatementStems, note: Note) -> Relation | None:
    """How a new fact relates to a memory: the closest of its sentences decides."""
    if note.path.startswith(ARCHIVE):
        return None
    relations = {
        _statement_relation(candidate, new, StatementStems.of(part))
        for part in re.split(r"\n\s*\n|(?<=[.!?])\s+", note.body)
    }
    for relation in ("same", "replaced", "conflict", "merged"):
        if relation in relations:
            return _allowed(relation, note)
    return None


def _allowed(relation: Relation, note: Note) -> Relation:
    """A memory that a person wrote is not replaced or extended."""
    if note.trust != "person":
        return relation
    if relation == "replaced":
        return "conflict"
    return "related" if relation == "merged" else relation


def _statement_relation(
    candidate: MemoryCandidate, new: StatementStems, old: StatementStems
) -> Relation | None:
    shared, both = new.stems & old.stems, new.stems | old.stems
    if not shared:
        return None
    closeness = len(shared) / len(both)
    covered = len(shared) / min(len(new.stems), len(old.stems))
    if new.is_negated == old.is_negated and new.order[: len(old.order)] == old.order != new.order:
        return "replaced" if len(old.order) > 1 else None  # the same with a detail
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
    """Whether two statements differ only in the number, day or name at their end. A number
    with words after it is part of a name: room 1 is not room 2."""
    start = next(
        (at for at, pair in enumerate(zip(new, old, strict=False)) if pair[0] != pair[1]), 0
    )
    new_value, old_value = new[start:], old[start:]
    if not start or not new_value or not old_value:
        return False
    if max(len(new_value), len(old_value)) > _MAX_VALUE:
        return False
    values = (new_value, old_value)
    is_name = any(any(map(str.isdigit, value[0])) and len(value) > 1 for value in values)
    if is_name:
        return False
    is_same_kind = any(
        form.fullmatch(new_value[0]) and form.fullmatch(old_value[0]) for form in _KINDS.values()
    )
    is_change = candidate.is_correction or _REPLACING.search(candidate.text) is not None
    return is_change or (is_same_kind and len(new_value) == len(old_value) == 1)
