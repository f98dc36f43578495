"""Changes of memories that are proposed together: each a file with its new text, a reason and the
evidence for it. They can be shown as a diff, and are applied at most once.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterable
from typing import Literal, TypeAlias

from msgspec import Struct

from mainspring.core.errors import InvalidInput, MemoryChanged, NotFound
from mainspring.core.sender import Sender
from mainspring.runtime.memory.extraction import MemoryEvidence
from mainspring.runtime.memory.memory_folder import MemoryFolder
from mainspring.runtime.memory.memory_versions import Change, MemoryVersion
from mainspring.runtime.memory.note import Trust, content_hash, parse_note, text_diff

EditAction: TypeAlias = Literal["add", "update", "merge", "link", "conflict", "archive", "promote"]


class MemoryEdit(Struct, frozen=True, kw_only=True, omit_defaults=True):
    path: str
    action: EditAction
    reason: str
    before: str = ""
    """Hash of the content that it replaces; empty: there is no such file."""
    text: str | None = None
    """The new file; `None`: it is removed."""
    evidence: tuple[MemoryEvidence, ...] = ()
    trust: Trust = "agent"
    """Of the new text, as its evidence allows."""


class RefusedEdit(Struct, frozen=True, kw_only=True):
    path: str
    problem: str


class AppliedEdits(Struct, frozen=True, kw_only=True):
    versions: tuple[MemoryVersion, ...]
    refused: tuple[RefusedEdit, ...] = ()


def edit_diff(edit: MemoryEdit, before: str) -> str:
    """What an edit changes, in the format of `diff -u`, with why and from what."""
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
    """Make the changes that were not made before; what was changed since they were proposed stays
    as it is and is reported. `key`: what an edit is known by. Blocks."""
    memory_versions = {version.id: version for version in folder.history()}
    versions: list[MemoryVersion] = []
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


def _apply(folder: MemoryFolder, edit: MemoryEdit, change: Change) -> MemoryVersion:
    if edit.text is not None:
        return folder.save(parse_note(edit.path, edit.text), change, expected=edit.before)
    if content_hash(folder.content(edit.path)) != edit.before:
        raise MemoryChanged(f"{edit.path} has changed since this was proposed")
    return folder.forget(edit.path, change)


def finish_edit(folder: MemoryFolder, version: MemoryVersion, change: Change) -> None:
    """Complete an edit whose process was killed after it had changed the file, unless the file was
    changed again since."""
    text = folder.text(version.path)
    if version.operation == "deleted" and not text:
        folder.remove_from_index(version.path, change)
    elif text and content_hash(text.encode()) == version.hash:
        folder.finish_save(parse_note(version.path, text), change)
