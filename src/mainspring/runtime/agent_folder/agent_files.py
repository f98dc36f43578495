"""The files of a folder that describe its agent: which they are and their hash. They are read and
written through one descriptor and without following links, so that programs can change the folder
meanwhile."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Iterator, Mapping
from pathlib import Path, PurePosixPath
from stat import S_ISREG

import msgspec

from mainspring.core.errors import InvalidInput
from mainspring.files.beneath import UNFINISHED

FILES = (
    "agent.yaml",
    *("AGENTS.md", "CLAUDE.md", ".claude/CLAUDE.md", "PLAYBOOK.md"),
    *("SOUL.md", "IDENTITY.md", "USER.md", "TOOLS.md"),
    *(".mcp.json", "mcp.json", "hooks.json"),
    *(".claude/settings.json", ".mainspring/settings.json"),
)
"""Files of one person on one machine (`CLAUDE.local.md`, `settings.local.json`) are not part of
it."""
_MARKDOWN = (".md",)
_PARTS: Mapping[str, tuple[str, ...] | None] = {
    "skills": None,
    "hooks": None,
    "agents": _MARKDOWN,
    "subagents": (".md", ".json"),
    "commands": _MARKDOWN,
    "rules": _MARKDOWN,
    "workflows": (".yaml", ".yml", ".md"),
}
"""Folders, and the suffixes of their files that belong to the definition; `None`: all files."""
_ROOTS = (".mainspring", ".claude", ".agents")
_FOLDERS: Mapping[str, tuple[str, ...] | None] = {
    # a `hooks` folder at the root of a project is probably something else
    **{name: endings for name, endings in _PARTS.items() if name != "hooks"},
    **{f"{root}/{name}": endings for root in _ROOTS for name, endings in _PARTS.items()},
    ".mainspring/plugins": None,
    ".kiro/steering": _MARKDOWN,
    ".kiro/hooks": (".json",),
}
_LEFT_OUT = frozenset((".git", ".mainspring", ".venv", "__pycache__", "node_modules", ".DS_Store"))
_MAX_DEPTH = 8  # folders
_MAX_FILES = 20_000  # of an agent's folder; more is a project
MAX_BYTES = 16_000_000
"""The maximum size of a file; larger ones are data, not definition."""


def is_part(path: str) -> bool:
    """Whether a relative path may belong to an agent's definition."""
    pure = PurePosixPath(path)
    if pure.is_absolute() or ".." in pure.parts or pure.as_posix() != path:
        return False
    if path in FILES:
        return True
    for folder, endings in _FOLDERS.items():
        if path.startswith(f"{folder}/"):
            inside = pure.parts[folder.count("/") + 1 :]
            is_deep = len(inside) > _MAX_DEPTH
            return not is_deep and not _LEFT_OUT & {*inside} and _has_ending(pure.name, endings)
    return False


def files_of(folder: Path) -> dict[str, os.stat_result]:
    """The files by relative path, sorted, with their status. Links are left out.

    Raises:
        InvalidInput: there are too many.
    """
    files = dict(_files(folder))
    return {path: files[path] for path in sorted(files)}


def listing_hash(listing: Mapping[str, str]) -> str:
    """One hash over the hashes of all files; the same on every machine."""
    return hashlib.sha256(encode_listing(listing)).hexdigest()


def encode_listing(listing: Mapping[str, str]) -> bytes:
    return msgspec.json.encode(dict(listing), order="sorted")


def content_hash(folder: Path) -> str:
    """The hash of the current definition.

    Raises: InvalidInput.
    """
    return listing_hash({path: file_hash(folder / path) for path in files_of(folder)})


def file_hash(file: Path) -> str:
    """Raises: InvalidInput."""
    try:
        with file.open("rb") as stream:
            return hashlib.file_digest(stream, "sha256").hexdigest()
    except OSError as error:
        raise InvalidInput(f"{file}: {error.strerror or error}") from error


def _files(folder: Path) -> Iterator[tuple[str, os.stat_result]]:
    for name in FILES:
        if not passes_through_link(folder, name):
            yield from _file(folder, name)
    count = 0
    for name, endings in _FOLDERS.items():
        if passes_through_link(folder, name):
            continue
        for path, state in _below(os.path.join(folder, name), name, endings, 1):
            count += 1
            if count > _MAX_FILES:
                raise InvalidInput(f"{folder}: an agent of more than {_MAX_FILES} files")
            yield path, state


def _file(folder: Path, name: str) -> Iterator[tuple[str, os.stat_result]]:
    try:
        state = os.stat(os.path.join(folder, name), follow_symlinks=False)
    except OSError:
        return
    if _is_regular_file(state):
        yield name, state


def _below(
    place: str, display_path: str, endings: tuple[str, ...] | None, depth: int
) -> Iterator[tuple[str, os.stat_result]]:
    try:
        entries = list(os.scandir(place))
    except OSError:
        return
    for entry in entries:
        if entry.name in _LEFT_OUT:
            continue
        path = f"{display_path}/{entry.name}"
        if entry.is_dir(follow_symlinks=False):
            if depth < _MAX_DEPTH:
                yield from _below(entry.path, path, endings, depth + 1)
        elif _has_ending(entry.name, endings) and entry.is_file(follow_symlinks=False):
            state = entry.stat(follow_symlinks=False)
            if _is_regular_file(state):
                yield path, state


def _has_ending(name: str, endings: tuple[str, ...] | None) -> bool:
    if endings is None:
        return not name.startswith(UNFINISHED) and not name.endswith(".pyc")
    return name.endswith(endings)


def _is_regular_file(state: os.stat_result) -> bool:
    return S_ISREG(state.st_mode) and state.st_size <= MAX_BYTES


def passes_through_link(folder: Path, path: str) -> bool:
    """Whether any part of a path, including its end, is a link."""
    parts = PurePosixPath(path).parts
    steps = (folder.joinpath(*parts[:count]) for count in range(1, len(parts) + 1))
    return any(step.is_symlink() for step in steps)
