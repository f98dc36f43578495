"""Finds files that can be imported: recognizes their format by content and selects the reader."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

from mainspring.core.errors import InvalidInput
from mainspring.error_table import with_hints
from mainspring.runtime.import_sessions import codex, openhands, pi
from mainspring.runtime.import_sessions.claude_code_reader import (
    ClaudeCodeReader,
    is_claude_code,
    is_subagent_file,
)
from mainspring.runtime.import_sessions.claude_code_reader import source_id as claude_code_id
from mainspring.runtime.import_sessions.foreign_json import (
    decode_json,
    head_lines,
    mapping,
    read_whole,
)
from mainspring.runtime.import_sessions.source_session import Format, SourceSession

MAX_FILES = 20_000  # looked at in a folder of another tool
DEFAULT_FOLDERS: tuple[str, ...] = (
    ".claude/projects",
    ".codex/sessions",
    ".pi/agent/sessions",
    ".openhands/conversations",
    ".openhands/sessions",
)
"""Where the tools store their sessions, below the home folder."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ImportCandidate:
    """A file or folder with a session of another tool."""

    path: Path
    format: Format
    source_id: str
    changed: datetime
    bytes: int


class SessionReaders:
    """One reader per format; they cache what they need for further files of the same folder."""

    def __init__(self) -> None:
        self._readers: dict[Format, Callable[[Path], SourceSession]] = {
            "claude-code": ClaudeCodeReader().read,
            "codex": codex.read,
            "pi": pi.read,
            "openhands": openhands.read,
        }

    def read(self, path: Path, form: Format) -> SourceSession:
        """Raises: InvalidInput, OSError."""
        return self._readers[form](path)


def find_candidates(path: Path, form: Format | None = None) -> Iterator[ImportCandidate]:
    """Yield the sessions at a path: the file itself, or all files in a folder. `form` overrides the
    detected format.

    Raises:
        InvalidInput: the named file does not exist, or its format is unknown.
        OSError.
    """
    if path.is_dir():
        yield from _candidates_in(path, form)
        return
    candidate = _file_candidate(path, form)
    if candidate is None:
        error = InvalidInput(f"{path} is not a session file of a supported tool")
        raise with_hints(error, "--from claude-code|codex|pi|openhands reads it as one of these")
    yield candidate


def _candidates_in(folder: Path, form: Format | None) -> Iterator[ImportCandidate]:
    count = 0
    for place, folders, names in os.walk(folder):
        here = Path(place)
        if form in (None, "openhands") and (candidate := _folder_candidate(here)) is not None:
            yield candidate
            folders[:] = []
            continue
        folders.sort()
        for name in sorted(names):
            count += 1
            if count > MAX_FILES:
                raise InvalidInput(
                    f"{folder} has more than {MAX_FILES} files; name folders inside it instead"
                )
            path = here / name
            if path.suffix in (".jsonl", ".json") and not is_subagent_file(path):
                try:
                    candidate = None if path.is_symlink() else _file_candidate(path, None)
                except (InvalidInput, OSError):
                    continue
                if candidate is not None and form in (None, candidate.format):
                    yield candidate


def _folder_candidate(folder: Path) -> ImportCandidate | None:
    files = openhands.event_files(folder)
    if not files:
        return None
    try:
        first = decode_json(read_whole(files[0]))
    except (InvalidInput, OSError):
        return None
    if not openhands.is_event(mapping(first)):
        return None
    return _make_candidate(folder, "openhands", openhands.folder_id(folder), files)


def _file_candidate(path: Path, form: Format | None) -> ImportCandidate | None:
    """Raises: InvalidInput, OSError."""
    if path.suffix == ".json" or form == "openhands":
        values = openhands.events_in(decode_json(read_whole(path)))
        if not values and form is None:
            return None
        return _make_candidate(path, "openhands", openhands.file_id(path, values), [path])
    head = head_lines(path)
    if form == "pi" or (form is None and pi.is_pi(head)):
        return _make_candidate(path, "pi", pi.source_id(path, head), [path])
    if form == "codex" or (form is None and codex.is_codex(head)):
        return _make_candidate(path, "codex", codex.source_id(path, head), [path])
    if form == "claude-code" or (form is None and is_claude_code(head)):
        return _make_candidate(path, "claude-code", claude_code_id(path), [path])
    return None


def _make_candidate(path: Path, form: Format, source_id: str, files: list[Path]) -> ImportCandidate:
    states = [file.stat() for file in files]
    return ImportCandidate(
        path=path,
        format=form,
        source_id=source_id,
        changed=datetime.fromtimestamp(states[-1].st_mtime, UTC),
        bytes=sum(state.st_size for state in states),
    )
