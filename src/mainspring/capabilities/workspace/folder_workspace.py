"""`core.ports.Workspace` over folders of the host, on Linux and macOS."""

from __future__ import annotations

import errno
import hashlib
import os
import secrets
import stat
from collections.abc import Callable, Collection, Generator, Sequence
from contextlib import contextmanager, suppress
from functools import partial
from itertools import islice
from pathlib import Path, PurePosixPath

from anyio import to_thread
from msgspec import Struct

from mainspring.capabilities.workspace.path_traversal import (
    CREATE_FILE,
    MAX_DEPTH,
    OPEN_FILE,
    OPEN_FOLDER,
    ResolvedPath,
    WalkEntry,
    check_not_guarded,
    check_regular_file,
    locate_path,
    open_resolved_file,
    resolve_path,
    walk_tree,
)
from mainspring.capabilities.workspace.workspace_roots import (
    PathParts,
    Root,
    WorkspaceRoots,
    absolute_path,
    printable_path,
)
from mainspring.core.errors import FileChanged, FileRefused
from mainspring.core.ports import FileEntry, FileState
from mainspring.files.openat import OpenDescriptor
from mainspring.files.session_owner import gives_uids, owner_of_new
from mainspring.files.written_files import WRITTEN_FILES

PERMISSION_BITS = 0o777
"""Without setuid and setgid: no file that we create runs as another user."""


class FileAttributes(Struct, frozen=True):
    """Mode and owner of a new file; `None`: the system's default, and the owner of its folder."""

    mode: int | None = None
    owner: tuple[int, int] | None = None


def put_file(
    folder: int, name: str, fill: Callable[[int], None], attributes: FileAttributes
) -> None:
    """Create and fill a temporary file in the folder, then rename it to `name`."""
    with _temporary_name(folder) as temporary:
        WRITTEN_FILES.add(folder, temporary)
        # Users who may not read the finished file may not read the temporary one.
        mode = 0o666 if attributes.mode is None else 0o600
        with OpenDescriptor(os.open(temporary, CREATE_FILE, mode, dir_fd=folder)) as descriptor:
            _apply_attributes(descriptor, folder, attributes)
            fill(descriptor)
        os.rename(temporary, name, src_dir_fd=folder, dst_dir_fd=folder)


def put_link(folder: int, name: str, target: bytes) -> None:
    with _temporary_name(folder) as temporary:
        os.symlink(target, os.fsencode(temporary), dir_fd=folder)
        os.rename(temporary, name, src_dir_fd=folder, dst_dir_fd=folder)


def write_all(opened: int, content: bytes) -> None:
    remainder = memoryview(content)
    while remainder:
        remainder = remainder[os.write(opened, remainder) :]


@contextmanager
def _temporary_name(folder: int) -> Generator[str]:
    """A random name, which no program can predict. If the block fails, the file is removed."""
    name = f".{secrets.token_hex(16)}.part"
    try:
        yield name
    except BaseException:
        with suppress(OSError):
            os.unlink(name, dir_fd=folder)
        raise


def _apply_attributes(opened: int, folder: int, attributes: FileAttributes) -> None:
    if gives_uids():
        uid, gid = attributes.owner or owner_of_new(folder)
        os.fchown(opened, uid, gid)
    if attributes.mode is not None:
        os.fchmod(opened, attributes.mode & PERMISSION_BITS)


MAX_WRITE_BYTES = 64_000_000  # of one file that a tool writes


class FolderWorkspace:
    """Relative paths are below `root`; paths in the roots of `extra` are absolute.

    `hidden`: paths that cannot be reached, relative to each root, or absolute. A write renames a
    new file over the old one; what a program writes to the old file at that moment is lost.
    `is_guarded`: whether a path may be changed only under its own name. The person who approved the
    change saw that name, and a link to it may be newer.

    Raises:
        InvalidInput: a root is not a folder.
    """

    def __init__(
        self,
        root: Path,
        *,
        hidden: Collection[str] = (),
        extra: Sequence[Root] = (),
        read_only: bool = False,
        is_guarded: Callable[[str], bool] = lambda _: False,
        aliases: Collection[str] = (),
    ) -> None:
        self.bounds = WorkspaceRoots(
            [Root(path=root, read_only=read_only), *extra],
            hidden,
            is_guarded=is_guarded,
            aliases=aliases,
        )

    @property
    def root(self) -> PurePosixPath:
        return PurePosixPath(absolute_path(self.bounds.main))

    def locate(self, path: str) -> PurePosixPath:
        return locate_path(self.bounds, path)

    def named(self, path: str) -> str:
        return self.bounds.named(path)

    def open_file(self, path: str) -> int:
        with resolve_path(self.bounds, path) as spot:
            return open_resolved_file(spot)

    async def read(self, path: str, *, max_bytes: int) -> FileState:
        return await to_thread.run_sync(partial(self._read, path, max_bytes))

    async def write(
        self, path: str, content: bytes, *, expected: str | None = None, mode: int | None = None
    ) -> FileState:
        if len(content) > MAX_WRITE_BYTES:
            raise FileRefused(
                f"{printable_path(path)}: at most {MAX_WRITE_BYTES:,} bytes can be written"
            )
        return await to_thread.run_sync(partial(self._write, path, content, expected, mode))

    async def walk(
        self,
        path: str = ".",
        *,
        limit: int = 100_000,
        depth: int | None = None,
        skip: Collection[str] = (),
    ) -> list[FileEntry]:
        deepest = MAX_DEPTH if depth is None else min(depth - 1, MAX_DEPTH)
        return await to_thread.run_sync(partial(self._walk, path, limit, deepest, skip))

    def _read(self, path: str, max_bytes: int) -> FileState:
        with resolve_path(self.bounds, path) as spot:
            return _read(spot, path, max_bytes)

    def _write(
        self, path: str, content: bytes, expected: str | None, mode: int | None
    ) -> FileState:
        with resolve_path(self.bounds, path, make_folders=expected in (None, "")) as spot:
            if self.bounds.is_read_only(spot.parts):
                raise FileRefused(f"{printable_path(path)} is in a read-only folder")
            if spot.is_linked:
                check_not_guarded(self.bounds, spot.parts, path)
            if spot.folder is None:
                raise FileChanged(f"{printable_path(path)} no longer exists")
            state, folder = _regular_file_state(spot), spot.folder

            def fill(opened: int) -> None:
                write_all(opened, content)
                if expected is not None:  # last, so that the rename follows at once
                    _check_version(spot, path, expected)

            WRITTEN_FILES.add(folder, spot.name, content)
            attributes = FileAttributes(mode) if state is None else _attributes(state, mode)
            put_file(folder, spot.name, fill, attributes)
            now = os.stat(spot.name, dir_fd=folder, follow_symlinks=False)
            return _state(content, now)

    def _walk(self, path: str, limit: int, depth: int, skip: Collection[str]) -> list[FileEntry]:
        with resolve_path(self.bounds, path) as spot:
            if spot.state is None or spot.folder is None:
                raise FileNotFoundError(errno.ENOENT, "nothing there")
            with OpenDescriptor(os.open(spot.name, OPEN_FOLDER, dir_fd=spot.folder)) as folder:
                walk_entries = walk_tree(self.bounds, folder, spot.parts, depth=depth, skip=skip)
                start = self._begun(spot.parts)
                visible_entries = (entry for entry in walk_entries if _is_listed(entry.state))
                return [_entry(start, entry) for entry in islice(visible_entries, limit)]

    def _begun(self, parts: PathParts) -> PurePosixPath:
        main = self.bounds.main
        if parts[: len(main)] == main:
            return PurePosixPath(*parts[len(main) :])
        return PurePosixPath(absolute_path(parts))


def _read(resolved: ResolvedPath, path: str, max_bytes: int) -> FileState:
    with os.fdopen(open_resolved_file(resolved), "rb") as file:
        state = os.fstat(file.fileno())
        content = b"" if state.st_size > max_bytes else file.read(max_bytes + 1)
    if (size := max(state.st_size, len(content))) > max_bytes:
        raise FileRefused(
            f"{printable_path(path)} is too large: {size:,} bytes, and the limit is {max_bytes:,}"
        )
    return _state(content, state)


def _state(content: bytes, state: os.stat_result) -> FileState:
    return FileState(
        content=content,
        version=_version(hashlib.sha256(content).digest(), state.st_mode),
        mode=stat.S_IMODE(state.st_mode),
        changed_ns=max(state.st_mtime_ns, state.st_ctime_ns),
    )


def _version(digest: bytes, mode: int) -> str:
    return hashlib.sha256(digest + stat.S_IMODE(mode).to_bytes(2)).hexdigest()


def _regular_file_state(resolved: ResolvedPath) -> os.stat_result | None:
    """The state of the file to be replaced; only regular files are replaced."""
    if resolved.state is not None:
        check_regular_file(resolved.state)
    return resolved.state


def _attributes(state: os.stat_result, mode: int | None) -> FileAttributes:
    new_mode = state.st_mode if mode is None else mode
    return FileAttributes(new_mode, (state.st_uid, state.st_gid))


def _check_version(resolved: ResolvedPath, path: str, expected: str) -> None:
    if _version_at(resolved) != expected:
        why = "exists already" if expected == "" else "has changed since it was read"
        raise FileChanged(f"{printable_path(path)} {why}")


def _version_at(resolved: ResolvedPath) -> str | None:
    """`""` if the file does not exist, `None` if it is not a readable regular file."""
    try:
        descriptor = os.open(resolved.name, OPEN_FILE, dir_fd=resolved.folder)
    except FileNotFoundError:
        return ""
    except OSError:
        return None
    with os.fdopen(descriptor, "rb") as file:
        state = os.fstat(descriptor)
        if not stat.S_ISREG(state.st_mode):
            return None
        return _version(hashlib.file_digest(file, "sha256").digest(), state.st_mode)


def _is_listed(state: os.stat_result) -> bool:
    mode = state.st_mode
    return stat.S_ISREG(mode) or stat.S_ISDIR(mode) or stat.S_ISLNK(mode)


def _entry(start: PurePosixPath, entry: WalkEntry) -> FileEntry:
    return FileEntry(
        path=start / entry.path,
        size=entry.state.st_size,
        modified_ns=entry.state.st_mtime_ns,
        is_folder=stat.S_ISDIR(entry.state.st_mode),
        is_link=stat.S_ISLNK(entry.state.st_mode),
    )
