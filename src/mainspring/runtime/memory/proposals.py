"""Memories that are proposed to another agent or to a team. They are stored in `.proposals/` of the
target folder. No search finds one and no session reads it until a person accepts it.

Anybody who can write to that folder may have written them, so nothing in them is trusted except
the text that the person has read: the hash of that text identifies a proposal.
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
from mainspring.runtime.memory.learning.extraction import MemoryEvidence
from mainspring.runtime.memory.learning.memory_edits import finish_edit, version_id_of
from mainspring.runtime.memory.memory_files import MemoryFiles
from mainspring.runtime.memory.memory_folder import MemoryFolder
from mainspring.runtime.memory.memory_versions import Change, NoteVersion, locked
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
_MAX_DECISION_BYTES = 10_000_000  # of the file of decisions
MAX_PROPOSALS = 100  # that wait; more are not reviewed by anybody
_ID_LENGTH = 12
"""The fewest characters of an id that a person must type."""


class Proposal(Struct, frozen=True, kw_only=True, omit_defaults=True):
    path: str
    """Where it would be written."""
    text: str
    trust: Trust
    """The trust of its text, as its writer claims it."""
    reason: str
    proposed_by: str
    time: datetime
    evidence: tuple[MemoryEvidence, ...] = ()

    @property
    def id(self) -> str:
        """The hash of the proposed memory."""
        return content_hash("\0".join((self.path, self.trust, self.text)).encode())


class ProposalDecision(Struct, frozen=True, kw_only=True):
    id: str
    decision: Literal["accepted", "rejected"]
    by: str
    time: datetime


_PROPOSAL = msgspec.json.Decoder(Proposal)
_DECISION = msgspec.json.Decoder(ProposalDecision)


def proposal_of(note: Note, *, reason: str, by: str, time: datetime) -> Proposal:
    """Make a proposal of a memory, without its references to its own folder."""
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
    """Add a proposal to a folder; False if it is present, was decided, or is a memory. Blocks.

    Raises: InvalidInput.
    """
    _check(proposal)
    if (why := folder.refuse(proposal.text)) is not None:
        raise InvalidInput(f"{proposal.path} was not proposed: {why}")
    if parse_note(proposal.path, folder.text(proposal.path)).body == _note(proposal).body:
        return False
    with folder.open_files() as files, locked(files):
        stored = dict(_stored(files))
        decided_ids = {item.id for item in _decisions(files)}
        stored_ids = {item.id for item in stored.values()}
        if proposal.id in decided_ids | stored_ids:
            return False
        if len(stored) >= MAX_PROPOSALS:
            raise InvalidInput(
                f"{folder.root} has {MAX_PROPOSALS} proposals: accept or reject some first"
            )
        files.write(f"{FOLDER}/{proposal.id}.json", msgspec.json.encode(proposal))
    return True


def proposals(folder: MemoryFolder) -> list[Proposal]:
    """The undecided proposals, oldest first. Blocks."""
    if not folder.root.is_dir():
        return []
    with folder.open_files() as files:
        decided_ids = {item.id for item in _decisions(files)}
        by_id = {item.id: item for _, item in _stored(files) if item.id not in decided_ids}
    return sorted(by_id.values(), key=lambda item: (item.time, item.id))


def accept(
    folder: MemoryFolder, proposal: Proposal, person: Sender, time: datetime, *, replace: bool
) -> NoteVersion:
    """Make it a memory, with no more trust than its source. Repeat it after a crash. Blocks.

    Raises: InvalidInput; MemoryChanged: another memory has that name.
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
            raise MemoryChanged(f"the memory {proposal.path} exists: add --replace to overwrite it")
        expected = content_hash(before.encode()) if before else ""
        version = folder.save(_note(proposal), change, expected=expected)
    _decide(folder, ProposalDecision(id=proposal.id, decision="accepted", by=person.id, time=time))
    return version


def reject(folder: MemoryFolder, proposal: Proposal, person: Sender, time: datetime) -> None:
    """Reject a proposal, so that it is not made again. Blocks."""
    _decide(folder, ProposalDecision(id=proposal.id, decision="rejected", by=person.id, time=time))


def find_proposal(folder: MemoryFolder, id_part: str) -> Proposal | None:
    """Find a proposal by the beginning of its id.

    Raises: InvalidInput: the beginning is too short or matches several.
    """
    if len(id_part) < _ID_LENGTH:
        raise InvalidInput(f"enter at least {_ID_LENGTH} characters of a proposal's id")
    matches = [item for item in proposals(folder) if item.id.startswith(id_part)]
    if len(matches) > 1:
        raise InvalidInput(f"{id_part} matches {len(matches)} proposals: enter more characters")
    return matches[0] if matches else None


def _decide(folder: MemoryFolder, decision: ProposalDecision) -> None:
    with folder.open_files() as files, locked(files):
        if decision.id not in {item.id for item in _decisions(files)}:
            files.append(_DECISIONS, msgspec.json.encode(decision))
        for name, proposal in [*_stored(files)]:
            if proposal.id == decision.id:
                files.remove(f"{FOLDER}/{name}")


def _stored(files: MemoryFiles) -> Iterator[tuple[str, Proposal]]:
    """Yield each stored proposal with its file name; skip invalid files. A crash may have left one
    that was decided."""
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
        with suppress(InvalidInput, NotFound, msgspec.MsgspecError, OSError, RecursionError):
            content = files.read(f"{FOLDER}/{name}", max_bytes=2 * MAX_BYTES) or b""
            proposal = _PROPOSAL.decode(content)
            _check(proposal)
            yield name, proposal


def _decisions(files: MemoryFiles) -> list[ProposalDecision]:
    decisions: list[ProposalDecision] = []
    for line in files.lines(_DECISIONS, max_bytes=_MAX_DECISION_BYTES):
        with suppress(msgspec.MsgspecError, RecursionError):
            decisions.append(_DECISION.decode(line))
    return decisions


def _check(proposal: Proposal) -> None:
    """Raises: InvalidInput."""
    check_note_path(proposal.path)
    note = parse_note(proposal.path, proposal.text)
    if proposal.path == INDEX_FILE or "/" in proposal.path or note.is_daily:
        raise InvalidInput(
            f"{proposal.path} cannot be proposed: it is an index, a log or in a folder"
        )
    if len(proposal.text.encode()) > MAX_BYTES:
        raise InvalidInput(f"{proposal.path}: a memory may have at most {MAX_BYTES:,} bytes")


def _note(proposal: Proposal) -> Note:
    return _without_references(parse_note(proposal.path, proposal.text), proposal.trust)


def _without_references(note: Note, trust: Trust) -> Note:
    """Return the note without fields that remove other memories or refer to them."""
    return Note(
        path=note.path,
        name=" ".join(note.name.split()),
        description=note.description,
        type=note.type,
        body=note.body,
        trust=_trust_of_proposal(trust),
    )


def _trust_of_proposal(trust: Trust) -> Trust:
    """A proposal's file cannot prove that a person wrote it."""
    return "foreign" if trust == "foreign" else "agent"
