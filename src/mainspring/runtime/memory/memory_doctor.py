"""Finds problems in a memory folder and suggests fixes."""

from __future__ import annotations

from collections.abc import Container, Iterator

from msgspec import Struct

from mainspring.core.errors import InvalidInput
from mainspring.runtime.memory.memory_folder import MemoryFolder
from mainspring.runtime.memory.note import INDEX_FILE, MAX_BYTES, Note, has_git_conflict, parse_note

MAX_INDEX_LINES = 200  # Claude Code's limit for MEMORY.md
MAX_INDEX_BYTES = 25_000  # Claude Code's limit for MEMORY.md


class MemoryFinding(Struct, frozen=True, kw_only=True):
    path: str
    problem: str
    fix: str


def examine(folder: MemoryFolder) -> list[MemoryFinding]:
    try:
        folder.history()
    except InvalidInput as error:
        return [MemoryFinding(path=".history", problem=str(error), fix="remove the damaged line")]
    return list(_findings(folder))


def _findings(folder: MemoryFolder) -> Iterator[MemoryFinding]:
    for path in folder.unfinished_purges():
        yield MemoryFinding(
            path=path,
            problem="its purge was not finished",
            fix=f"run `mainspring memory forget {path} --purge` again",
        )
    paths = folder.paths()
    texts = {path: folder.content(path).decode("utf-8", "replace") for path in paths}
    index = texts.pop(INDEX_FILE, "")
    if len(index.splitlines()) > MAX_INDEX_LINES or len(index.encode()) > MAX_INDEX_BYTES:
        yield MemoryFinding(
            path=INDEX_FILE,
            problem=f"longer than {MAX_INDEX_LINES} lines or {MAX_INDEX_BYTES:,} bytes: its end is"
            " not loaded",
            fix="merge or forget memories",
        )
    for path, text in texts.items():
        yield from _problems_of(parse_note(path, text), text, paths, index)


def _problems_of(
    note: Note, text: str, paths: Container[str], index: str
) -> Iterator[MemoryFinding]:
    path = note.path
    if has_git_conflict(text.encode()):
        problem = "an unresolved git conflict"
        yield MemoryFinding(path=path, problem=problem, fix="edit it, and keep what is true")
    if len(text.encode()) > MAX_BYTES:
        yield MemoryFinding(path=path, problem="too long", fix="split it into several")
    if not note.is_daily and f"]({path})" not in index:
        yield MemoryFinding(path=path, problem=f"not in {INDEX_FILE}", fix="add a line for it")
    for link in (*note.links, *note.supersedes):
        if link not in paths:
            problem = f"links to {link}, which does not exist"
            yield MemoryFinding(path=path, problem=problem, fix="remove the link")
