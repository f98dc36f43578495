"""The storage format of snapshots: a manifest of every path with its kind, mode and content, the
contents by their hash, and the difference between two manifests."""

from __future__ import annotations

import hashlib
import os
import secrets
import zlib
from collections.abc import Callable, Iterable, Iterator, Mapping
from io import BufferedIOBase
from pathlib import Path
from typing import Literal, TypeAlias

import msgspec
from msgspec import Struct

from mainspring.core.errors import ToolEnvironmentError
from mainspring.core.ports import FileChange

Kind: TypeAlias = Literal["file", "folder", "link", "unreadable"]

FOLDER = b"folder"


class SnapshotEntry(Struct, frozen=True, array_like=True, gc=False):
    path: bytes
    kind: Kind
    """`unreadable`: we were not allowed to read it; a restore does not change it."""
    mode: int = 0
    content: bytes = b""
    """The hash of a file's content, in hexadecimal; the target of a link; `FOLDER` for an
    unreadable folder."""

    @property
    def is_folder(self) -> bool:
        return self.kind == "folder" or (self.kind == "unreadable" and self.content == FOLDER)


ManifestEntries: TypeAlias = dict[bytes, SnapshotEntry]
"""Entries by path."""

_DECODER = msgspec.msgpack.Decoder(list[SnapshotEntry])


def pack_manifest(items: Iterable[SnapshotEntry]) -> tuple[str, bytes]:
    """The id of a snapshot, which is the hash of its manifest, and the compressed manifest."""
    plain = msgspec.msgpack.encode(sorted(items, key=lambda item: item.path))
    return hashlib.sha256(plain).hexdigest(), zlib.compress(plain, 1)


def unpack_manifest(name: str, stored: bytes) -> ManifestEntries:
    """Raises ValueError if these are not the bytes of that snapshot."""
    try:
        plain = zlib.decompress(stored)
    except zlib.error as error:
        raise ValueError("not compressed") from error
    if hashlib.sha256(plain).hexdigest() != name:
        raise ValueError("its content has changed")
    return {item.path: item for item in _DECODER.decode(plain)}


def diff_manifests(
    older: Mapping[bytes, SnapshotEntry], newer: Mapping[bytes, SnapshotEntry]
) -> list[FileChange]:
    """The differences, sorted by path; a folder that was added or removed with its content is left
    out."""
    paths = older.keys() | newer.keys()
    differing = sorted(path for path in paths if older.get(path) != newer.get(path))
    differing_parents = {parent for path in differing for parent in _parents(path)}
    return [
        _change_of(path, older.get(path), newer.get(path))
        for path in differing
        if path not in differing_parents or (path in older and path in newer)
    ]


def _parents(path: bytes) -> Iterable[bytes]:
    while path := path.rpartition(b"/")[0]:
        yield path


def _change_of(path: bytes, older: SnapshotEntry | None, newer: SnapshotEntry | None) -> FileChange:
    name = path.decode("utf-8", "backslashreplace")
    if older is None:
        return FileChange(name, "added")
    return FileChange(name, "removed" if newer is None else "modified")


CHUNK = 1 << 20  # bytes read and hashed at once


def read_chunks(file: BufferedIOBase) -> Iterator[bytes]:
    while piece := file.read(CHUNK):
        yield piece


class ObjectStore:
    """Contents by their hash. The session's programs cannot access this folder, so plain paths are
    safe."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._unfinished = folder / "unfinished"

    def prepare(self) -> None:
        """Remove temporary files that a crash left behind. Hold the lock, so that no one else
        writes."""
        for name in (self._folder, self._unfinished):
            name.mkdir(mode=0o700, parents=True, exist_ok=True)
        for file in self._unfinished.iterdir():
            file.unlink()

    def digests(self) -> set[str]:
        """The hashes of all stored contents."""
        return {
            shelf.name + name
            for shelf in self._folder.iterdir()
            if len(shelf.name) == 2
            for name in os.listdir(shelf)
        }

    def put(self, pieces: Iterable[bytes]) -> str:
        """Store content and return its hash."""
        temporary = self._unfinished / secrets.token_hex(8)
        digest = hashlib.sha256()
        with temporary.open("xb") as file:
            for piece in pieces:
                digest.update(piece)
                file.write(piece)
        place = self._place(digest.hexdigest())
        place.parent.mkdir(mode=0o700, exist_ok=True)
        temporary.rename(place)
        return digest.hexdigest()

    def copy(self, name: str, write: Callable[[bytes], None]) -> None:
        """Pass content to `write`, in chunks.

        Raises:
            ToolEnvironmentError: it is missing or damaged; ignore the chunks then.
        """
        digest = hashlib.sha256()
        try:
            with self._place(name).open("rb") as file:
                for piece in read_chunks(file):
                    digest.update(piece)
                    write(piece)
        except FileNotFoundError:
            raise ToolEnvironmentError(f"the snapshot has lost the content {name}") from None
        if digest.hexdigest() != name:
            raise ToolEnvironmentError(f"the snapshot has a damaged content {name}")

    def keep_only(self, names: set[str]) -> int:
        """Remove all other contents; returns how many were removed."""
        removed = self.digests() - names
        for name in removed:
            self._place(name).unlink()
        return len(removed)

    def _place(self, name: str) -> Path:
        return self._folder / name[:2] / name[2:]
