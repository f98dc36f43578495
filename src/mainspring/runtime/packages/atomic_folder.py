"""Installs, replaces and removes folders atomically, by way of a staging folder beside them."""

from __future__ import annotations

import os
import shutil
import tempfile
from datetime import datetime, timedelta
from pathlib import Path

from mainspring.core.clock import from_micros
from mainspring.core.errors import InvalidInput

_REPLACED = "replaced"
_STALE_AFTER = timedelta(hours=1)


def staging_folder(place: Path, *, now: datetime) -> tempfile.TemporaryDirectory[str]:
    """A folder beside `place` in which to prepare what goes there; not inside `place`, where it
    would be discovered. Leftovers of an interrupted run are cleaned up.

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


def replace_folder(new: Path, target: Path, staging: Path) -> None:
    """Move `new` to `target`. If that fails, the old folder is restored.

    Raises: InvalidInput.
    """
    is_there = os.path.lexists(target)
    replaced = staging / _REPLACED / target.name
    try:
        if is_there:
            replaced.parent.mkdir()
            os.rename(target, replaced)
        try:
            os.rename(new, target)
        except OSError:
            if is_there:
                os.rename(replaced, target)
            raise
    except OSError as error:
        raise InvalidInput(f"{target}: {error.strerror or error}") from error


def remove_folder(folder: Path, staging: Path) -> None:
    """Remove a folder. If it is a link, only the link is removed.

    Raises: InvalidInput.
    """
    try:
        if folder.is_symlink():
            folder.unlink()
        else:
            os.rename(folder, staging / "removed")
            shutil.rmtree(staging / "removed")
    except OSError as error:
        raise InvalidInput(f"{folder}: {error.strerror or error}") from error


def _recover(staging: Path, place: Path, now: datetime) -> None:
    """Restore the old folder that a process left behind when it was killed between two renames."""
    for replaced in staging.glob(f"{_REPLACED}/*"):
        if not os.path.lexists(place / replaced.name):
            os.rename(replaced, place / replaced.name)
    # A younger one may still be in use by another process.
    if now - from_micros(staging.stat().st_mtime_ns // 1000) > _STALE_AFTER:
        shutil.rmtree(staging, ignore_errors=True)
