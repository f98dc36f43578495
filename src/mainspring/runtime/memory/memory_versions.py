"""The versions of a memory folder: who wrote what, when, why and from which session.

They are stored in the folder: contents under their hashes, and a ledger with one line per version.
A change is written to `pending.json` before the file is replaced and to the ledger afterwards, so
that a killed process leaves either no change or a complete one.
"""

from __future__ import annotations

import fcntl
import os
from collections.abc import Generator, Iterable
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from datetime import datetime
from typing import Literal, TypeAlias

import msgspec
from msgspec import Struct

from mainspring.core.errors import InvalidInput, NotFound
from mainspring.core.events import MemoryWritten
from mainspring.core.sender import Sender
from mainspring.files.beneath import ensure_folder
from mainspring.files.openat import OpenDescriptor, open_beneath
from mainspring.files.written_files import WRITTEN_FILES
from mainspring.runtime.memory.memory_files import MemoryFiles
from mainspring.runtime.memory.note import Trust, content_hash

FOLDER = ".history"
LEDGER = f"{FOLDER}/ledger.jsonl"
_PENDING = f"{FOLDER}/pending.json"
_READERS = f"{FOLDER}/readers.jsonl"
_PURGES = f"{FOLDER}/purges.json"
"""Paths of memories that are being purged."""
_MAX_BYTES = 200_000_000  # of the file of versions
_GIT_FILES = {
    ".gitattributes": "# Git adds the lines of both sides.\nMEMORY.md merge=union\n"
    "[0-9][0-9][0-9][0-9]-[0-9][0-9]-[0-9][0-9].md merge=union\n.history/*.jsonl merge=union\n",
    f"{FOLDER}/.gitignore": "lock\npending.json\npurges.json\n",
}
"""These let git merge the memories of two machines; contents have a file for each hash."""

Operation: TypeAlias = Literal["created", "modified", "deleted"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Change:
    """Who changes a memory, and why."""

    author: Sender
    reason: str
    session_id: str = ""
    event_ids: tuple[str, ...] = ()
    version_id: str = ""
    """The id of the version to make, if the caller must find it again after a crash."""
    source: Trust | None = None
    """The trust of the text's source, if not the author: a page, another agent."""

    @property
    def max_trust(self) -> Trust:
        """The highest trust that the text may claim: only a person writes trusted text."""
        return self.source or ("person" if self.author.kind == "person" else "agent")


class NoteVersion(Struct, frozen=True, kw_only=True, omit_defaults=True):
    id: str
    path: str
    operation: Operation
    time: datetime
    author: Sender
    reason: str
    hash: str = ""
    """The hash of the content; empty if the memory was deleted."""
    parent: str = ""
    """The version that it replaces."""
    session_id: str = ""
    event_ids: tuple[str, ...] = ()
    trust: Trust = "person"
    """The trust of the content."""
    mac: str = ""
    """Of the installation that wrote it; empty if the edit was only noticed."""

    @property
    def signed_fields(self) -> tuple[object, ...]:
        """What its MAC covers: everything else."""
        return (
            *(self.id, self.path, self.operation, self.time, self.author, self.reason, self.hash),
            *(self.parent, self.session_id, self.event_ids, self.trust),
        )

    def written(self, store_id: str, trust: Trust | None) -> MemoryWritten:
        """The event that records this version."""
        return MemoryWritten(
            store_id=store_id,
            path=self.path,
            operation=self.operation,
            version=self.id,
            reason=self.reason,
            trust=trust,
        )


class Reader(Struct, frozen=True, kw_only=True):
    """A session that read a version."""

    session_id: str
    path: str
    hash: str
    time: datetime


_VERSIONS = msgspec.json.Decoder(NoteVersion)
_READER = msgspec.json.Decoder(Reader)


@contextmanager
def locked(files: MemoryFiles) -> Generator[None, None, None]:
    """Allow one writer at a time, across all processes."""
    with ensure_folder(files.root, FOLDER) as folder:
        flags = os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW
        WRITTEN_FILES.add(folder, "lock")
        descriptor = os.open("lock", flags, 0o600, dir_fd=folder)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX)
        yield
    finally:
        os.close(descriptor)


def read_versions(files: MemoryFiles) -> list[NoteVersion]:
    """The versions, oldest first. A last line that a crash cut off does not count."""
    versions: list[NoteVersion] = []
    for line in files.lines(LEDGER, max_bytes=_MAX_BYTES):
        try:
            versions.append(_VERSIONS.decode(line))
        except (msgspec.MsgspecError, RecursionError) as error:
            raise InvalidInput(
                f"{LEDGER}: {error}; run `mainspring memory doctor` for details"
            ) from error
    return versions


def ledger_stamp(files: MemoryFiles) -> object:
    """Differs if the ledger has changed."""
    try:
        with OpenDescriptor(open_beneath(files.root, LEDGER)) as ledger:
            state = os.fstat(ledger)
    except OSError:
        return ()
    return state.st_ino, state.st_size, state.st_mtime_ns


def latest_version(files: MemoryFiles, path: str) -> NoteVersion | None:
    """The latest version of one memory; decodes only its own line of the ledger."""
    mark = b'"path":' + msgspec.json.encode(path) + b","
    for line in reversed(files.lines(LEDGER, max_bytes=_MAX_BYTES)):
        if (
            mark in line and (version := _VERSIONS.decode(line)).path == path
        ):  # the mark may be in a reason
            return version
    return None


def read_readers(files: MemoryFiles) -> list[Reader]:
    readers: list[Reader] = []
    for line in files.lines(_READERS, max_bytes=_MAX_BYTES):
        with suppress(
            msgspec.MsgspecError, RecursionError
        ):  # derived from the log, so a line may be dropped
            readers.append(_READER.decode(line))
    return readers


def add_readers(files: MemoryFiles, readers: list[Reader]) -> None:
    for reader in readers:
        files.append(_READERS, msgspec.json.encode(reader))


def version_content(files: MemoryFiles, version: NoteVersion) -> bytes:
    """
    Raises:
        NotFound: the content was purged, or the version is a deletion.
    """
    content = files.read(_object_path(version.hash)) if version.hash else None
    if content is None or content_hash(content) != version.hash:
        raise NotFound("content of memory version", version.id)
    return content


def apply_version(files: MemoryFiles, version: NoteVersion, content: bytes | None) -> None:
    """Change the file and record the version; the lock must be held."""
    for name, text in _GIT_FILES.items():
        if files.read(name) is None:
            files.write_clear(name, text.encode())
    if content is not None:
        files.write(_object_path(version.hash), content)
    files.write(_PENDING, msgspec.json.encode(version))
    if content is None:
        files.remove(version.path)
    else:
        files.write(version.path, content)
    record_version(files, version)
    files.remove(_PENDING)


def record_version(files: MemoryFiles, version: NoteVersion, content: bytes | None = None) -> None:
    """Record a version whose file is already written."""
    if content is not None:
        files.write(_object_path(version.hash), content)
    files.append(LEDGER, msgspec.json.encode(version))


def finish_pending(files: MemoryFiles) -> None:
    """Complete the change of a writer that was killed, if its file was replaced; the lock must be
    held."""
    encoded = files.read(_PENDING)
    if encoded is None:
        return
    version = _VERSIONS.decode(encoded)  # it was written atomically
    content = files.read(version.path)
    is_done = (content_hash(content) if content is not None else "") == version.hash
    if is_done and all(memory_version.id != version.id for memory_version in read_versions(files)):
        record_version(files, version)
    files.remove(_PENDING)


def convert_files(files: MemoryFiles, paths: Iterable[str]) -> int:
    """Rewrite all files in the folder's format, encrypted or not. Each is replaced atomically, and
    both formats can be read, so a crash does no harm. The lock must be held."""
    versions = read_versions(files)
    objects = {_object_path(version.hash) for version in versions if version.hash}
    count = 0
    for path in (*paths, *sorted(objects)):
        content = files.read(path)
        if content is not None:
            files.write(path, content)
            count += 1
    for ledger in (LEDGER, _READERS):
        lines = [files.seal(line) for line in files.lines(ledger, max_bytes=_MAX_BYTES)]
        if lines:
            files.write_clear(ledger, b"".join(line.rstrip(b"\n") + b"\n" for line in lines))
    return count


def read_purges(files: MemoryFiles) -> list[str]:
    content = files.read(_PURGES)
    return [] if content is None else msgspec.json.decode(content, type=list[str])


def begin_purge(files: MemoryFiles, path: str) -> None:
    """Record that a purge has begun, so that a crash does not end it; the lock must be held."""
    paths = [*read_purges(files), path]
    files.write(_PURGES, msgspec.json.encode(paths))


def purge_contents(files: MemoryFiles, path: str) -> int:
    """Remove the contents of all versions of a memory, except contents that another memory has too,
    and end its purge; the lock must be held."""
    versions = read_versions(files)
    shared = {version.hash for version in versions if version.path != path}
    hashes = {version.hash for version in versions if version.path == path} - shared - {""}
    for digest in hashes:
        files.remove(_object_path(digest))
    other_purges = [item for item in read_purges(files) if item != path]
    files.write(_PURGES, msgspec.json.encode(other_purges))
    return len(hashes)


def purge_mentions(files: MemoryFiles, path: str, mention: bytes) -> int:
    """Remove the contents of past versions of a file that contain `mention`."""
    versions = [version for version in read_versions(files) if version.path == path]
    if not versions:
        return 0
    removed = 0
    for digest in {version.hash for version in versions[:-1]} - {versions[-1].hash, ""}:
        if mention in (files.read(_object_path(digest)) or b""):
            files.remove(_object_path(digest))
            removed += 1
    return removed


def _object_path(digest: str) -> str:
    return f"{FOLDER}/objects/{digest[:2]}/{digest}"
