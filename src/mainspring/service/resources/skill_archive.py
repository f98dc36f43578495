"""What is uploaded as a skill: checked, and packed into an archive. `skills` keeps it."""

from __future__ import annotations

import hashlib
import io
import re
import stat
import zipfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import msgspec

from mainspring.core.errors import InvalidInput, TooLarge
from mainspring.harness.context.frontmatter import read_frontmatter
from mainspring.runtime.packages.upload import (
    MANIFEST,
    PackageLimits,
    UploadedFile,
    check_files,
    unpack_archive,
)

_NAME = re.compile(r"[a-z0-9]+(-[a-z0-9]+)*")
_MAX_NAME = 64
_MAX_DESCRIPTION = 1024
_MAX_MANIFEST_BYTES = 1_000_000
_ZIP_UNIX = 3
_ZIP_EPOCH = (1980, 1, 1, 0, 0, 0)


@dataclass(frozen=True, slots=True, kw_only=True)
class SkillBundle:
    """A skill that may be kept."""

    name: str
    description: str
    files: tuple[UploadedFile, ...]
    """In the order of their paths, which are those inside of the skill's folder."""
    content_hash: str


def read_skill_bundle(uploads: Sequence[UploadedFile], limits: PackageLimits) -> SkillBundle:
    """Files under one folder, or that folder as a zip archive.

    Raises: InvalidInput, TooLarge: with the file and the reason.
    """
    match uploads:
        case [UploadedFile(path=path, content=content)] if path.lower().endswith(".zip"):
            uploads = list(unpack_archive(path, content, limits))
        case _:
            pass
    folder, files = _split_folder(check_files(uploads, limits))
    name, description = _read_manifest(folder, files)
    return SkillBundle(
        name=name, description=description, files=files, content_hash=_content_hash(files)
    )


def pack_skill(bundle: SkillBundle) -> bytes:
    """A zip archive with one folder, called as the skill is; the same bundle is the same bytes."""
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w", zipfile.ZIP_DEFLATED) as archive:
        for file in bundle.files:
            entry = zipfile.ZipInfo(f"{bundle.name}/{file.path}", date_time=_ZIP_EPOCH)
            entry.create_system = _ZIP_UNIX
            entry.external_attr = (stat.S_IFREG | (0o755 if file.is_executable else 0o644)) << 16
            entry.compress_type = zipfile.ZIP_DEFLATED
            archive.writestr(entry, file.content)
    return buffer.getvalue()


def _split_folder(uploads: Mapping[str, UploadedFile]) -> tuple[str, tuple[UploadedFile, ...]]:
    """The folder, and the files by their paths in it."""
    folders: set[str] = set()
    files: list[UploadedFile] = []
    for path, upload in sorted(uploads.items()):
        folder, slash, inside = path.partition("/")
        if not slash:
            raise InvalidInput(f"{path}: put all files into one folder, such as skill/{path}")
        folders.add(folder)
        files.append(replace(upload, path=inside))
    if len(folders) != 1:
        shown = ", ".join(sorted(folders)[:3]) or "none"
        raise InvalidInput(f"files: must all be in one folder; there is {shown}")
    return folders.pop(), tuple(files)


def _read_manifest(folder: str, files: Sequence[UploadedFile]) -> tuple[str, str]:
    manifest = next((file for file in files if file.path == MANIFEST), None)
    where = f"{folder}/{MANIFEST}"
    if manifest is None:
        raise InvalidInput(f"{where}: there is no such file, and a skill needs it")
    if len(manifest.content) > _MAX_MANIFEST_BYTES:
        raise TooLarge(f"{where}: has {_MAX_MANIFEST_BYTES} bytes at most")
    try:
        head = read_frontmatter(manifest.content.decode("utf-8-sig"))
    except UnicodeDecodeError:
        raise InvalidInput(f"{where}: not UTF-8") from None
    if head.issues:  # what is published has to be right
        odd = head.issues[0]
        raise InvalidInput(f"{where}:{odd.line}: {odd.what}")
    name = _check_name(head.fields.get("name", folder), where)
    return name, _check_description(head.fields.get("description"), where)


def _check_name(name: object, where: str) -> str:
    if not isinstance(name, str) or len(name) > _MAX_NAME or not _NAME.fullmatch(name):
        raise InvalidInput(
            f"{where}: name: 1 to {_MAX_NAME} lowercase letters, digits and single hyphens"
        )
    return name


def _check_description(description: object, where: str) -> str:
    if not isinstance(description, str) or not description.strip():
        raise InvalidInput(f"{where}: description: must say what the skill does and when to use it")
    if len(description.strip()) > _MAX_DESCRIPTION:
        raise InvalidInput(f"{where}: description: at most {_MAX_DESCRIPTION} characters")
    return description.strip()


def _content_hash(files: Sequence[UploadedFile]) -> str:
    listed = [
        (file.path, file.is_executable, hashlib.sha256(file.content).hexdigest()) for file in files
    ]
    return hashlib.sha256(msgspec.json.encode(listed)).hexdigest()
