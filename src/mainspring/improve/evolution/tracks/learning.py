"""What an agent has learned while it worked, as proposals for the gate: ways of working that
several sessions share become skills, corrections become rules of the playbook, and `NEED_NEW_SKILL`
becomes a draft of a skill. Nothing is used before the gate, or a person, has let it pass."""

from __future__ import annotations

import re
from collections.abc import AsyncGenerator, Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import msgspec
from msgspec import Struct
from msgspec.structs import replace

from mainspring.core import events
from mainspring.core.content import plain_text
from mainspring.core.errors import SessionNotFound
from mainspring.files.atomic_file import write_atomic
from mainspring.improve.evolution.candidate import Candidate, text_hash
from mainspring.improve.evolution.session_facts import NEEDS_SKILL, is_outage
from mainspring.improve.evolution.tracks.folder_texts import PLAYBOOK
from mainspring.improve.evolution.tracks.playbook import add_bullet
from mainspring.improve.session_lessons import MIN_SIGHTINGS, LessonSession, lessons
from mainspring.log.session_log import SessionLog
from mainspring.log.store import all_sessions
from mainspring.runtime.memory.learning.extraction import MemoryCandidate, extract_candidates
from mainspring.runtime.memory.memory_mode import MEMORY_KEY, read_memory_mode

MAX_SESSIONS = 500  # the newest ones that lessons are looked for in
_EVIDENCE_FILE = "evidence.json"
_MAX_NAME = 40  # characters of a proposed skill


class Draft(Struct, frozen=True, kw_only=True):
    """A change that sessions suggest."""

    name: str
    kind: str
    """`skill` or `playbook`."""
    reason: str
    path: str
    """The file that it adds or changes."""
    text: str
    """Its whole content."""
    evidence: tuple[str, ...]
    """The sessions that show it."""
    is_proposal: bool
    """Seen in several sessions; seen once it is only a draft."""
    refusal: str | None = None
    """Why it stays in quarantine: what the static checks found."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Learning:
    log: SessionLog
    agent_name: str
    current: Candidate
    check: Callable[[Candidate, Candidate], str | None]
    place: Path
    """The folder of the proposals."""

    async def drafts(self) -> list[Draft]:
        """Read the agent's real sessions. Sessions in which something outside the agent was down
        are left out: what fails then is no lesson, and if it is one, later sessions show it."""
        records = [record async for record in self._records()]
        found = [*self._skills(records), *self._rules(records), *self._needed(records)]
        return [self._checked(draft) for draft in found]

    def write(self, draft: Draft) -> Path:
        """The folder of a draft, for `mainspring evolve propose`. Blocks."""
        folder = self.place / draft.name
        if draft.refusal is None:
            write_atomic(folder / draft.path, draft.text.encode())
        write_atomic(folder / _EVIDENCE_FILE, msgspec.json.encode(draft))
        return folder

    async def _records(self) -> AsyncGenerator[LessonSession, None]:
        count = 0
        async for row in all_sessions(self.log.store):
            count += 1
            if count > MAX_SESSIONS:
                return
            try:
                log = await self.log.read(row.id)
            except SessionNotFound:
                continue
            record = LessonSession(row.id, log)
            if record.is_learned_from and self._is_own(record) and not is_outage(log):
                yield record

    def _is_own(self, record: LessonSession) -> bool:
        for event in record.log:
            if isinstance(event.payload, events.SessionCreated):
                created = event.payload
                return created.agent_name == self.agent_name and remembers(created)
        return False

    def _skills(self, records: Sequence[LessonSession]) -> Iterator[Draft]:
        for lesson in lessons(records):
            if lesson.type == "procedure" and lesson.name:
                yield _skill_of(lesson)

    def _rules(self, records: Sequence[LessonSession]) -> Iterator[Draft]:
        """Corrections by people, and failures that recur."""
        sightings: dict[str, list[MemoryCandidate]] = {}
        for record in records:
            for item in {item.text: item for item in extract_candidates(record.log)}.values():
                if item.is_correction or (item.type == "procedure" and not item.name):
                    sightings.setdefault(item.text, []).append(item)
        playbook = self.current.texts.get(PLAYBOOK, "")
        for text, items in sightings.items():
            sessions = _sessions(items)
            yield Draft(
                name=_slug(text),
                kind="playbook",
                reason=f"{len(sessions)} sessions: {text}",
                path=PLAYBOOK,
                text=add_bullet(playbook, text),
                evidence=sessions,
                is_proposal=len(sessions) >= MIN_SIGHTINGS,
            )

    def _needed(self, records: Sequence[LessonSession]) -> Iterator[Draft]:
        needed: dict[str, list[str]] = {}
        for record in records:
            for event in record.log:
                if isinstance(event.payload, events.AgentMessage):
                    for match in NEEDS_SKILL.finditer(plain_text(event.payload.content)):
                        needed.setdefault(" ".join(match[1].split()), []).append(record.session_id)
        for what, sessions in needed.items():
            name = _slug(what)
            yield Draft(
                name=name,
                kind="skill",
                reason=f"the agent needed it: {what}",
                path=f"skills/{name}/SKILL.md",
                text=_skill_text(name, what, f"Not written yet: {what}"),
                evidence=tuple(dict.fromkeys(sessions)),
                is_proposal=False,
            )

    def _checked(self, draft: Draft) -> Draft:
        candidate = self.current.with_text(draft.path, draft.text)
        return replace(draft, refusal=self.check(self.current, candidate))


def remembers(created: events.SessionCreated) -> bool:
    """Whether a session may be learned from: its memory was not switched off."""
    return read_memory_mode((created.metadata or {}).get(MEMORY_KEY)) != "off"


def _skill_of(lesson: MemoryCandidate) -> Draft:
    name, sessions = _slug(lesson.name), _sessions([lesson])
    return Draft(
        name=name,
        kind="skill",
        reason=f"{len(sessions)} sessions took the same steps by hand",
        path=f"skills/{name}/SKILL.md",
        text=_skill_text(name, lesson.description, lesson.text),
        evidence=sessions,
        is_proposal=len(sessions) >= MIN_SIGHTINGS,
    )


def _skill_text(name: str, description: str, text: str) -> str:
    shown = msgspec.json.encode(description).decode()
    return f"---\nname: {name}\ndescription: {shown}\n---\n{text}\n"


def _sessions(items: Iterable[MemoryCandidate]) -> tuple[str, ...]:
    return tuple(dict.fromkeys(piece.session_id for item in items for piece in item.evidence))


def _slug(text: str) -> str:
    words = "-".join(re.findall(r"[a-z0-9]+", text.casefold()))[:_MAX_NAME].strip("-")
    return f"{words}-{text_hash(text)[:6]}" if words else text_hash(text)[:12]
