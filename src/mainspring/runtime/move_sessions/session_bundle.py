"""A moving session as one tar file: its log, its workspace, and a manifest of their hashes. A
bundle from a client is checked completely before any part of it is used.
"""

from __future__ import annotations

import hashlib
import os
import tarfile
from collections.abc import AsyncGenerator, Collection, Generator
from contextlib import aclosing
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import IO

import msgspec
from anyio import to_thread
from msgspec import Struct

from mainspring.core.envelope import EventLine
from mainspring.core.errors import InvalidInput, TooLarge
from mainspring.core.events import SessionMoved
from mainspring.log.container import ContainerReader
from mainspring.log.lines import InboxLine, SessionLine, decode
from mainspring.log.session_log import SessionLog
from mainspring.log.transfer import ImportedSession, export_lines
from mainspring.log.upcast import read_line
from mainspring.runtime.move_sessions.workspace_archive import (
    MAX_ENTRIES,
    PREFIX,
    PackResult,
    pack,
    unpack,
)

LOG = "log.jsonl"
MANIFEST = "manifest.json"
FORMAT = 1  # its version
_MAX_MANIFEST = 64 << 20  # bytes


class BundleManifest(Struct, frozen=True, kw_only=True):
    format: int
    session_id: str
    transfer_id: str
    log: str
    """The hash of the log's lines."""
    files: dict[str, str]
    """The files of the workspace: hashes by path."""
    left_out: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class BundleSource:
    """A session sealed for a transfer, and where its files are."""

    session_id: str
    transfer_id: str
    workspace: Path | None
    hidden: Collection[str] = ()
    """Paths below the workspace that are not moved."""


async def write_bundle(log: SessionLog, source: BundleSource, folder: Path) -> Path:
    """Create a private file in this folder.

    Raises: OSError.
    """
    await to_thread.run_sync(lambda: folder.mkdir(mode=0o700, parents=True, exist_ok=True))
    lines, bundle = (
        folder / f"{source.transfer_id}.log",
        folder / f"{source.transfer_id}.tar",
    )
    with _new_file(lines) as file:
        async with aclosing(export_lines(log, source.session_id)) as exported:
            async for line in exported:
                await to_thread.run_sync(file.writelines, (line, b"\n"))
    try:
        await to_thread.run_sync(partial(_write, source, lines, bundle))
    finally:
        lines.unlink()
    return bundle


def _write(source: BundleSource, lines: Path, bundle: Path) -> None:
    with _new_file(bundle) as file, tarfile.open(fileobj=file, mode="w") as archive:
        packed = PackResult()
        if source.workspace is not None:
            packed = pack(archive, source.workspace, hidden=source.hidden)
        _add(archive, lines, LOG)
        manifest = BundleManifest(
            format=FORMAT,
            session_id=source.session_id,
            transfer_id=source.transfer_id,
            log=_digest(lines),
            files=packed.files,
            left_out=tuple(packed.left_out),
        )
        encoded = lines.with_suffix(".manifest")
        try:
            encoded.write_bytes(msgspec.json.encode(manifest))
            _add(archive, encoded, MANIFEST)
        finally:
            encoded.unlink(missing_ok=True)


def _add(archive: tarfile.TarFile, path: Path, name: str) -> None:
    """Add a file without the names and ids of users."""
    entry = tarfile.TarInfo(name)
    entry.mode = 0o600
    with path.open("rb") as file:
        entry.size = os.fstat(file.fileno()).st_size
        archive.addfile(entry, file)


def _new_file(path: Path) -> IO[bytes]:
    path.unlink(missing_ok=True)  # left by an attempt that was killed
    return os.fdopen(os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW, 0o600), "wb")


def _digest(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


class SessionBundle:
    """A received bundle. Nothing in it is trusted until it is verified."""

    def __init__(self, archive: tarfile.TarFile, bundle_manifest: BundleManifest) -> None:
        self._archive = archive
        self.bundle_manifest = bundle_manifest

    @classmethod
    def read(cls, archive: tarfile.TarFile, *, session_id: str, transfer_id: str) -> SessionBundle:
        """Raises: InvalidInput: it is not a bundle, or belongs to another transfer."""
        entry = _member(archive, MANIFEST)
        if entry.size > _MAX_MANIFEST:
            raise InvalidInput("the bundle's manifest is too large")
        try:
            content = archive.extractfile(entry)
            manifest = msgspec.json.decode(content.read() if content else b"", type=BundleManifest)
        except (msgspec.DecodeError, RecursionError) as error:
            raise InvalidInput(f"the bundle's manifest cannot be read: {error}") from error
        if manifest.format != FORMAT:
            raise InvalidInput("the bundle was written by a newer version of Mainspring")
        if (manifest.session_id, manifest.transfer_id) != (session_id, transfer_id):
            raise InvalidInput("the bundle belongs to another session or transfer")
        return cls(archive, manifest)

    def check_log(self) -> int:
        """Verify the log and return the number of its last event, which records the move by this
        transfer.

        Raises:
            InvalidInput: it differs from what was sent, has other sessions, events after the move
                or unread messages.
        """
        digest, count = hashlib.sha256(), 0
        last: EventLine | None = None
        for raw in self._raw_lines():
            digest.update(raw)
            match line := decode(raw):
                case SessionLine(session_id=id_, parent_id=parent):
                    count += 1
                    if id_ != self.bundle_manifest.session_id or parent is not None or count > 1:
                        raise InvalidInput(
                            "the bundle has other sessions besides the one that moves"
                        )
                case EventLine():
                    last = line
                case InboxLine(seq=None):
                    raise InvalidInput("the session has unread messages")
                case _:
                    pass
        if digest.hexdigest() != self.bundle_manifest.log:
            raise InvalidInput("the log in the bundle is not the one that was sent")
        move = SessionMoved(transfer_id=self.bundle_manifest.transfer_id)
        if last is None or read_line(last).payload != move:
            raise InvalidInput("the session was not sealed for this transfer at its origin")
        return last.seq

    async def lines(self) -> AsyncGenerator[bytes, None]:
        for line in self._raw_lines():
            yield line

    def read_log(self, *, max_bytes: int, max_events: int) -> ImportedSession:
        """The log that a client sent, with its hash chain verified; nothing is stored.

        Raises: InvalidInput, TooLarge.
        """
        if _member(self._archive, LOG).size > max_bytes:
            raise TooLarge(f"the log of a pushed session may have at most {max_bytes:,} bytes")
        reader, session = ContainerReader(), None
        try:
            self.check_log()
            for raw in self._raw_lines():
                item = reader.take(raw)
                session = item if isinstance(item, ImportedSession) else session
                if reader.open is not None and len(reader.open.events) > max_events:
                    raise TooLarge(f"a pushed session may have at most {max_events:,} events")
        except RecursionError:
            raise InvalidInput("the log is nested too deeply") from None
        if session is None or reader.open is not None or reader.sessions != 1:
            raise InvalidInput("the bundle must have exactly one complete session")
        return session

    def unpack_workspace(self, folder: Path, *, hidden: Collection[str] = ()) -> None:
        """Raises: InvalidInput, TooLarge, OSError."""
        unpack(self._archive, folder, self.bundle_manifest.files, hidden=hidden)

    def _raw_lines(self) -> Generator[bytes, None, None]:
        file = self._archive.extractfile(_member(self._archive, LOG))
        if file is not None:
            yield from file


def _member(archive: tarfile.TarFile, name: str) -> tarfile.TarInfo:
    try:
        entry = archive.getmember(name)
    except KeyError:
        raise InvalidInput(f"the bundle has no {name}") from None
    if not entry.isreg() or entry.name.startswith(PREFIX):
        raise InvalidInput(f"the bundle's {name} is not a file")
    return entry


_BLOCK = 512  # bytes of a tar's block
_MAX_PAX = 16_384  # bytes of a tar's extended header
_FILE, _LINK, _FOLDER, _PAX = b"0", b"2", b"5", b"x"
_PAX_NAMES = frozenset({"path", "linkpath"})


@dataclass(frozen=True, slots=True, kw_only=True)
class UploadLimits:
    max_bytes: int = 1 << 30
    """The limit for the whole bundle."""
    max_log_bytes: int = 64 << 20
    max_events: int = 50_000
    max_entries: int = MAX_ENTRIES


def check_headers(file: Path, limits: UploadLimits) -> None:
    """Raises: InvalidInput, TooLarge."""
    size = file.stat().st_size
    if size > limits.max_bytes:
        raise TooLarge(f"a pushed session may have at most {limits.max_bytes:,} bytes")
    with file.open("rb") as stream:
        offset = count = 0
        previous_kind = b""
        while (header := _header(stream, offset)) is not None:
            kind, length = header
            count += kind != _PAX
            if count > limits.max_entries:
                raise TooLarge(f"a pushed session may have at most {limits.max_entries:,} files")
            if kind == _PAX:
                if previous_kind == _PAX:
                    raise InvalidInput("the bundle has two headers for one file")
                _check_pax(stream.read(length))
            previous_kind = kind
            offset += _BLOCK + -(-length // _BLOCK) * _BLOCK
            if offset > size:
                raise InvalidInput("the bundle ends too early")


def _header(stream: IO[bytes], offset: int) -> tuple[bytes, int] | None:
    """The kind and length of the next entry; `None` at the end of the archive."""
    stream.seek(offset)
    block = stream.read(_BLOCK)
    if len(block) < _BLOCK:
        raise InvalidInput("the bundle ends too early")
    if block == bytes(_BLOCK):
        return None
    kind, digits = block[156:157], block[124:136].rstrip(b"\0 ")
    if kind not in (_FILE, _LINK, _FOLDER, _PAX):
        raise InvalidInput("the bundle has something that is not a file, folder or link")
    if not digits or not all(48 <= digit <= 55 for digit in digits):
        raise InvalidInput("the bundle has a file without a size")
    length = int(digits, 8)
    if (kind in (_LINK, _FOLDER) and length) or (kind == _PAX and length > _MAX_PAX):
        raise InvalidInput("the bundle has a header that is too large")
    return kind, length


def _check_pax(content: bytes) -> None:
    """Only long names are allowed: a `size` would shift everything after it."""
    while content:
        digits, _, fields = content.partition(b" ")
        if not digits.isdigit() or not len(digits) < 6:
            raise InvalidInput("the bundle has a header that cannot be read")
        length = int(digits)
        record = content[:length]
        name, equals, _ = fields[: length - len(digits) - 1].partition(b"=")
        is_whole = len(record) == length and length > len(digits) + 1 and record.endswith(b"\n")
        if not is_whole or not equals or name.decode(errors="replace") not in _PAX_NAMES:
            raise InvalidInput("the bundle has a header that Mainspring does not write")
        content = content[length:]


def open_checked(file: Path, limits: UploadLimits) -> tarfile.TarFile:
    """Raises: InvalidInput, TooLarge."""
    check_headers(file, limits)
    try:
        return tarfile.open(file, "r:")
    except tarfile.TarError as error:
        raise InvalidInput(f"the received file is not a session bundle: {error}") from error
