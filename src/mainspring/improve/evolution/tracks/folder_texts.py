"""The texts of an agent's folder that a campaign may change, by track: how they are read into a
candidate, how a candidate is tried in a copy, and how it becomes the folder's content."""

from __future__ import annotations

import shutil
from collections.abc import Iterator, Sequence
from pathlib import Path, PurePosixPath

from mainspring.core.errors import InvalidInput
from mainspring.files.atomic_file import read_bounded
from mainspring.files.beneath import open_folder, remove_file, write_file
from mainspring.improve.evolution.candidate import Candidate, changed_paths
from mainspring.improve.evolution.observation import TrackName
from mainspring.runtime.agent_folder.agent_files import passes_through_link

_INSTRUCTIONS = ("AGENTS.md", "CLAUDE.md", "SOUL.md")
PLAYBOOK = "PLAYBOOK.md"
_FOLDERS: dict[TrackName, tuple[str, ...]] = {
    "skill": ("skills", ".claude/skills", ".agents/skills"),
    "knowledge": ("knowledge",),
}
_MAX_TEXT = 1_000_000
"""Bytes of one text; larger ones are data that no campaign changes."""
_LEFT_OUT = (".git", ".mainspring", ".venv", "node_modules", "__pycache__", "evals", "*.db*")
"""What a copy of the agent does not have: its record, and the cases with their answers."""


def track_of(path: str, *, harness_files: Sequence[str] = ()) -> TrackName | None:
    """The track that may change a file; `None`: no track may."""
    if path in harness_files:
        return "harness"
    if path in _INSTRUCTIONS:
        return "prompt"
    if path == PLAYBOOK:
        return "playbook"
    if path == "agent.yaml":
        return "tools"
    for track, folders in _FOLDERS.items():
        if any(path.startswith(f"{folder}/") for folder in folders):
            return track
    return None


def read_texts(folder: Path, *, harness_files: Sequence[str] = ()) -> Candidate:
    """The current version of everything that may change.

    Raises: InvalidInput: a file is not text.
    """
    texts: dict[str, str] = {}
    for path in _paths(folder, harness_files):
        content = read_bounded(folder / path, max_bytes=_MAX_TEXT)
        if content is not None:
            try:
                texts[path] = content.decode()
            except UnicodeDecodeError:
                if track_of(path) != "skill":  # a skill may have images
                    raise InvalidInput(f"{path} is not UTF-8 text") from None
    return Candidate(texts)


def _paths(folder: Path, harness_files: Sequence[str]) -> Iterator[str]:
    for name in (*_INSTRUCTIONS, PLAYBOOK, "agent.yaml", *harness_files):
        if (folder / name).is_file() and not passes_through_link(folder, name):
            yield name
    for folders in _FOLDERS.values():
        for name in folders:
            if not passes_through_link(folder, name) and (folder / name).is_dir():
                for file in sorted((folder / name).rglob("*")):
                    path = file.relative_to(folder).as_posix()
                    is_hidden = any(part.startswith(".") for part in PurePosixPath(path).parts[1:])
                    if file.is_file() and not file.is_symlink() and not is_hidden:
                        yield path


def copy_with(folder: Path, candidate: Candidate, current: Candidate, place: Path) -> Path:
    """A copy of the agent with the candidate's texts. Its folder has the agent's name."""
    target = place / folder.name
    if not target.is_dir():
        unfinished = place / f".{folder.name}"
        shutil.rmtree(unfinished, ignore_errors=True)
        ignore = shutil.ignore_patterns(*_LEFT_OUT)
        shutil.copytree(folder, unfinished, symlinks=True, ignore=ignore)
        _write(unfinished, candidate, current)
        unfinished.rename(target)
    return target


def write_texts(folder: Path, candidate: Candidate, current: Candidate) -> None:
    """Make the candidate the content of the folder, file by file.

    Raises: InvalidInput: the folder has changed since it was `current`, or a link is in the way.
    """
    for path in changed_paths(current, candidate):
        if passes_through_link(folder, path):
            raise InvalidInput(f"{path}: a link is in the way")
        content = read_bounded(folder / path, max_bytes=_MAX_TEXT)
        text = None if content is None else content.decode(errors="replace")
        if text not in (current.texts.get(path), candidate.texts.get(path)):
            raise InvalidInput(f"{path} has changed meanwhile; nothing was written")
    _write(folder, candidate, current)


def _write(folder: Path, candidate: Candidate, current: Candidate) -> None:
    with open_folder(folder) as root:
        for path in changed_paths(current, candidate):
            text = candidate.texts.get(path)
            if text is None:
                remove_file(root, path)
            else:
                write_file(root, path, text.encode())
