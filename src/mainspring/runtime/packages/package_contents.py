"""The contents of a package, uploaded or on disk: read once and within limits, and their hash."""

from __future__ import annotations

import hashlib
import io
import os
import stat
import unicodedata
import zipfile
import zlib
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path, PurePosixPath

import msgspec
from msgspec import Struct

from mainspring.core.errors import InvalidInput, TooLarge
from mainspring.files.atomic_file import open_regular

MANIFEST = "SKILL.md"

_MAX_DEPTH = 16  # of archives' folders
_MAX_FOLDER_DEPTH = 32  # of folders on disk
_MAX_PATH = 512  # characters
_MAX_SEGMENT_BYTES = 255  # the kernel's NAME_MAX
_ENTRY = b"PK\x01\x02"
# An entry without a name makes `is_dir` raise an IndexError.
_UNREADABLE = (
    zipfile.BadZipFile,
    zlib.error,
    EOFError,
    ValueError,
    NotImplementedError,
    IndexError,
)
_MACOS = "__MACOSX"
_UNIX = (3, 19)  # the systems of a ZIP entry whose modes are Unix's (APPNOTE 4.4.2)


class PackageLimits(Struct, frozen=True, kw_only=True):
    max_bytes: int = 30 * 1024 * 1024
    """The limit for an upload, and for its unpacked contents."""
    max_files: int = 1000


LIMITS = PackageLimits()
"""For uploads through the API, which are held in memory."""
DISK_LIMITS = PackageLimits(max_bytes=200_000_000, max_files=20_000)
"""For packages that a person installs or has in a folder."""


@dataclass(frozen=True, slots=True, kw_only=True)
class UploadedFile:
    path: str
    """The path as the client sent it."""
    content: bytes
    is_executable: bool = False


def unpack_archive(path: str, content: bytes, limits: PackageLimits) -> Iterator[UploadedFile]:
    """The files of a zip archive under the archive's own paths, which `check_files` then checks.

    Raises: InvalidInput, TooLarge.
    """
    # Checked before opening: that creates an object for every entry, and entries are cheap to send.
    # Archives inside the archive have entries of their own, hence the generous factor.
    if content.count(_ENTRY) > 10 * limits.max_files:
        raise TooLarge(f"{path}: a skill may have at most {limits.max_files} files")
    bytes_left = limits.max_bytes
    try:
        with zipfile.ZipFile(io.BytesIO(content)) as archive:
            for entry in archive.infolist():
                if entry.is_dir() or entry.filename.startswith(f"{_MACOS}/"):
                    continue
                _check_entry(entry)
                with archive.open(entry) as stream:
                    unpacked = stream.read(bytes_left + 1)
                bytes_left -= len(unpacked)
                if bytes_left < 0:
                    raise _too_large(limits)
                yield UploadedFile(
                    path=entry.filename,
                    content=unpacked,
                    is_executable=bool(_unix_mode(entry) & 0o111),
                )
    except _UNREADABLE as error:
        raise InvalidInput(f"{path} is not a readable ZIP archive: {error}") from error


def check_files(uploads: Sequence[UploadedFile], limits: PackageLimits) -> dict[str, UploadedFile]:
    """The files by path: within the limits, and with paths that are distinct on every file system.

    Raises: InvalidInput, TooLarge: with the file and the reason.
    """
    if len(uploads) > limits.max_files:
        raise TooLarge(f"a skill may have at most {limits.max_files} files")
    if sum(len(upload.content) for upload in uploads) > limits.max_bytes:
        raise _too_large(limits)
    names: dict[str, str] = {}
    for upload in uploads:
        check_path(upload.path)
        # Some file systems ignore case or normalise names.
        place = unicodedata.normalize("NFC", upload.path).casefold()
        if place in names:
            raise InvalidInput(f"{upload.path}: the path exists already, as {names[place]}")
        names[place] = upload.path
    _check_no_file_is_folder(names)
    return {
        upload.path: UploadedFile(
            path=upload.path, content=upload.content, is_executable=_is_script(upload)
        )
        for upload in uploads
    }


def check_path(path: str) -> PurePosixPath:
    """Check that a path stays inside the folder it is unpacked into, on every system.

    Raises: InvalidInput.
    """
    display_path = repr(path[:_MAX_PATH])
    if not path or len(path) > _MAX_PATH:
        raise InvalidInput(f"{display_path}: a path must have 1 to {_MAX_PATH} characters")
    if "\\" in path or ":" in path:
        raise InvalidInput(f"{display_path}: separate folders with /, and do not name a drive")
    if not path.isprintable():
        raise InvalidInput(f"{display_path}: has an invisible character")
    segments = path.split("/")
    if len(segments) > _MAX_DEPTH:
        raise InvalidInput(f"{display_path}: a path may be at most {_MAX_DEPTH} folders deep")
    for segment in segments:
        if segment in ("", ".", "..") or segment != segment.strip():
            raise InvalidInput(
                f"{display_path}: must be a plain relative path, such as skill/{MANIFEST}"
            )
        if len(segment.encode()) > _MAX_SEGMENT_BYTES:
            raise InvalidInput(
                f"{display_path}: a name may have at most {_MAX_SEGMENT_BYTES} bytes"
            )
    return PurePosixPath(path)


def _too_large(limits: PackageLimits) -> TooLarge:
    return TooLarge(f"a skill may have at most {limits.max_bytes} bytes, unpacked")


def _check_entry(entry: zipfile.ZipInfo) -> None:
    display_path = repr(entry.filename[:_MAX_PATH])
    if stat.S_IFMT(_unix_mode(entry)) not in (0, stat.S_IFREG):
        raise InvalidInput(f"{display_path}: neither a file nor a folder; links are not accepted")
    if entry.flag_bits & 0x1:
        raise InvalidInput(f"{display_path}: encrypted")
    if entry.compress_type not in (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED):
        raise InvalidInput(f"{display_path}: compressed with an unsupported method")


def _unix_mode(entry: zipfile.ZipInfo) -> int:
    return entry.external_attr >> 16 if entry.create_system in _UNIX else 0


def _check_no_file_is_folder(paths: dict[str, str]) -> None:
    for place, display_path in paths.items():
        for parent in PurePosixPath(place).parents:
            if str(parent) in paths:
                raise InvalidInput(f"{display_path}: {paths[str(parent)]} is a file, not a folder")


def _is_script(file: UploadedFile) -> bool:
    """Whether it can be run. Files that are uploaded one by one have no mode."""
    return file.is_executable or file.content.startswith(b"#!")


class ContentItem(Struct, frozen=True, kw_only=True):
    path: str
    """Relative to the package's folder, with slashes."""
    content: bytes = b""
    is_executable: bool = False
    link: str | None = None
    """The target, if this is a link."""
    is_special: bool = False
    """A pipe, a socket or a device: no package needs one."""


def read_contents(place: Path, limits: PackageLimits = DISK_LIMITS) -> tuple[ContentItem, ...]:
    """Everything in a folder, sorted by path; links are not followed. A single file is a package of
    one.

    Raises:
        InvalidInput: it does not exist or cannot be read.
        TooLarge: it exceeds the limits; a part that was not read cannot be trusted.
    """
    root = Path(os.path.realpath(place))
    items: list[ContentItem] = []
    bytes_left = limits.max_bytes
    try:
        for path in [root] if root.is_file() else _walk(root, 0):
            if len(items) == limits.max_files:
                raise TooLarge(f"{place.name}: a skill may have at most {limits.max_files:,} files")
            name = path.name if path == root else path.relative_to(root).as_posix()
            item = _read(path, name, bytes_left)
            bytes_left -= len(item.content)
            if bytes_left < 0:
                raise TooLarge(f"{place.name}: a skill may have at most {limits.max_bytes:,} bytes")
            items.append(item)
    except OSError as error:
        raise InvalidInput(f"{error.filename or place}: {error.strerror or error}") from error
    return tuple(sorted(items, key=lambda item: item.path))


def contents_hash(items: Iterable[ContentItem]) -> str:
    """A hash that changes with every name, byte, executable bit and link target."""
    entries = [
        (
            os.fsencode(item.path),
            item.is_executable,
            item.is_special,
            None if item.link is None else os.fsencode(item.link),
            hashlib.sha256(item.content).digest(),
        )
        for item in items
    ]
    return hashlib.sha256(msgspec.msgpack.encode(entries)).hexdigest()


def _walk(folder: Path, depth: int) -> Iterator[Path]:
    if depth > _MAX_FOLDER_DEPTH:
        raise TooLarge(f"{folder.name}: more than {_MAX_FOLDER_DEPTH} folders deep")
    with os.scandir(folder) as entries:
        children = sorted(entries, key=lambda entry: entry.name)
    for entry in children:
        if entry.is_dir(follow_symlinks=False):
            yield from _walk(Path(entry.path), depth + 1)
        else:
            yield Path(entry.path)


def _read(path: Path, name: str, max_bytes: int) -> ContentItem:
    mode = path.lstat().st_mode
    if stat.S_ISLNK(mode):
        return ContentItem(path=name, link=os.readlink(path))
    if not stat.S_ISREG(mode):
        return ContentItem(path=name, is_special=True)
    with open_regular(path, follows_links=False) as stream:
        mode = os.fstat(stream.fileno()).st_mode
        content = stream.read(max_bytes + 1)
    return ContentItem(path=name, content=content, is_executable=bool(mode & 0o111))
