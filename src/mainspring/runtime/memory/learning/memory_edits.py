"""Proposed changes of memories: each has a file, its new text, a reason and evidence. They can be
shown as a diff, and are applied at most once.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterable
from typing import Literal, TypeAlias

from msgspec import Struct

from mainspring.core.errors import InvalidInput, MemoryChanged, NotFound
from mainspring.core.sender import Sender
from mainspring.runtime.memory.learning.extraction import MemoryEvidence
from mainspring.runtime.memory.memory_folder import MemoryFolder
from mainspring.runtime.memory.memory_versions import Change, NoteVersion
from mainspring.runtime.memory.note import Trust, content_hash, parse_note, text_diff

EditAction: TypeAlias = Literal[
    "add", "update", "merge", "link", "conflict", "archive", "promote", "forget"
]


class MemoryEdit(Struct, frozen=True, kw_only=True, omit_defaults=True):
    path: str
    action: EditAction
    reason: str
    before: str = ""
    """Hash of the content that it replaces; empty if the file is new."""
    text: str | None = None
    """The new content; `None` removes the file."""
    evidence: tuple[MemoryEvidence, ...] = ()
    trust: Trust = "agent"
    """The trust that its evidence allows the new text."""


class RefusedEdit(Struct, frozen=True, kw_only=True):
    path: str
    problem: str


class AppliedEdits(Struct, frozen=True, kw_only=True):
    versions: tuple[NoteVersion, ...]
    refused: tuple[RefusedEdit, ...] = ()


def edit_diff(edit: MemoryEdit, before: str) -> str:
    """Show an edit in the format of `diff -u`, below its reason and evidence."""
    lines = [f"# {edit.action} {edit.path}: {edit.reason}"]
    lines += [
        f"#   {item.session_id} {item.event_id}: {' '.join(item.quote.split())[:160]}"
        for item in edit.evidence
    ]
    return "\n".join([*lines, *filter(None, [text_diff(edit.path, before, edit.text or "")])])


def version_id_of(key: str, path: str) -> str:
    """The same edit always makes the same version."""
    digest = hashlib.sha256("\0".join((key, path)).encode()).hexdigest()
    return f"memver_{digest[:24]}"


def apply_edits(
    folder: MemoryFolder,
    edits: Iterable[MemoryEdit],
    *,
    author: Sender,
    key: Callable[[MemoryEdit], str],
) -> AppliedEdits:
    """Apply the edits that were not applied before. A file that has changed since its edit was
    proposed stays as it is and is reported. `key` identifies an edit. Blocks."""
    memory_versions = {version.id: version for version in folder.history()}
    versions: list[NoteVersion] = []
    refused_edits: list[RefusedEdit] = []
    for edit in edits:
        version_id = version_id_of(key(edit), edit.path)
        change = Change(
            author=author,
            reason=edit.reason,
            session_id=next((item.session_id for item in edit.evidence), ""),
            event_ids=tuple(item.event_id for item in edit.evidence),
            version_id=version_id,
            source=edit.trust if edit.trust == "foreign" else None,
        )
        try:
            if (version := memory_versions.get(version_id)) is not None:
                finish_edit(folder, version, change)
            else:
                version = _apply(folder, edit, change)
            versions.append(version)
        except (InvalidInput, MemoryChanged, NotFound) as error:
            refused_edits.append(RefusedEdit(path=edit.path, problem=str(error)))
    return AppliedEdits(versions=tuple(versions), refused=tuple(refused_edits))


def _apply(folder: MemoryFolder, edit: MemoryEdit, change: Change) -> NoteVersion:
    if edit.text is not None:
        return folder.save(parse_note(edit.path, edit.text), change, expected=edit.before)
    if content_hash(folder.content(edit.path)) != edit.before:
        raise MemoryChanged(f"{edit.path} has changed since this was proposed")
    return folder.forget(edit.path, change)


def finish_edit(folder: MemoryFolder, version: NoteVersion, change: Change) -> None:
    """Complete an edit whose process was killed after it changed the file, unless the file has
    changed again since."""
    text = folder.text(version.path)
    if version.operation == "deleted" and not text:
        folder.remove_from_index(version.path, change)
    elif text and content_hash(text.encode()) == version.hash:
        folder.finish_save(parse_note(version.path, text), change)
