"""The workspace of a trial, and copies of it for graders. An agent may leave links, pipes or huge
files in it: links are not followed, and only regular files are read."""

from __future__ import annotations

import os
import shutil
import stat
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

from mainspring.core.errors import InvalidInput
from mainspring.files.atomic_file import read_within, regular_file
from mainspring.files.openat import OpenDescriptor, open_beneath
from mainspring.improve.evals.suite import Case, Script
from mainspring.retrieval.globs import matches_glob

_MAX_FILE_BYTES = 50_000_000  # copied for graders
_MAX_COPY_BYTES = 200_000_000  # of a whole copy
_MAX_COPY_FILES = 20_000  # of a whole copy
_READY = ".ready"


def prepare_workspace(place: Path, case: Case, suite_folder: Path, script: Script | None) -> Path:
    """Make the workspace of a trial below `place`, unless it exists after a crash. Blocks.

    Raises: InvalidInput: the files cannot be copied.
    """
    workspace = place / "workspace"
    if (place / _READY).exists():
        return workspace
    shutil.rmtree(place, ignore_errors=True)
    try:
        workspace.mkdir(parents=True)
        copy_case_files(workspace, case, suite_folder)
        if script is not None and script.files is not None:
            _copy_suite_files(suite_folder / script.files, workspace)
        (place / _READY).touch()
    except OSError as error:
        raise InvalidInput(f"case {case.id}: {error.filename}: {error.strerror}") from error
    return workspace


def copy_case_files(folder: Path, case: Case, suite_folder: Path) -> None:
    """Copy the case's files into a folder. Blocks."""
    if case.workspace is not None:
        _copy_suite_files(suite_folder / case.workspace, folder)
    for name, text in case.files.items():
        file = folder / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text, encoding="utf-8")


def _copy_suite_files(source: Path, target: Path) -> None:
    """Copy files of the suite. They are the user's own, so links are copied as links."""
    shutil.copytree(source, target, symlinks=True, dirs_exist_ok=True)


def read_workspace_file(workspace: Path, name: str) -> bytes | None:
    """Read a file that the agent left; `None` if there is none. Follows no link. Blocks.

    Raises:
        InvalidInput: it is a link, not a regular file, or too long.
    """
    try:
        with OpenDescriptor(os.open(workspace, os.O_RDONLY | os.O_DIRECTORY)) as root:
            descriptor = open_beneath(root, name, os.O_RDONLY | os.O_NONBLOCK)
        return read_within(regular_file(descriptor, name), name, _MAX_FILE_BYTES)
    except (FileNotFoundError, NotADirectoryError):
        return None
    except OSError as error:
        raise InvalidInput(f"{name}: {error.strerror}") from error


def copy_workspace(workspace: Path, target: Path, globs: tuple[str, ...]) -> None:
    """Copy the regular files that the agent left, all or those that the globs match. Blocks.

    Raises: InvalidInput: they are too many or too large.
    """
    size = count = 0
    for path in _regular_files(workspace):
        name = path.relative_to(workspace).as_posix()
        if globs and not any(matches_glob(glob, name) for glob in globs):
            continue
        size, count = size + path.lstat().st_size, count + 1
        if size > _MAX_COPY_BYTES or count > _MAX_COPY_FILES:
            raise InvalidInput("the agent left more files than can be graded")
        content = read_workspace_file(workspace, name)
        if content is None:
            continue
        copy = target / name
        copy.parent.mkdir(parents=True, exist_ok=True)
        copy.write_bytes(content)
        copy.chmod(path.lstat().st_mode & 0o755 | 0o600)


def copy_over(source: Path, target: Path) -> None:
    """Copy files, such as hidden tests, into a folder; they replace files, folders and links of the
    same name. Blocks."""
    for path in _regular_files(source):
        copy = target / path.relative_to(source)
        for folder in [*reversed(copy.relative_to(target).parents)][1:]:
            _replace_unless_folder(target / folder)
        if copy.is_dir() and not copy.is_symlink():
            shutil.rmtree(copy)
        with suppress(FileNotFoundError):
            copy.unlink()
        shutil.copy2(path, copy)


def _replace_unless_folder(folder: Path) -> None:
    if folder.is_symlink() or (folder.exists() and not folder.is_dir()):
        folder.unlink()
    folder.mkdir(exist_ok=True)


def _regular_files(folder: Path) -> Iterator[Path]:
    for place, folders, names in os.walk(folder):
        folders.sort()
        for name in sorted(names):
            path = Path(place, name)
            with suppress(OSError):
                if stat.S_ISREG(path.lstat().st_mode):
                    yield path
