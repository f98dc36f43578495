"""What is uploaded as a skill: checked, and packed into an archive. `skills` keeps it."""

from __future__ import annotations

import hashlib
import io
import re
import stat
import unicodedata
import zipfile
import zlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import PurePosixPath

import msgspec

from mainspring.core.errors import InvalidInput, TooLarge
from mainspring.harness.context.markdown import read_frontmatter

MANIFEST = "SKILL.md"

_NAME = re.compile(r"[a-z0-9]+(-[a-z0-9]+)*")
_MAX_NAME = 64
_MAX_DESCRIPTION = 1024
_MAX_MANIFEST_BYTES = 1_000_000
_MAX_DEPTH = 16
_MAX_PATH = 512
_MAX_SEGMENT_BYTES = 255
_ENTRY = b"PK\x01\x02"
_MACOS = "__MACOSX"
_UNIX = (3, 19)
_EPOCH = (1980, 1, 1, 0, 0, 0)


@dataclass(frozen=True, slots=True, kw_only=True)
class SkillLimits:
    max_bytes: int = 30 * 1024 * 1024
    """Of an upload, and of what it unpacks to."""
    max_files: int = 1000


LIMITS = SkillLimits()


@dataclass(frozen=True, slots=True, kw_only=True)
class Upload:
    path: str
    """As the client gave it."""
    content: bytes
    is_executable: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Bundle:
    """A skill that may be kept."""

    name: str
    description: str
    files: tuple[Upload, ...]
    """In the order of their paths, which are those inside of the skill's folder."""
    content_hash: str


def read_bundle(uploads: Sequence[Upload], limits: SkillLimits) -> Bundle:
    """Files under one folder, or that folder as a zip archive.

    Raises: InvalidInput, TooLarge: with the file and the reason.
    """
    match uploads:
        case [Upload(path=path, content=content)] if path.lower().endswith(".zip"):
            uploads = list(_unpacked(path, content, limits))
        case _:
            pass
    if len(uploads) > limits.max_files:
        raise TooLarge(f"a skill has {limits.max_files} files at most")
    if sum(len(upload.content) for upload in uploads) > limits.max_bytes:
        raise _too_large(limits)
    folder, files = _in_one_folder(uploads)
    name, description = _described(folder, files)
    return Bundle(name=name, description=description, files=files, content_hash=_hash(files))


def packed(bundle: Bundle) -> bytes:
    """A zip archive with one folder, called as the skill is; the same bundle is the same bytes."""
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w", zipfile.ZIP_DEFLATED) as archive:
        for file in bundle.files:
            entry = zipfile.ZipInfo(f"{bundle.name}/{file.path}", date_time=_EPOCH)
            entry.create_system = _UNIX[0]
            entry.external_attr = (stat.S_IFREG | (0o755 if file.is_executable else 0o644)) << 16
            entry.compress_type = zipfile.ZIP_DEFLATED
            archive.writestr(entry, file.content)
    return buffer.getvalue()


def checked_path(path: str) -> PurePosixPath:
    """A path that stays inside of whatever folder it is unpacked into, on every system.

    Raises: InvalidInput.
    """
    shown = repr(path[:_MAX_PATH])
    if not path or len(path) > _MAX_PATH:
        raise InvalidInput(f"{shown}: a path has 1 to {_MAX_PATH} characters")
    if "\\" in path or ":" in path:
        raise InvalidInput(f"{shown}: folders are separated by /, and no path has a drive")
    if not path.isprintable():
        raise InvalidInput(f"{shown}: has a character that cannot be seen")
    segments = path.split("/")
    if len(segments) > _MAX_DEPTH:
        raise InvalidInput(f"{shown}: at most {_MAX_DEPTH} folders deep")
    for segment in segments:
        if segment in ("", ".", "..") or segment != segment.strip():
            raise InvalidInput(f"{shown}: must be a plain relative path, such as skill/{MANIFEST}")
        if len(segment.encode()) > _MAX_SEGMENT_BYTES:
            raise InvalidInput(f"{shown}: a name has {_MAX_SEGMENT_BYTES} bytes at most")
    return PurePosixPath(path)


def _too_large(limits: SkillLimits) -> TooLarge:
    return TooLarge(f"a skill has {limits.max_bytes} bytes at most, unpacked")


def _unpacked(path: str, content: bytes, limits: SkillLimits) -> Iterator[Upload]:
    # Before it is opened: opening makes an object of every entry, and entries are cheap to send.
    # Archives among the files have entries of their own, hence the generous factor.
    if content.count(_ENTRY) > 10 * limits.max_files:
        raise TooLarge(f"{path}: a skill has {limits.max_files} files at most")
    left = limits.max_bytes
    try:
        with zipfile.ZipFile(io.BytesIO(content)) as archive:
            for entry in archive.infolist():
                if entry.is_dir() or entry.filename.startswith(f"{_MACOS}/"):
                    continue
                _check_entry(entry)
                with archive.open(entry) as opened:
                    unpacked = opened.read(left + 1)
                left -= len(unpacked)
                if left < 0:
                    raise _too_large(limits)
                yield Upload(
                    path=entry.filename,
                    content=unpacked,
                    is_executable=bool(_unix_mode(entry) & 0o111),
                )
    except (zipfile.BadZipFile, zlib.error, EOFError, ValueError, NotImplementedError) as error:
        raise InvalidInput(f"{path}: not a zip archive that can be read: {error}") from error


def _check_entry(entry: zipfile.ZipInfo) -> None:
    shown = repr(entry.filename[:_MAX_PATH])
    if stat.S_IFMT(_unix_mode(entry)) not in (0, stat.S_IFREG):
        raise InvalidInput(f"{shown}: neither a file nor a folder; links are not taken")
    if entry.flag_bits & 0x1:
        raise InvalidInput(f"{shown}: encrypted")
    if entry.compress_type not in (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED):
        raise InvalidInput(f"{shown}: compressed in another way than zip's usual one")


def _unix_mode(entry: zipfile.ZipInfo) -> int:
    return entry.external_attr >> 16 if entry.create_system in _UNIX else 0


def _in_one_folder(uploads: Sequence[Upload]) -> tuple[str, tuple[Upload, ...]]:
    """The folder, and the files by their paths in it."""
    files: dict[str, Upload] = {}
    folders: set[str] = set()
    taken: dict[str, str] = {}
    for upload in uploads:
        path = checked_path(upload.path)
        if len(path.parts) < 2:
            raise InvalidInput(
                f"{upload.path}: put all files into one folder, such as skill/{upload.path}"
            )
        # As file systems that ignore case or normalise see it.
        place = unicodedata.normalize("NFC", upload.path).casefold()
        if place in taken:
            raise InvalidInput(f"{upload.path}: is there already, as {taken[place]}")
        taken[place] = upload.path
        folders.add(path.parts[0])
        files["/".join(path.parts[1:])] = upload
    if len(folders) != 1:
        shown = ", ".join(sorted(folders)[:3]) or "none"
        raise InvalidInput(f"files: must all be in one folder; there is {shown}")
    _check_no_file_is_folder(taken)
    return folders.pop(), tuple(
        Upload(path=path, content=file.content, is_executable=_is_script(file))
        for path, file in sorted(files.items())
    )


def _check_no_file_is_folder(taken: dict[str, str]) -> None:
    for place, shown in taken.items():
        for parent in PurePosixPath(place).parents:
            if str(parent) in taken:
                raise InvalidInput(f"{shown}: {taken[str(parent)]} is a file and no folder")


def _is_script(file: Upload) -> bool:
    """Files that are sent one by one come without a mode."""
    return file.is_executable or file.content.startswith(b"#!")


def _described(folder: str, files: Sequence[Upload]) -> tuple[str, str]:
    manifest = next((file for file in files if file.path == MANIFEST), None)
    where = f"{folder}/{MANIFEST}"
    if manifest is None:
        raise InvalidInput(f"{where}: there is no such file, and a skill needs it")
    if len(manifest.content) > _MAX_MANIFEST_BYTES:
        raise TooLarge(f"{where}: has {_MAX_MANIFEST_BYTES} bytes at most")
    try:
        head, _ = read_frontmatter(manifest.content.decode("utf-8-sig"))
    except UnicodeDecodeError:
        raise InvalidInput(f"{where}: not UTF-8") from None
    except InvalidInput as error:
        raise InvalidInput(f"{where}: {error}") from error
    return _name(head.get("name", folder), where), _description(head.get("description"), where)


def _name(name: object, where: str) -> str:
    if not isinstance(name, str) or len(name) > _MAX_NAME or not _NAME.fullmatch(name):
        raise InvalidInput(
            f"{where}: name: 1 to {_MAX_NAME} lowercase letters, digits and single hyphens"
        )
    return name


def _description(description: object, where: str) -> str:
    if not isinstance(description, str) or not description.strip():
        raise InvalidInput(f"{where}: description: must say what the skill does and when to use it")
    if len(description.strip()) > _MAX_DESCRIPTION:
        raise InvalidInput(f"{where}: description: at most {_MAX_DESCRIPTION} characters")
    return description.strip()


def _hash(files: Sequence[Upload]) -> str:
    listed = [
        (file.path, file.is_executable, hashlib.sha256(file.content).hexdigest()) for file in files
    ]
    return hashlib.sha256(msgspec.json.encode(listed)).hexdigest()
