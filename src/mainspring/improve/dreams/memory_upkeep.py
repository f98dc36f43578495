"""Archives memories that no longer help: copies, expired, unused or useless ones, old daily logs.
Nothing is deleted, and memories that a person wrote stay. Pure.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import date, datetime

from mainspring.retrieval.stems import stems
from mainspring.runtime.memory.learning.consolidation import ARCHIVE, Consolidation
from mainspring.runtime.memory.note import Note
from mainspring.runtime.memory.recall import HALF_LIVES, UtilityValues
from mainspring.runtime.memory.search.memory_index import note_time
from mainspring.runtime.utility.ranking import reliability

_EXPIRES = "valid_to"
"""The field with the last day on which a memory is true."""
_USELESS, _MIN_CREDITS = 0.2, 4  # the utility (at first 0.5), believed after so many credits
_DAILY_DAYS = 30  # without use, after which a day's notes are archived
_HALF_LIVES = 4
"""A memory that was not used for this many half-lives is archived."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Upkeep:
    """The time, and the utility of the scope's memories."""

    now: datetime
    scope: str
    utility: UtilityValues = field(default_factory=UtilityValues)


def archive_outdated(consolidation: Consolidation, upkeep: Upkeep) -> None:
    """Archive memories that no longer help."""
    trust = reliability(upkeep.utility.values.values()).of_all
    paths_by_words: dict[tuple[str, ...], str] = {}
    notes = sorted(consolidation.notes.values(), key=lambda note: (note.updated, note.path))
    for note in reversed(notes):
        if note.trust == "person" or note.path.startswith(ARCHIVE):
            paths_by_words.setdefault(_words(note), note.path)
            continue
        reason = (
            _expiry_reason(note, upkeep)
            or _uselessness_reason(note, upkeep, trust)
            or _disuse_reason(note, upkeep)
        )
        if reason is None and (words := _words(note)) and not note.is_daily:
            copy = paths_by_words.setdefault(words, note.path)
            reason = f"the same as {copy}" if copy != note.path else None
        if reason is not None:
            consolidation.archive(note.path, reason)


def _expiry_reason(note: Note, upkeep: Upkeep) -> str | None:
    last = _day(note.other_fields.get(_EXPIRES))
    return f"true until {last}" if last is not None and last < upkeep.now.date() else None


def _uselessness_reason(note: Note, upkeep: Upkeep, trust: float) -> str | None:
    value = upkeep.utility.values.get(f"{upkeep.scope}/{note.path}")
    if value is None or not trust or value.credits < _MIN_CREDITS or value.value > _USELESS:
        return None
    return f"work that used it failed: value {value.value:.2f} after {value.credits} credits"


def _disuse_reason(note: Note, upkeep: Upkeep) -> str | None:
    last_use = upkeep.utility.last_uses.get(f"{upkeep.scope}/{note.path}")
    times = [time for time in (note_time(note), last_use) if time is not None]
    if not times:
        return None
    limit = _DAILY_DAYS if note.is_daily else _HALF_LIVES * HALF_LIVES[note.type]
    days = (upkeep.now - max(times)).days
    return f"not used for {days} days" if days > limit else None


def _words(note: Note) -> tuple[str, ...]:
    return tuple(stems(note.body))


def _day(value: object) -> date | None:
    if isinstance(value, date):
        return value
    try:
        return date.fromisoformat(str(value)) if value is not None else None
    except ValueError:
        return None
