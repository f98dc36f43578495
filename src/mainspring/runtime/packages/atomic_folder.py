"""Folders that are installed, replaced and removed atomically, through a staging folder beside
them.
"""

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
    """A folder beside `place` to make ready in what is to stand there; never in it, where it would
    be found. What an earlier one left undone is cleared up.

    Raises: InvalidInput.
    """
    prefix = f".new-{place.name}-"
    try:
        place.mkdir(parents=True, exist_ok=True)
        for sandbox_pool in place.parent.glob(f"{prefix}*"):
            _recover(sandbox_pool, place, now)
        return tempfile.TemporaryDirectory(
            dir=place.parent, prefix=prefix, ignore_cleanup_errors=True
        )
    except OSError as error:
        raise InvalidInput(f"{place}: {error.strerror or error}") from error


def replace_folder(new: Path, target: Path, sandbox_pool: Path) -> None:
    """All of it or, whatever happens, what was there before.

    Raises: InvalidInput.
    """
    is_there = os.path.lexists(target)
    replaced = sandbox_pool / _REPLACED / target.name
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


def remove_folder(folder: Path, sandbox_pool: Path) -> None:
    """Of a link, only the link.

    Raises: InvalidInput.
    """
    try:
        if folder.is_symlink():
            folder.unlink()
        else:
            os.rename(folder, sandbox_pool / "removed")
            shutil.rmtree(sandbox_pool / "removed")
    except OSError as error:
        raise InvalidInput(f"{folder}: {error.strerror or error}") from error


def _recover(sandbox_pool: Path, place: Path, now: datetime) -> None:
    """Whoever was killed between two renames has left what was there before: it goes back."""
    for replaced in sandbox_pool.glob(f"{_REPLACED}/*"):
        if not os.path.lexists(place / replaced.name):
            os.rename(replaced, place / replaced.name)
    # Younger ones may be somebody's who is still at work.
    if now - from_micros(sandbox_pool.stat().st_mtime_ns // 1000) > _STALE_AFTER:
        shutil.rmtree(sandbox_pool, ignore_errors=True)
