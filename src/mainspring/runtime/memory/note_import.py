"""Imports notes of other programs as memories: a folder with MEMORY.md, Claude Code's memory, an
Obsidian vault, plain notes. It overwrites nothing and does not import a note twice.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path, PurePosixPath
from typing import Literal, TypeAlias

from msgspec import Struct

from mainspring.core.errors import InvalidInput, MemoryChanged
from mainspring.runtime.memory.memory_folder import MemoryFolder
from mainspring.runtime.memory.memory_versions import Change
from mainspring.runtime.memory.note import INDEX_FILE, MAX_BYTES, Note, note_path, parse_note

ImportOutcome: TypeAlias = Literal["imported", "present", "refused"]
_ENDINGS = (".md", ".markdown", ".txt")
_MAX_FILES = 20_000  # of a foreign folder
_WIKI_LINK = re.compile(r"\[\[([^\]|#\n]{1,200})")
_UNSAFE = re.compile(r"[^A-Za-z0-9._/ -]+")


class ImportedNote(Struct, frozen=True, kw_only=True):
    source: str
    path: str
    outcome: ImportOutcome
    problem: str = ""


def import_notes(folder: MemoryFolder, source: Path, change: Change) -> Iterator[ImportedNote]:
    """Import a file, or all notes in a folder. Blocks; yields each note when it is written.

    Raises:
        InvalidInput: there is no such file or folder, or there are too many notes.
    """
    root = source if source.is_dir() else source.parent
    files = [file.relative_to(root) for file in _note_files(source)]
    paths = {file: _memory_path(file) for file in files}
    by_name = {PurePosixPath(path).stem.lower(): path for path in paths.values()}
    for file, path in paths.items():
        outcome, problem = _import_note(folder, root / file, path, by_name, change)
        yield ImportedNote(source=str(file), path=path, outcome=outcome, problem=problem)


def _import_note(
    folder: MemoryFolder, file: Path, path: str, by_name: dict[str, str], change: Change
) -> tuple[ImportOutcome, str]:
    try:
        state = file.stat()
        if state.st_size > MAX_BYTES:
            raise InvalidInput(f"longer than {MAX_BYTES:,} bytes: split it")
        note = parse_note(path, file.read_bytes().decode("utf-8", "replace"))
        written_on = datetime.fromtimestamp(state.st_mtime, UTC).date().isoformat()
        note = replace(note, created=note.created or written_on)
        present = folder.text(path)
        if present:
            is_same = parse_note(path, present).body == note.body
            return ("present", "") if is_same else ("refused", "another memory has this path")
        folder.save(_linked(note, by_name), change, expected="")
    except (InvalidInput, MemoryChanged, OSError) as error:
        return "refused", str(error)
    return "imported", ""


def _linked(note: Note, by_name: dict[str, str]) -> Note:
    """Link the note to the notes that it names in double brackets."""
    names = (name.strip().rsplit("/", 1)[-1].lower() for name in _WIKI_LINK.findall(note.body))
    links = (by_name[name] for name in names if name in by_name)
    return replace(note, links=tuple(dict.fromkeys((*note.links, *links))))


def _memory_path(file: Path) -> str:
    """The file's own path, with the characters replaced that a memory's path cannot have."""
    folders = [_UNSAFE.sub("_", part) for part in file.parts[:-1]][:3]
    stem = _UNSAFE.sub("_", file.stem).strip("._ ")
    name = f"{stem}.md" if stem else note_path("reference", file.stem)
    return "/".join([*folders, name])


def _note_files(source: Path) -> list[Path]:
    if source.is_file():
        return [source]
    if not source.is_dir():
        raise InvalidInput(f"{source}: there is no such file or folder")
    files = [
        file
        for file in sorted(source.rglob("*"))
        if file.suffix.lower() in _ENDINGS
        and file.is_file()
        and not file.is_symlink()
        and file.name != INDEX_FILE
        and not any(part.startswith(".") for part in file.relative_to(source).parts)
    ]
    if len(files) > _MAX_FILES:
        raise InvalidInput(f"{source}: more than {_MAX_FILES:,} notes")
    return files
