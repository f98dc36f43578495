"""What a session remembers by itself at the end of a run and before a compaction: facts that a
person stated, media, and the working state. Each write is a version that can be reverted. Facts are
found by rules; `model_learning.py` has what a model adds.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Sequence
from dataclasses import replace
from itertools import islice

from anyio import to_thread
from msgspec import structs

from mainspring.core.errors import InvalidInput, MemoryChanged
from mainspring.core.events import KnownPayload, MemoryWritten
from mainspring.core.sender import Sender
from mainspring.log.session_log import SessionLog
from mainspring.log.writer import Writer
from mainspring.runtime.memory.learning.consolidation import Consolidation
from mainspring.runtime.memory.learning.extraction import MemoryCandidate, extract_candidates
from mainspring.runtime.memory.learning.learnings_folder import promote, record_learnings
from mainspring.runtime.memory.learning.media_notes import media_notes, media_to_remember
from mainspring.runtime.memory.learning.memory_edits import MemoryEdit, apply_edits
from mainspring.runtime.memory.memory_folder import MemoryFolder
from mainspring.runtime.memory.memory_versions import Change, NoteVersion
from mainspring.runtime.memory.model_learning import finish_learning, learn_by_model
from mainspring.runtime.memory.note import INDEX_FILE, Note, Trust, note_path, parse_note
from mainspring.runtime.memory.proposals import proposal_of, propose
from mainspring.runtime.memory.search.memory_index import MemoryHit
from mainspring.runtime.memory.session_memory import TEAM, SessionMemory

_NEARBY = 20  # notes compared with a new fact; and the newest ones
_GOAL_CHARS = 200  # of the goal in the description of a saved working state


def learn(
    folders: dict[str, MemoryFolder],
    search: Callable[[str, int], Sequence[MemoryHit]],
    candidates: Sequence[MemoryCandidate],
    author: Sender,
) -> list[MemoryWritten]:
    """Consolidate facts with the existing memories; return the writes. Blocks.

    Facts about the person go to their own folder, if there is one.
    """
    writes: list[MemoryWritten] = []
    for scope, folder in folders.items():
        scope_candidates = [item for item in candidates if _scope(item, folders) == scope]
        if not scope_candidates:
            continue
        hits = {hit.note.path for item in scope_candidates for hit in search(item.text, _NEARBY)}
        is_open = any(item.value for item in scope_candidates)
        newest = _newest(folder) if is_open else []
        if any(item.type == "user" for item in scope_candidates):  # "I moved": few shared words
            hits |= {path for path in folder.paths() if path.startswith("user_")}
        texts = {path: folder.text(path) for path in sorted({*hits, *newest})}
        consolidation = Consolidation(texts, newest)
        for candidate in scope_candidates:
            consolidation.add(candidate)
        edits = consolidation.edits()
        applied = apply_edits(folder, edits, author=author, key=edit_key)
        trusts: dict[str, Trust] = {edit.path: edit.trust for edit in edits}
        writes += (item.written(scope, trusts.get(item.path)) for item in applied.versions)
    return writes


def _newest(folder: MemoryFolder) -> list[str]:
    """The memories that changed last: what a correction by a pronoun is about."""
    changed = dict.fromkeys(version.path for version in folder.history())
    present = folder.paths().keys() - {INDEX_FILE}
    return list(islice((path for path in changed if path in present), _NEARBY))


async def learn_from_run(memory: SessionMemory, log: SessionLog, writer: Writer) -> None:
    """Remember the facts and media of a run that has ended: by rules, then by a model if one is
    configured."""
    await _finish(memory, log, writer)
    if events := [*await learn_from_log(memory, log), *await _remember_media(memory, log)]:
        await writer.append(*events)
    await _ask_model(memory, log, writer)


async def _finish(memory: SessionMemory, log: SessionLog, writer: Writer) -> None:
    try:
        await finish_learning(memory, log, writer)
    except (OSError, sqlite3.Error, InvalidInput) as error:
        memory.warn(f"what a model has learned could not be remembered: {error}")


async def _ask_model(memory: SessionMemory, log: SessionLog, writer: Writer) -> None:
    if memory.learning_model is None:
        return
    try:
        await learn_by_model(memory, memory.learning_model, log, writer)
    except (OSError, sqlite3.Error, InvalidInput) as error:
        memory.warn(f"what a model has learned could not be remembered: {error}")


async def _remember_media(memory: SessionMemory, log: SessionLog) -> list[KnownPayload]:
    """Remember images and recordings that a person asked to remember, each once."""
    if memory.is_read_only or not memory.own_folders:
        return []
    scope, folder = next(iter(memory.own_folders.items()))
    if not (media := media_to_remember(await log.read(memory.session_id))):
        return []
    try:
        known_paths = {version.path for version in await to_thread.run_sync(folder.history)}
        new = [item for item in media if item.path not in known_paths]
        notes, events = await media_notes(log, new, memory.caption)
        for note in notes:
            change = Change(
                author=memory.author,
                reason="a person asked to remember it",
                session_id=memory.session_id,
                event_ids=note.events,
                source=note.trust,
            )
            version = await to_thread.run_sync(folder.save, note, change)
            events.append(version.written(memory.store_id(scope), note.trust))
    except (OSError, InvalidInput, MemoryChanged) as error:
        memory.warn(f"an image could not be remembered: {error}")
        return []
    return events


async def save_before_compaction(
    memory: SessionMemory, log: SessionLog, writer: Writer, goal: str, state: str
) -> list[MemoryWritten]:
    """Remember the facts so far, and the working state as the session's one episode. An unchanged
    state is not written again. A model that learns begins to read; the run does not wait for it."""
    writes = await learn_from_log(memory, log)
    if memory.background is not None and memory.learning_model is not None:
        memory.background.start_soon(_ask_model, memory, log, writer)
    if memory.is_read_only or not state or not memory.own_folders:
        return writes
    scope, folder = next(iter(memory.own_folders.items()))
    try:
        saved_version = await to_thread.run_sync(_save_state, memory, folder, goal, state)
    except (OSError, InvalidInput, MemoryChanged) as error:
        memory.warn(f"the working state could not be remembered: {error}")
        return writes
    if saved_version is None:
        return writes
    version, trust = saved_version
    return [*writes, version.written(memory.store_id(scope), trust)]


def _save_state(
    memory: SessionMemory, folder: MemoryFolder, goal: str, state: str
) -> tuple[NoteVersion, Trust] | None:
    path = note_path("episode", f"session {memory.session_id}")
    before = folder.text(path)
    if before and parse_note(path, before).trust == "person":
        return None  # a person has edited it
    trust: Trust = "foreign" if memory.has_read_foreign_text() else "agent"
    about = " ".join(goal.split())[:_GOAL_CHARS]
    note = replace(
        parse_note(path, before),
        name=f"Working state of {memory.session_id}",
        description=about,
        body="\n\n".join(filter(None, (about and f"Goal: {about}", state.partition("\n")[2]))),
        type="episode",
        trust=trust,
        session=memory.session_id,
    )
    change = Change(
        author=memory.author,
        reason="saved before a compaction",
        session_id=memory.session_id,
        source=trust,
    )
    return folder.save(note, change), trust


async def learn_from_log(memory: SessionMemory, log: SessionLog) -> list[MemoryWritten]:
    """Remember the facts of a session that are not remembered yet."""
    if memory.is_read_only or not memory.learns or not (folders := memory.own_folders):
        return []
    events = await log.read(memory.session_id)
    candidates = extract_candidates(events)
    known_versions = {
        event.payload.version for event in events if isinstance(event.payload, MemoryWritten)
    }
    if not candidates:
        return []
    try:
        candidates = await _record_observed(folders, log, candidates)
        writes = await to_thread.run_sync(learn, folders, memory.search, candidates, memory.author)
        await to_thread.run_sync(_propose_to_team, memory, candidates)
    except (OSError, sqlite3.Error, InvalidInput) as error:
        memory.warn(f"the facts of this session could not be remembered: {error}")
        return []
    return [item for item in writes if item.version not in known_versions]


def _propose_to_team(memory: SessionMemory, candidates: Sequence[MemoryCandidate]) -> None:
    """Propose procedures that three sessions have seen; a person must accept them."""
    team = memory.folders.get(TEAM)
    if team is None:
        return
    for item in candidates:
        if item.type != "procedure":
            continue
        note = Note(
            path=note_path(item.type, item.title),
            name=item.title,
            description=item.description,
            type=item.type,
            body=item.text,
            trust="foreign" if memory.has_read_foreign_text() else "agent",
        )
        reason = f"{len(item.evidence)} sessions have seen it"
        proposal = proposal_of(note, reason=reason, by=memory.author.id, time=memory.clock())
        propose(team, structs.replace(proposal, evidence=item.evidence))


async def _record_observed(
    folders: dict[str, MemoryFolder], log: SessionLog, candidates: list[MemoryCandidate]
) -> list[MemoryCandidate]:
    """Return the facts to remember now: what a person stated, and what three sessions have
    observed. Other observations are only recorded in `.learnings`."""
    if "agent" not in folders or folders["agent"].is_encrypted:  # `.learnings` is in the clear
        return [item for item in candidates if item.type != "procedure"]
    agent_folder = folders["agent"].root.parent
    await to_thread.run_sync(record_learnings, agent_folder, candidates)
    observed = [item for item in candidates if item.type == "procedure"]
    stated = [item for item in candidates if item.type != "procedure"]
    return [*stated, *await promote(log, agent_folder, observed)]


def edit_key(edit: MemoryEdit) -> str:
    """Identify an edit by its action and evidence: a repeat after a crash is the same edit."""
    return " ".join((edit.action, *(item.event_id for item in edit.evidence)))


def _scope(candidate: MemoryCandidate, folders: dict[str, MemoryFolder]) -> str:
    scope = "user" if candidate.type == "user" else "agent"
    return scope if scope in folders else next(iter(folders))
