"""Installs, trusts and removes packages (skills and plugins) atomically, through a staging folder
beside them."""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from pathlib import Path

from mainspring.core.clock import from_micros
from mainspring.core.errors import AlreadyExists, InvalidInput
from mainspring.error_table import with_hints
from mainspring.runtime.packages.scan import ScanReport
from mainspring.runtime.packages.trust_pins import TrustPin, TrustPins

_REPLACED = "replaced"
_STALE_AFTER = timedelta(hours=1)  # a download that was broken off; its folder is removed


@dataclass(frozen=True, slots=True, kw_only=True)
class PackageCandidate:
    """A package that is not installed yet, with what a person should know before installing it."""

    name: str
    description: str
    folder: Path
    """Its folder in the staging folder."""
    scan_report: ScanReport
    hashes: Mapping[str, str]
    """The hash of each part that is trusted by itself, by its path; `.` is the whole package."""
    source: str
    commit: str
    """The commit of the repository that it comes from; empty otherwise."""


def staging_folder(place: Path, *, now: datetime) -> tempfile.TemporaryDirectory[str]:
    """A folder beside `place` in which to prepare a package; not inside `place`, where it would be
    discovered. Leftovers of an interrupted run are removed.

    Raises: InvalidInput.
    """
    prefix = f".new-{place.name}-"
    try:
        place.mkdir(parents=True, exist_ok=True)
        for staging in place.parent.glob(f"{prefix}*"):
            _recover(staging, place, now)
        return tempfile.TemporaryDirectory(
            dir=place.parent, prefix=prefix, ignore_cleanup_errors=True
        )
    except OSError as error:
        raise InvalidInput(f"{place}: {error.strerror or error}") from error


def is_installed(place: Path, name: str) -> bool:
    return os.path.lexists(place / name)


def check_not_installed(place: Path, name: str, *, replaces: bool) -> None:
    """Raises: AlreadyExists."""
    if not replaces and is_installed(place, name):
        raise with_hints(AlreadyExists(f"{name} is already installed"), "--replace replaces it")


def install(
    candidate: PackageCandidate, staging: Path, place: Path, *, replaces: bool = False
) -> Path:
    """Move a package to its place, whole or not at all. Blocks.

    Raises:
        AlreadyExists: a package of that name is installed, and `replaces` is false.
        InvalidInput: it cannot be written.
    """
    check_not_installed(place, candidate.name, replaces=replaces)
    target = place / candidate.name
    _replace_folder(candidate.folder, target, staging)
    return target


def trust(candidate: PackageCandidate, installed: Path, pins: TrustPins, when: datetime) -> None:
    """Trust an installed package as it was when it was scanned.

    Raises: InvalidInput.
    """
    for path, digest in candidate.hashes.items():
        pin = TrustPin(
            hash=digest,
            when=when,
            severity=candidate.scan_report.severity,
            source=candidate.source,
            commit=candidate.commit,
        )
        pins.pin(installed / path, pin)


def remove(folder: Path, staging: Path, pins: TrustPins, *, parts: Iterable[str] = (".",)) -> None:
    """Withdraw the trust in a package's parts, then remove its folder. If that is a link, only the
    link is removed. Blocks.

    Raises: InvalidInput.
    """
    for path in parts:
        pins.unpin(folder / path)
    try:
        if folder.is_symlink():
            folder.unlink()
        else:
            os.rename(folder, staging / "removed")
            shutil.rmtree(staging / "removed")
    except OSError as error:
        raise InvalidInput(f"{folder}: {error.strerror or error}") from error


def _replace_folder(new: Path, target: Path, staging: Path) -> None:
    """Move `new` to `target`. If that fails, the old folder is restored.

    Raises: InvalidInput.
    """
    exists = os.path.lexists(target)
    replaced = staging / _REPLACED / target.name
    try:
        if exists:
            replaced.parent.mkdir()
            os.rename(target, replaced)
        try:
            os.rename(new, target)
        except OSError:
            if exists:
                os.rename(replaced, target)
            raise
    except OSError as error:
        raise InvalidInput(f"{target}: {error.strerror or error}") from error


def _recover(staging: Path, place: Path, now: datetime) -> None:
    """Restore the old folder that a process left behind when it was killed between two renames."""
    for replaced in staging.glob(f"{_REPLACED}/*"):
        if not os.path.lexists(place / replaced.name):
            os.rename(replaced, place / replaced.name)
    # A younger one may still be in use by another process.
    if now - from_micros(staging.stat().st_mtime_ns // 1000) > _STALE_AFTER:
        shutil.rmtree(staging, ignore_errors=True)
