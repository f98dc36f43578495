"""Memories that are proposed to another agent, or to a team. They are in `.proposals/` of the
folder that would get them: no search finds them and no session is shown them, until a person
accepts one.

Anybody who can write that folder may have written them, so that nothing in them is trusted but
their text, as the person has read it: a proposal is known by the hash of what it says.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import suppress
from datetime import datetime
from typing import Literal

import msgspec
from msgspec import Struct

from mainspring.core.errors import InvalidInput, MemoryChanged, NotFound
from mainspring.core.sender import Sender
from mainspring.runtime.memory.extraction import MemoryEvidence
from mainspring.runtime.memory.memory_edits import finish_edit, version_id_of
from mainspring.runtime.memory.memory_files import MemoryFiles
from mainspring.runtime.memory.memory_folder import MemoryFolder
from mainspring.runtime.memory.memory_versions import Change, MemoryVersion, locked
from mainspring.runtime.memory.note import (
    INDEX_FILE,
    MAX_BYTES,
    Note,
    Trust,
    check_note_path,
    content_hash,
    parse_note,
    render_note,
)

FOLDER = ".proposals"
_DECISIONS = f"{FOLDER}/decisions.jsonl"
_MAX_DECISION_BYTES = 10_000_000
MAX_PROPOSALS = 100
_ID_LENGTH = 12
"""What people write of an id, at least."""


class Proposal(Struct, frozen=True, kw_only=True, omit_defaults=True):
    path: str
    """Where it would be written."""
    text: str
    trust: Trust
    """As its writer could vouch for it."""
    reason: str
    proposed_by: str
    time: datetime
    evidence: tuple[MemoryEvidence, ...] = ()

    @property
    def id(self) -> str:
        """The hash of what would be remembered."""
        return content_hash("\0".join((self.path, self.trust, self.text)).encode())


class Decision(Struct, frozen=True, kw_only=True):
    id: str
    decision: Literal["accepted", "rejected"]
    by: str
    time: datetime


_PROPOSAL = msgspec.json.Decoder(Proposal)
_DECISION = msgspec.json.Decoder(Decision)


def proposal_of(note: Note, *, reason: str, by: str, time: datetime) -> Proposal:
    """Of a memory, to others: what refers to the folder it is from is left out."""
    plain = _without_references(note, note.trust)
    evidence = tuple(MemoryEvidence(session_id=note.session, event_id=item) for item in note.events)
    return Proposal(
        path=note.path,
        text=render_note(plain),
        trust=plain.trust,
        reason=reason,
        proposed_by=by,
        time=time,
        evidence=evidence,
    )


def propose(folder: MemoryFolder, proposal: Proposal) -> bool:
    """Put it to the people of a folder; False if it is there, or was decided, or is known. Blocks.

    Raises: InvalidInput.
    """
    _check(proposal)
    if (why := folder.refuse(proposal.text)) is not None:
        raise InvalidInput(f"{proposal.path} was not proposed: {why}")
    if parse_note(proposal.path, folder.text(proposal.path)).body == _note(proposal).body:
        return False
    with folder.open_files() as files, locked(files):
        waiting = dict(_waiting(files))
        decided = {item.id for item in _decisions(files)}
        if proposal.id in decided or any(item.id == proposal.id for item in waiting.values()):
            return False
        if len(waiting) >= MAX_PROPOSALS:
            raise InvalidInput(
                f"{folder.root} has {MAX_PROPOSALS} proposals: accept or reject some first"
            )
        files.write(f"{FOLDER}/{proposal.id}.json", msgspec.json.encode(proposal))
    return True


def proposals(folder: MemoryFolder) -> list[Proposal]:
    """Those that nobody has decided on, the oldest first. Blocks."""
    if not folder.root.is_dir():
        return []
    with folder.open_files() as files:
        decided = {item.id for item in _decisions(files)}
        by_id = {item.id: item for _, item in _waiting(files) if item.id not in decided}
    return sorted(by_id.values(), key=lambda item: (item.time, item.id))


def accept(
    folder: MemoryFolder, proposal: Proposal, person: Sender, time: datetime, *, replace: bool
) -> MemoryVersion:
    """Make it a memory, with no more trust than its source. After a crash, do it again. Blocks.

    Raises: InvalidInput; MemoryChanged: there is another memory of that name.
    """
    _check(proposal)
    version_id = version_id_of(proposal.id, proposal.path)
    change = Change(
        author=person,
        reason=f"proposed by {proposal.proposed_by}: {proposal.reason}",
        session_id=next((item.session_id for item in proposal.evidence), ""),
        event_ids=tuple(item.event_id for item in proposal.evidence),
        version_id=version_id,
        source=_trust_of_proposal(proposal.trust),
    )
    if earlier := folder.find_versions(version_id):
        version = earlier[0]
        finish_edit(folder, version, change)
    else:
        before = folder.text(proposal.path)
        if before and not replace:
            raise MemoryChanged(
                f"there is a memory {proposal.path}: give --replace to write this in its place"
            )
        expected = content_hash(before.encode()) if before else ""
        version = folder.save(_note(proposal), change, expected=expected)
    _decide(folder, Decision(id=proposal.id, decision="accepted", by=person.id, time=time))
    return version


def reject(folder: MemoryFolder, proposal: Proposal, person: Sender, time: datetime) -> None:
    """It is not proposed again. Blocks."""
    _decide(folder, Decision(id=proposal.id, decision="rejected", by=person.id, time=time))


def find_proposal(folder: MemoryFolder, id_part: str) -> Proposal | None:
    """By the beginning of its id.

    Raises: InvalidInput: too short, or of several.
    """
    if len(id_part) < _ID_LENGTH:
        raise InvalidInput(f"give at least {_ID_LENGTH} characters of the id of a proposal")
    matches = [item for item in proposals(folder) if item.id.startswith(id_part)]
    if len(matches) > 1:
        raise InvalidInput(f"{id_part} stands for {len(matches)} proposals: give more of it")
    return matches[0] if matches else None


def _decide(folder: MemoryFolder, decision: Decision) -> None:
    with folder.open_files() as files, locked(files):
        if decision.id not in {item.id for item in _decisions(files)}:
            files.append(_DECISIONS, msgspec.json.encode(decision))
        for name, waiting in [*_waiting(files)]:
            if waiting.id == decision.id:
                files.remove(f"{FOLDER}/{name}")


def _waiting(files: MemoryFiles) -> Iterator[tuple[str, Proposal]]:
    """By the name of its file. What is no valid proposal is none."""
    try:
        folder = os.open(FOLDER, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW, dir_fd=files.root)
    except FileNotFoundError:
        return
    except OSError as error:
        raise InvalidInput(f"{FOLDER} is not a folder: {error}") from error
    try:
        names = sorted(os.listdir(folder))
    finally:
        os.close(folder)
    for name in [name for name in names if name.endswith(".json")][: 2 * MAX_PROPOSALS]:
        with suppress(InvalidInput, NotFound, msgspec.MsgspecError, OSError):
            content = files.read(f"{FOLDER}/{name}", max_bytes=2 * MAX_BYTES) or b""
            proposal = _PROPOSAL.decode(content)
            _check(proposal)
            yield name, proposal


def _decisions(files: MemoryFiles) -> list[Decision]:
    decisions: list[Decision] = []
    for line in files.lines(_DECISIONS, max_bytes=_MAX_DECISION_BYTES):
        with suppress(msgspec.MsgspecError):
            decisions.append(_DECISION.decode(line))
    return decisions


def _check(proposal: Proposal) -> None:
    """Raises: InvalidInput."""
    check_note_path(proposal.path)
    note = parse_note(proposal.path, proposal.text)
    if proposal.path == INDEX_FILE or "/" in proposal.path or note.is_daily:
        raise InvalidInput(f"{proposal.path} cannot be proposed: only a memory of its own can")
    if len(proposal.text.encode()) > MAX_BYTES:
        raise InvalidInput(f"{proposal.path}: a memory has {MAX_BYTES:,} bytes at most")


def _note(proposal: Proposal) -> Note:
    return _without_references(parse_note(proposal.path, proposal.text), proposal.trust)


def _without_references(note: Note, trust: Trust) -> Note:
    """Nothing that removes other memories or refers to them."""
    return Note(
        path=note.path,
        name=" ".join(note.name.split()),
        description=note.description,
        type=note.type,
        body=note.body,
        trust=_trust_of_proposal(trust),
    )


def _trust_of_proposal(trust: Trust) -> Trust:
    """A file cannot say that a person wrote it: they did so elsewhere, if they did."""
    return "foreign" if trust == "foreign" else "agent"
