"""Folders whose settings somebody has vouched for, as those settings were then."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path

import msgspec
from msgspec import Struct

from mainspring.core.errors import InvalidInput
from mainspring.runtime.folder import manifest
from mainspring.runtime.folder.whole_file import read_bounded, write_whole

LOCAL_FILE = ".mainspring/settings.local.json"
HOOKS_FILE = "hooks.json"
PROJECT_FILES = (
    ".claude/settings.json",
    ".mainspring/settings.json",
    HOOKS_FILE,
    manifest.FILE,
    ".claude/settings.local.json",
    LOCAL_FILE,
)
TRUSTED_FILE = ".mainspring/trusted.json"


class _Hooks(Struct, frozen=True):
    hooks: dict[str, list[object]]


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
    """The settings that a project has, by the file that they stand in.

    Raises: InvalidInput.
    """
    found = {name: _settings(folder / name) for name in PROJECT_FILES}
    return {name: content for name, content in found.items() if content is not None}


def _settings(file: Path) -> bytes | None:
    """Of a file that says other things too, only what is a setting: the rest may change."""
    if file.name == manifest.FILE:
        said = manifest.settings_in(file)
        return msgspec.json.encode(said, order="sorted") if said else None
    content = read_bounded(file)
    return _hooks(content) if content is not None and file.name == HOOKS_FILE else content


def _hooks(content: bytes) -> bytes | None:
    """`None`: it is called like ours, and is something else."""
    with suppress(msgspec.MsgspecError, UnicodeError, RecursionError):
        return msgspec.json.encode(msgspec.json.decode(content, type=_Hooks))
    return None


def _fingerprint(contents: Mapping[str, bytes]) -> str:
    digest = hashlib.sha256()
    for name in sorted(contents):
        digest.update(f"{name}\0{len(contents[name])}\0".encode())
        digest.update(contents[name])
    return digest.hexdigest()


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
