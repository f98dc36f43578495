"""The versions of a memory folder: who wrote what, when, why and from which session.

They are stored in the folder: contents under their hashes, and a ledger with one line a version. A
change is announced before the file is replaced and entered after it, so that a process that is
killed leaves either no change or a complete one.
"""

from __future__ import annotations

import fcntl
import os
from collections.abc import Generator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from datetime import datetime
from typing import Literal, TypeAlias

import msgspec
from msgspec import Struct

from mainspring.core.errors import InvalidInput, NotFound
from mainspring.core.sender import Sender
from mainspring.files.beneath import ensure_folder, read_file, remove_file, write_file
from mainspring.runtime.memory.note import Trust, content_hash

FOLDER = ".history"
_LEDGER = f"{FOLDER}/ledger.jsonl"
_PENDING = f"{FOLDER}/pending.json"
_READERS = f"{FOLDER}/readers.jsonl"
_PURGES = f"{FOLDER}/purges.json"
"""Paths of memories that are being removed for good."""
_MAX_BYTES = 200_000_000
_GIT_FILES = {
    ".gitattributes": "# Git adds the lines of both sides.\nMEMORY.md merge=union\n"
    "[0-9][0-9][0-9][0-9]-[0-9][0-9]-[0-9][0-9].md merge=union\n.history/*.jsonl merge=union\n",
    f"{FOLDER}/.gitignore": "lock\npending.json\npurges.json\n",
}
"""With these, git merges the memories of two machines; contents have a file for each hash."""

Operation: TypeAlias = Literal["created", "modified", "deleted"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Change:
    """Who changes a memory, and why."""

    author: Sender
    reason: str
    session_id: str = ""
    event_ids: tuple[str, ...] = ()
    version_id: str = ""
    """Of the version that it makes, if the caller must find it again after a crash."""
    source: Trust | None = None
    """Where the text comes from, if not from the author: a page, another agent."""

    @property
    def max_trust(self) -> Trust:
        """Whatever the text says of itself: only a person writes what a person vouches for."""
        return self.source or ("person" if self.author.kind == "person" else "agent")


class MemoryVersion(Struct, frozen=True, kw_only=True, omit_defaults=True):
    id: str
    path: str
    operation: Operation
    time: datetime
    author: Sender
    reason: str
    hash: str = ""
    """Of the content; empty if the memory was deleted."""
    parent: str = ""
    """The version that it replaces."""
    session_id: str = ""
    event_ids: tuple[str, ...] = ()
    trust: Trust = "person"
    """Of the content, as its writer could vouch for it."""


class Reader(Struct, frozen=True, kw_only=True):
    """A session that was given a version."""

    session_id: str
    path: str
    hash: str
    time: datetime


_VERSIONS = msgspec.json.Decoder(MemoryVersion)
_READER = msgspec.json.Decoder(Reader)


@contextmanager
def locked(root: int) -> Generator[None, None, None]:
    """One writer at a time, among all processes."""
    with ensure_folder(root, FOLDER) as folder:
        flags = os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW
        descriptor = os.open("lock", flags, 0o600, dir_fd=folder)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX)
        yield
    finally:
        os.close(descriptor)


def read_versions(root: int) -> list[MemoryVersion]:
    """The oldest first. A last line that a crash cut off was never entered."""
    versions: list[MemoryVersion] = []
    for line in _lines(root, _LEDGER):
        try:
            versions.append(_VERSIONS.decode(line))
        except msgspec.MsgspecError as error:
            raise InvalidInput(
                f"{_LEDGER}: {error}; `mainspring memory doctor` says more"
            ) from error
    return versions


def latest_version(root: int, path: str) -> MemoryVersion | None:
    """Of one memory; only its line of the ledger is decoded."""
    content = read_file(root, _LEDGER, max_bytes=_MAX_BYTES) or b""
    mark = b'"path":' + msgspec.json.encode(path) + b","
    end = content.rfind(b"\n") + 1
    while (at := content.rfind(mark, 0, end)) >= 0:
        end = content.rfind(b"\n", 0, at) + 1
        version = _VERSIONS.decode(content[end : content.find(b"\n", at)])
        if version.path == path:  # else it is in a reason
            return version
    return None


def read_readers(root: int) -> list[Reader]:
    readers: list[Reader] = []
    for line in _lines(root, _READERS):
        with suppress(msgspec.MsgspecError):  # derived from the log: one line less is no loss
            readers.append(_READER.decode(line))
    return readers


def add_readers(root: int, readers: list[Reader]) -> None:
    for reader in readers:
        _append(root, _READERS, msgspec.json.encode(reader))


def version_content(root: int, version: MemoryVersion) -> bytes:
    """
    Raises:
        NotFound: it was purged, or is of a memory that was deleted.
    """
    content = read_file(root, _object_path(version.hash)) if version.hash else None
    if content is None or content_hash(content) != version.hash:
        raise NotFound("content of memory version", version.id)
    return content


def apply_version(root: int, version: MemoryVersion, content: bytes | None) -> None:
    """Change the file and enter the version; the lock must be held."""
    for name, text in _GIT_FILES.items():
        if read_file(root, name) is None:
            write_file(root, name, text.encode())
    if content is not None:
        write_file(root, _object_path(version.hash), content, is_synced=True)
    write_file(root, _PENDING, msgspec.json.encode(version), is_synced=True)
    if content is None:
        remove_file(root, version.path)
    else:
        write_file(root, version.path, content, is_synced=True)
    enter_version(root, version)
    remove_file(root, _PENDING)


def enter_version(root: int, version: MemoryVersion, content: bytes | None = None) -> None:
    """Of a file that is already as the version says."""
    if content is not None:
        write_file(root, _object_path(version.hash), content, is_synced=True)
    _append(root, _LEDGER, msgspec.json.encode(version))


def finish_pending(root: int) -> None:
    """Complete the change of a writer that was killed, if its file was replaced; the lock must be
    held."""
    encoded = read_file(root, _PENDING)
    if encoded is None:
        return
    version = _VERSIONS.decode(encoded)  # it was written atomically
    content = read_file(root, version.path)
    is_done = (content_hash(content) if content is not None else "") == version.hash
    if is_done and all(known.id != version.id for known in read_versions(root)):
        enter_version(root, version)
    remove_file(root, _PENDING)


def read_purges(root: int) -> list[str]:
    content = read_file(root, _PURGES)
    return [] if content is None else msgspec.json.decode(content, type=list[str])


def begin_purge(root: int, path: str) -> None:
    """Note that a memory is removed for good, whatever happens now; the lock must be held."""
    paths = [*read_purges(root), path]
    write_file(root, _PURGES, msgspec.json.encode(paths), is_synced=True)


def purge_contents(root: int, path: str) -> int:
    """Remove the contents of all versions of a memory, but those that another one has too. That
    ends its purge; the lock must be held."""
    versions = read_versions(root)
    shared = {version.hash for version in versions if version.path != path}
    hashes = {version.hash for version in versions if version.path == path} - shared - {""}
    for digest in hashes:
        remove_file(root, _object_path(digest))
    rest = [item for item in read_purges(root) if item != path]
    write_file(root, _PURGES, msgspec.json.encode(rest), is_synced=True)
    return len(hashes)


def purge_mentions(root: int, path: str, mention: bytes) -> int:
    """Remove the contents of past versions of a file that have certain bytes."""
    versions = [version for version in read_versions(root) if version.path == path]
    if not versions:
        return 0
    removed = 0
    for digest in {version.hash for version in versions[:-1]} - {versions[-1].hash, ""}:
        if mention in (read_file(root, _object_path(digest)) or b""):
            remove_file(root, _object_path(digest))
            removed += 1
    return removed


def _object_path(digest: str) -> str:
    return f"{FOLDER}/objects/{digest[:2]}/{digest}"


def _lines(root: int, path: str) -> list[bytes]:
    content = read_file(root, path, max_bytes=_MAX_BYTES) or b""
    return content[: content.rfind(b"\n") + 1].splitlines()


def _append(root: int, path: str, line: bytes) -> None:
    above, _, name = path.rpartition("/")
    with ensure_folder(root, above) as folder:
        flags = os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW
        descriptor = os.open(name, flags, 0o644, dir_fd=folder)
    try:
        size = os.fstat(descriptor).st_size
        end = size
        if size and os.pread(descriptor, 1, size - 1) != b"\n":  # cut off by a crash
            content = os.pread(descriptor, size, 0)
            end = content.rfind(b"\n") + 1
            os.ftruncate(descriptor, end)
        os.pwrite(descriptor, line + b"\n", end)
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
