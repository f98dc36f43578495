"""Finds the notes that a person's statement corrects, and what they say afterwards. It reads
sentences by the rules of `statements.py`; `consolidation.py` applies the changes."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from difflib import SequenceMatcher

from mainspring.retrieval.stems import stems, words
from mainspring.runtime.memory.learning.extraction import MemoryCandidate
from mainspring.runtime.memory.learning.statements import (
    Frame,
    ValueChange,
    are_same_value,
    can_replace,
    change_in_progress,
    exchange_of,
    frame_of,
    says_also,
    says_no_longer,
    value_in,
    value_kind,
)
from mainspring.runtime.memory.note import Note

_ENDED = frozenset(
    ("longer", "anymor", "ani", "more", "stop", "quit", "drop", "retir", "remov", "use")
)
"""Stems of words that say that something has ended, and `use`, which many facts have."""
_MIN_LIKENESS = 0.5
"""The least likeness of two values of which one corrects the other: half of their letters."""

_NEGATIONS = frozenset(("not", "no", "never", "don", "dont", "without", "stop", "avoid", "nobody"))
_FREQUENCIES = frozenset(("alway", "never"))
_CHANGES = frozenset(("now", "instead", "longer", "anymor"))


@dataclass(frozen=True, slots=True)
class StatementStems:
    order: tuple[str, ...]
    is_negated: bool

    @property
    def stems(self) -> frozenset[str]:
        return frozenset(self.order)

    @classmethod
    def of(cls, text: str) -> StatementStems:
        plain = words(text)
        negations = sum(word in _NEGATIONS for word in plain)
        ignored = _FREQUENCIES | _NEGATIONS | _CHANGES
        return cls(tuple(stem for stem in stems(text) if stem not in ignored), negations % 2 == 1)


@dataclass(frozen=True, slots=True)
class NoteChange:
    """The new text of a note that a fact corrects."""

    note: Note
    body: str
    old: str
    """What is no longer so."""
    new: str


def changed_notes(candidate: MemoryCandidate, notes: Sequence[Note]) -> list[NoteChange]:
    """The notes that a fact corrects; several only if a thing has another name now."""
    if candidate.value:
        return _corrected_values(candidate.value, notes)
    exchange = exchange_of(candidate.text)
    if exchange:
        finished = list(_finished_changes(candidate.text, exchange, notes))
        others = [note for note in notes if note not in [change.note for change in finished]]
        changes = list(_exchanges(candidate.text, exchange, others))
        if changes or finished:
            return [*(changes if exchange.is_rename else changes[:1]), *finished]
    if says_also(candidate.text):
        return []
    frame = frame_of(candidate.text)
    if frame and (changes := list(_new_values(candidate.text, frame, notes))):
        return changes[:1]
    return list(_ended(candidate.text, notes))[:1] if says_no_longer(candidate.text) else []


def _exchanges(text: str, exchange: ValueChange, notes: Sequence[Note]) -> Iterator[NoteChange]:
    for note in notes:
        if (body := _exchanged(note.body, exchange)) is not None:
            yield NoteChange(note, f"{body}\n\n{text}", exchange.old, exchange.new)


def _finished_changes(
    text: str, exchange: ValueChange, notes: Sequence[Note]
) -> Iterator[NoteChange]:
    """The notes that say that this change is in progress."""
    for note in notes:
        for sentence in sentences(note.body):
            if change_in_progress(sentence) == exchange:
                yield NoteChange(note, note.body.replace(sentence, text), sentence, text)


def _new_values(text: str, frame: Frame, notes: Sequence[Note]) -> Iterator[NoteChange]:
    for note in notes:
        for sentence in sentences(note.body):
            old = frame_of(sentence)
            if old is not None and can_replace(frame, old) and not says_also(sentence):
                yield NoteChange(note, note.body.replace(sentence, text), old.value, frame.value)


def _ended(text: str, notes: Sequence[Note]) -> Iterator[NoteChange]:
    gone = StatementStems.of(text).stems - _ENDED
    for note in notes:
        for sentence in sentences(note.body):
            is_about = gone and gone <= StatementStems.of(sentence).stems
            if is_about and not says_no_longer(sentence):
                yield NoteChange(note, note.body.replace(sentence, text), sentence, text)


def is_stated(candidate: MemoryCandidate, notes: Sequence[Note]) -> bool:
    """Whether a note states the same in other words: the same value of the same subject."""
    frame = frame_of(candidate.text)
    known = (frame_of(sentence) for note in notes for sentence in sentences(note.body))
    return frame is not None and any(
        old is not None and old.key == frame.key and are_same_value(old, frame) for old in known
    )


def can_disagree(candidate: MemoryCandidate, note: Note) -> bool:
    """Whether two statements that share most words can disagree: not if they name other subjects,
    or if one says that it is true beside the other."""
    if says_also(candidate.text) or says_also(note.body):
        return False
    frames = frame_of(candidate.text), frame_of(first_sentence(note.body))
    return None in frames


def _corrected_values(value: str, notes: Sequence[Note]) -> list[NoteChange]:
    """The first of the notes, the one that changed last, with a value like the new one."""
    kind = value_kind(value)
    new = value_in(value, kind) if kind else None
    if kind is None or new is None:
        return []
    for note in notes:
        old = value_in(note.body, kind)
        if old is None or old == new or value_kind(note.body) != kind:
            continue
        if SequenceMatcher(None, old, new, autojunk=False).ratio() >= _MIN_LIKENESS:
            return [NoteChange(note, note.body.replace(old, new), old, new)]
    return []


def _exchanged(body: str, exchange: ValueChange) -> str | None:
    """The text with the new name in the place of the old one; `None` if it does not name it."""
    name = re.compile(rf"(?<![\w-]){re.escape(exchange.old)}(?![\w-])", re.IGNORECASE)
    return name.sub(lambda _: exchange.new, body) if name.search(body) else None


def sentences(body: str) -> list[str]:
    return [part for part in re.split(r"\n\s*\n|(?<=[.!?])\s+", body) if part.strip()]


def first_sentence(body: str) -> str:
    return next(iter(sentences(body)), body)


def mentions(text: str, value: str) -> bool:
    """Whether a name, description or path has a word of the value that is no longer so."""
    return bool(set(stems(text.replace("_", " "))) & set(stems(value)))
