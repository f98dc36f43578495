"""The files of a folder that describe its agent: which they are, their hash, and how to read and
write them while programs may change the folder: from one descriptor, and through no link.
"""

from __future__ import annotations

import errno
import hashlib
import os
import stat
from collections.abc import Generator, Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path, PurePosixPath
from stat import S_ISREG

import msgspec

from mainspring.core.errors import InvalidInput
from mainspring.files.atomic_file import read_within, regular_file
from mainspring.files.openat import open_beneath

FILES = (
    "agent.yaml",
    *("AGENTS.md", "CLAUDE.md", ".claude/CLAUDE.md"),
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
"""Folders, and the suffixes of the files in them that count; `None`: all files."""
_ROOTS = (".mainspring", ".claude", ".agents")
_FOLDERS: Mapping[str, tuple[str, ...] | None] = {
    # a `hooks` folder at the root of a project is probably something else
    **{name: endings for name, endings in _PARTS.items() if name != "hooks"},
    **{f"{root}/{name}": endings for root in _ROOTS for name, endings in _PARTS.items()},
    ".mainspring/plugins": None,
    ".kiro/steering": _MARKDOWN,
}
_LEFT_OUT = frozenset((".git", ".mainspring", ".venv", "__pycache__", "node_modules", ".DS_Store"))
_MAX_DEPTH = 8
_MAX_FILES = 20_000
UNFINISHED = ".mainspring-new-"
"""The prefix of files whose writer was killed."""
MAX_BYTES = 16_000_000
"""The largest file that counts; larger ones are data, not definition."""


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
    """The files by relative path, sorted, with their status. Links are neither files nor followed.

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
        with file.open("rb") as opened:
            return hashlib.file_digest(opened, "sha256").hexdigest()
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
    place: str, shown: str, endings: tuple[str, ...] | None, depth: int
) -> Iterator[tuple[str, os.stat_result]]:
    try:
        entries = list(os.scandir(place))
    except OSError:
        return
    for entry in entries:
        if entry.name in _LEFT_OUT:
            continue
        path = f"{shown}/{entry.name}"
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


_LINKS = (errno.ELOOP, errno.ENOTDIR)
"""The errors of opening a link, or a file in place of a folder."""


@contextmanager
def open_folder(folder: Path) -> Generator[int, None, None]:
    root = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        yield root
    finally:
        os.close(root)


def read_file(root: int, path: str) -> bytes | None:
    """Raises: InvalidInput."""
    try:
        descriptor = open_beneath(root, path, os.O_RDONLY | os.O_NONBLOCK)
    except (FileNotFoundError, NotADirectoryError):
        return None
    except OSError as error:
        raise blocked_path_error(path, error) from error
    return read_within(regular_file(descriptor, path), path, MAX_BYTES)


def write_file(root: int, path: str, content: bytes) -> None:
    """Write a file. A crash leaves either the old content or the new.

    Raises:
        InvalidInput: a link is in the way.
        OSError: it cannot be written.
    """
    above, _, name = path.rpartition("/")
    try:
        with ensure_folder(root, above) as parent:
            _write(parent, name, content)
    except OSError as error:
        if error.errno in _LINKS:
            raise blocked_path_error(path, error) from error
        raise


def _write(parent: int, name: str, content: bytes) -> None:
    new = f"{UNFINISHED}{os.getpid()}-{name}"[:200]
    with suppress(FileNotFoundError):
        os.unlink(new, dir_fd=parent)  # left by a killed process with the same id
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW
    descriptor = os.open(new, flags, 0o600, dir_fd=parent)
    try:
        with os.fdopen(descriptor, "wb") as opened:
            opened.write(content)
            os.fchmod(descriptor, _mode(parent, name, content))
        os.replace(new, name, src_dir_fd=parent, dst_dir_fd=parent)
    except BaseException:
        with suppress(OSError):
            os.unlink(new, dir_fd=parent)
        raise


def _mode(parent: int, name: str, content: bytes) -> int:
    try:
        return stat.S_IMODE(os.stat(name, dir_fd=parent, follow_symlinks=False).st_mode)
    except FileNotFoundError:
        return 0o755 if content.startswith(b"#!") else 0o644


@contextmanager
def ensure_folder(root: int, path: str) -> Generator[int, None, None]:
    """Open a folder; it is created if it does not exist.

    Raises:
        OSError: also if a link, or a file, stands in its place.
    """
    at = os.dup(root)
    try:
        for part in filter(None, path.split("/")):
            with suppress(FileExistsError):
                os.mkdir(part, dir_fd=at)
            inner = open_beneath(at, part, os.O_RDONLY | os.O_DIRECTORY)
            os.close(at)
            at = inner
        yield at
    finally:
        os.close(at)


def blocked_path_error(path: str, error: OSError) -> InvalidInput:
    is_link = error.errno in _LINKS
    return InvalidInput(f"{path}: {'a link is in the way' if is_link else error.strerror}")


def remove_file(root: int, path: str) -> None:
    above, _, name = path.rpartition("/")
    with ensure_folder(root, above) as parent, suppress(FileNotFoundError):
        os.unlink(name, dir_fd=parent)
    while above:  # remove folders that are empty now
        above, _, name = above.rpartition("/")
        with ensure_folder(root, above) as parent:
            try:
                os.rmdir(name, dir_fd=parent)
            except OSError:
                return
