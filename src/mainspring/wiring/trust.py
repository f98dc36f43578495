"""Folders whose settings somebody has vouched for, as those settings were then."""

from __future__ import annotations

import hashlib
import os
import tempfile
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path

import msgspec

from mainspring.core.errors import InvalidInput

LOCAL_FILE = ".mainspring/settings.local.json"
PROJECT_FILES = (
    ".claude/settings.json",
    ".mainspring/settings.json",
    ".claude/settings.local.json",
    LOCAL_FILE,
)
TRUSTED_FILE = ".mainspring/trusted.json"
_MAX_BYTES = 1_000_000


def is_trusted(folder: Path, contents: Mapping[str, bytes], *, home: Path) -> bool:
    """Whether a folder's settings, as they were read, are those that somebody has vouched for.
    Where there are none, there is nothing to distrust."""
    return not contents or _known(home).get(os.path.realpath(folder)) == _fingerprint(contents)


def trust(folder: Path, *, home: Path, contents: Mapping[str, bytes] | None = None) -> None:
    """Vouch for a folder's settings: as they are now, or those that are given.

    Raises: InvalidInput.
    """
    if not folder.is_dir():
        raise InvalidInput(f"{folder}: there is no such folder")
    vouched = read_project(folder) if contents is None else contents
    _keep({**_known(home), os.path.realpath(folder): _fingerprint(vouched)}, home)


def distrust(folder: Path, *, home: Path) -> bool:
    """Take it back; False if there was nothing to take back."""
    known = _known(home)
    was_known = known.pop(os.path.realpath(folder), None) is not None
    if was_known:
        _keep(known, home)
    return was_known


def read_project(folder: Path) -> dict[str, bytes]:
    """The settings files that a project has, by name.

    Raises: InvalidInput.
    """
    found = {name: read_bounded(folder / name) for name in PROJECT_FILES}
    return {name: content for name, content in found.items() if content is not None}


def _fingerprint(contents: Mapping[str, bytes]) -> str:
    digest = hashlib.sha256()
    for name in sorted(contents):
        digest.update(f"{name}\0{len(contents[name])}\0".encode())
        digest.update(contents[name])
    return digest.hexdigest()


def read_bounded(file: Path) -> bytes | None:
    """A settings file's content; `None` if it is not there.

    Raises:
        InvalidInput: it cannot be read, or is no file, or too long.
    """
    try:
        if not file.exists():
            return None
        if not file.is_file():
            raise InvalidInput(f"{file}: not a file")
        with file.open("rb") as opened:
            content = opened.read(_MAX_BYTES + 1)
    except OSError as error:
        raise InvalidInput(f"{file}: {error.strerror or error}") from error
    if len(content) > _MAX_BYTES:
        raise InvalidInput(f"{file}: longer than {_MAX_BYTES} bytes")
    return content


def write_whole(file: Path, content: bytes) -> None:
    """Readable by its owner only; the old content or the new one, whatever happens meanwhile.

    Raises: InvalidInput.
    """
    try:
        file.parent.mkdir(parents=True, exist_ok=True)
        descriptor, new = tempfile.mkstemp(dir=file.parent, prefix=f"{file.name}.")
        try:
            with os.fdopen(descriptor, "wb") as opened:
                opened.write(content)
                opened.flush()
                os.fsync(opened.fileno())
            os.replace(new, file)
        except BaseException:
            with suppress(OSError):
                os.unlink(new)
            raise
    except OSError as error:
        raise InvalidInput(f"{file}: {error.strerror or error}") from error


def _known(home: Path) -> dict[str, str]:
    file = home / TRUSTED_FILE
    content = read_bounded(file)
    try:
        return {} if content is None else msgspec.json.decode(content, type=dict[str, str])
    except (msgspec.MsgspecError, UnicodeError) as error:
        raise InvalidInput(f"{file}: {error}; remove it to begin anew") from error


def _keep(known: dict[str, str], home: Path) -> None:
    content = msgspec.json.format(msgspec.json.encode(known, order="sorted"), indent=2)
    write_whole(home / TRUSTED_FILE, content + b"\n")
