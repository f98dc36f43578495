"""Reads and writes the files of a memory folder through one descriptor, in the clear or sealed with
the vault's key. Sealed content is text, so that git stores it like any other file.
"""

from __future__ import annotations

import os
from base64 import b64decode, b64encode
from collections.abc import Callable, Generator, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

from mainspring.core.errors import InvalidInput, StoreCorrupt
from mainspring.files.beneath import (
    MAX_BYTES,
    ensure_folder,
    open_folder,
    read_file,
    remove_file,
    write_file,
)
from mainspring.files.openat import OpenDescriptor
from mainspring.files.written_files import WRITTEN_FILES

MARKER = ".sealed"
"""A folder that has this file is encrypted."""
_MAX_DEPTH = 4  # folders
_PREFIX = b"mainspring-sealed-1:"


@dataclass(frozen=True, slots=True)
class ContentSeal:
    """Encrypts and decrypts with the vault's key."""

    seal: Callable[[bytes], bytes]
    unseal: Callable[[bytes], bytes]


@dataclass(frozen=True, slots=True)
class MemoryFiles:
    """Reads files that are in the clear as they are, even in an encrypted folder."""

    root: int
    content_seal: ContentSeal | None
    is_sealed: bool

    def read(self, path: str, *, max_bytes: int = MAX_BYTES) -> bytes | None:
        """`None` if there is no such file. Raises: InvalidInput."""
        content = read_file(self.root, path, max_bytes=2 * max_bytes)
        return None if content is None else self.unseal(content, path)

    def write(self, path: str, content: bytes) -> None:
        write_file(self.root, path, self.seal(content), is_synced=True)

    def write_clear(self, path: str, content: bytes) -> None:
        write_file(self.root, path, content, is_synced=True)

    def remove(self, path: str) -> None:
        remove_file(self.root, path)

    def lines(self, path: str, *, max_bytes: int) -> list[bytes]:
        """Return the lines of an append-only file, without a last line that a crash cut off."""
        content = read_file(self.root, path, max_bytes=max_bytes) or b""
        lines = content[: content.rfind(b"\n") + 1].splitlines()
        return [self.unseal(line, path) for line in lines]

    def append(self, path: str, line: bytes) -> None:
        parent, _, name = path.rpartition("/")
        with ensure_folder(self.root, parent) as folder:
            flags = os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW
            WRITTEN_FILES.add(folder, name)
            with OpenDescriptor(os.open(name, flags, 0o644, dir_fd=folder)) as descriptor:
                content = _append(descriptor, self.seal(line).rstrip(b"\n") + b"\n")
            WRITTEN_FILES.add(folder, name, content)

    def seal(self, content: bytes) -> bytes:
        if not self.is_sealed:
            return content
        if self.content_seal is None:
            raise InvalidInput("this memory folder is encrypted, and no key is available")
        return _PREFIX + b64encode(self.content_seal.seal(content)) + b"\n"

    def unseal(self, content: bytes, path: str) -> bytes:
        if not content.startswith(_PREFIX):
            return content
        if self.content_seal is None:
            raise InvalidInput(f"{path} is encrypted, and no key is available")
        try:
            return self.content_seal.unseal(b64decode(content[len(_PREFIX) :].strip()))
        except (StoreCorrupt, ValueError) as error:
            raise InvalidInput(
                f"{path} cannot be decrypted: it was encrypted with another key, or was changed"
            ) from error


def _append(descriptor: int, line: bytes) -> bytes:
    """Append a line after the last complete one; returns the whole content if a guard needs it."""
    size = end = os.fstat(descriptor).st_size
    is_cut = size and os.pread(descriptor, 1, size - 1) != b"\n"  # cut off by a crash
    content = os.pread(descriptor, size, 0) if is_cut or WRITTEN_FILES.is_needed else b""
    if is_cut:
        end = content.rfind(b"\n") + 1
        os.ftruncate(descriptor, end)
    os.pwrite(descriptor, line, end)
    os.fsync(descriptor)
    return content[:end] + line


def is_sealed(content: bytes) -> bool:
    return content.startswith(_PREFIX)


@contextmanager
def open_files(
    folder: Path, content_seal: ContentSeal | None
) -> Generator[MemoryFiles, None, None]:
    with open_folder(folder) as root:
        yield MemoryFiles(root, content_seal, is_sealed=read_file(root, MARKER) is not None)


def markdown_files(folder: Path, prefix: str, depth: int) -> Iterator[tuple[str, os.stat_result]]:
    """Yield each Markdown file with its state. Every message of a session calls this, so it makes
    no system call that it does not need."""
    with os.scandir(folder) as entries:
        for entry in entries:
            name = entry.name
            if name[0] == ".":
                continue
            if name.endswith(".md") and entry.is_file(follow_symlinks=False):
                with suppress(FileNotFoundError):  # forgotten meanwhile
                    yield prefix + name, entry.stat(follow_symlinks=False)
            elif depth < _MAX_DEPTH and entry.is_dir(follow_symlinks=False):
                yield from markdown_files(Path(entry.path), f"{prefix}{name}/", depth + 1)
