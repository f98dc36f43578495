"""The files that a session delivers: the content of the folder `outputs` of its workspace.

The session's programs may change the folder while it is read, and replace files by links. So
everything is opened by descriptor, without following links: the checked file is the one that is
read.
"""

from __future__ import annotations

import hashlib
import os
import stat
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from anyio import to_thread

from mainspring.capabilities.workspace.path_traversal import chown_like_folder
from mainspring.files.openat import OpenDescriptor, open_absolute, open_beneath

FOLDER = "outputs"
_OPEN_FOLDER = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
_OPEN_FILE = os.O_RDONLY | os.O_NONBLOCK | os.O_NOCTTY
_MAX_DEPTH = 16  # folders below the output folder
_MAX_ENTRIES = 10_000
"""How many entries are examined: files, folders, links and others."""
_MAX_PATH_BYTES = 1024  # of one output's path


@dataclass(frozen=True, slots=True)
class OutputFile:
    path: str
    """Relative to the folder `outputs`."""
    stamp: str
    """Changes whenever the file does; programs cannot set it to an earlier value."""


@dataclass(frozen=True, slots=True)
class OutputBytes:
    """The content of a file when it was read."""

    content: bytes
    sha256: str
    stamp: str


@dataclass(frozen=True, slots=True)
class UnreadableOutput:
    """Why a file is not delivered."""

    reason: str


def make_outputs(workspace: Path) -> None:
    """Create the folder, unless something has its name."""
    with _open_outputs(workspace) as root, suppress(FileExistsError):
        os.mkdir(FOLDER, 0o755, dir_fd=root)
        chown_like_folder(FOLDER, root)


def list_outputs(workspace: Path, *, max_entries: int = _MAX_ENTRIES) -> list[OutputFile]:
    """Regular files, sorted by path. Links, devices, files with several names and too long paths
    are not listed; the listing ends after `max_entries` entries of any kind."""
    with _open_outputs(workspace) as root:
        try:
            folder = open_beneath(root, FOLDER, _OPEN_FOLDER)
        except OSError:  # missing, or not a folder
            return []
        listing = _Listing(max_entries)
        try:
            listing.scan(folder, "", 0)
        finally:
            os.close(folder)
    return sorted(listing.files, key=lambda file: file.path)


def read_output(workspace: Path, path: str, *, max_bytes: int) -> OutputBytes | UnreadableOutput:
    with _open_outputs(workspace) as root:
        try:
            descriptor = open_beneath(root, f"{FOLDER}/{path}", _OPEN_FILE)
        except OSError as error:
            return UnreadableOutput(error.strerror or "it cannot be opened")
        with os.fdopen(descriptor, "rb") as file:
            state = os.fstat(descriptor)
            if not _is_plain(state):
                return UnreadableOutput("it is not a regular file, or has several names")
            content = b"" if state.st_size > max_bytes else file.read(max_bytes + 1)
    if max(state.st_size, len(content)) > max_bytes:
        return UnreadableOutput(f"it has more than {max_bytes:,} bytes")
    return OutputBytes(content, hashlib.sha256(content).hexdigest(), _stamp(state))


def _open_outputs(workspace: Path) -> OpenDescriptor:
    return OpenDescriptor(open_absolute(str(workspace.resolve()), _OPEN_FOLDER))


class _Listing:
    def __init__(self, max_entries: int) -> None:
        self.files: list[OutputFile] = []
        self._remaining_entries = max_entries

    def scan(self, folder: int, path: str, depth: int) -> None:
        with os.scandir(folder) as entries:
            for entry in entries:
                if self._remaining_entries <= 0:
                    return
                self._remaining_entries -= 1
                with suppress(OSError, UnicodeEncodeError):  # removed, or an invalid name
                    self._look_at(folder, entry.name, path, depth)

    def _look_at(self, folder: int, name: str, path: str, depth: int) -> None:
        if len(f"{path}{name}".encode()) > _MAX_PATH_BYTES:
            return
        state = os.stat(name, dir_fd=folder, follow_symlinks=False)
        if _is_plain(state):
            self.files.append(OutputFile(f"{path}{name}", _stamp(state)))
        elif stat.S_ISDIR(state.st_mode) and depth < _MAX_DEPTH:
            with OpenDescriptor(os.open(name, _OPEN_FOLDER, dir_fd=folder)) as inner:
                self.scan(inner, f"{path}{name}/", depth + 1)


def _is_plain(state: os.stat_result) -> bool:
    """A second name may be that of a file that the session may not read."""
    return stat.S_ISREG(state.st_mode) and state.st_nlink == 1


def _stamp(state: os.stat_result) -> str:
    return f"{state.st_dev}:{state.st_ino}:{state.st_size}:{state.st_mtime_ns}:{state.st_ctime_ns}"


@dataclass(frozen=True, slots=True)
class OutputFolder:
    """The output files of a workspace, which may no longer exist."""

    workspace: Path

    async def list(self) -> Sequence[OutputFile]:
        return await to_thread.run_sync(self._list)

    def _list(self) -> Sequence[OutputFile]:
        return list_outputs(self.workspace) if self.workspace.is_dir() else []

    async def read(self, path: str, max_bytes: int) -> OutputBytes | str:
        """The content of a file; or the reason why it cannot be read, as text."""
        read = partial(read_output, self.workspace, path, max_bytes=max_bytes)
        output = await to_thread.run_sync(read)
        return output if isinstance(output, OutputBytes) else output.reason
