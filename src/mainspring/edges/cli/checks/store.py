"""Whether the log can be kept where the settings say; looks only, creates nothing."""

from __future__ import annotations

import os
import sqlite3
import tempfile
from contextlib import closing
from pathlib import Path

import anyio

from mainspring.config import Settings, is_postgres
from mainspring.core.errors import MainspringError
from mainspring.edges.cli.checks.finding import Finding
from mainspring.edges.cli.checks.machine import nearest_folder
from mainspring.edges.cli.render import byte_size, counted
from mainspring.wiring.stores import reach_postgres

_OLDEST = (3, 37, 0)
"""The first that has strict tables."""
_SECONDS = 5


async def look_at_store(settings: Settings) -> list[Finding]:
    if is_postgres(settings.store):
        return [await _postgres(settings)]
    return [*_sqlite(), await anyio.to_thread.run_sync(_file, Path(settings.store))]


def _sqlite() -> list[Finding]:
    is_new_enough = sqlite3.sqlite_version_info >= _OLDEST
    with closing(sqlite3.connect(":memory:")) as db:
        has_words = bool(
            db.execute("select sqlite_compileoption_used('ENABLE_FTS5')").fetchone()[0]
        )
    rebuild = "use a Python with a newer SQLite: python.org's, uv's or your distribution's"
    return [
        Finding(
            name="sqlite",
            status="ok" if is_new_enough else "missing",
            found=sqlite3.sqlite_version,
            consequence="logs can be kept in a file" if is_new_enough else "is too old for logs",
            fix=None if is_new_enough else rebuild,
            required=True,
        ),
        Finding(
            name="sqlite fts5",
            status="ok" if has_words else "missing",
            found="yes" if has_words else "no",
            consequence="logs can be searched" if has_words else "no log can be kept without it",
            fix=None if has_words else rebuild,
            required=True,
        ),
    ]


def _file(path: Path) -> Finding:
    if not os.path.exists(path):  # unlike `path.exists`, says no when it may not look
        return _future_file(path)
    if not (os.access(path, os.R_OK | os.W_OK) and _is_writable(path.parent)):
        return _unusable(path, "cannot be written", f"chown or chmod {path} and its folder")
    try:
        with closing(sqlite3.connect(f"{path.absolute().as_uri()}?mode=ro", uri=True)) as db:
            [count] = db.execute("select count(*) from session").fetchone()
    except sqlite3.Error as error:
        return _unusable(path, f"cannot be read ({error})", "name another with --store")
    size = sum(each.stat().st_size for each in (path, Path(f"{path}-wal")) if each.exists())
    return Finding(
        name="store",
        status="ok",
        found=f"{path} ({counted(count, 'session')}, {byte_size(size)})",
        consequence="sessions are kept here",
        required=True,
    )


def _future_file(path: Path) -> Finding:
    folder = nearest_folder(path)
    if not _is_writable(folder):
        return _unusable(path, f"{folder} cannot be written", f"chown or chmod {folder}")
    return Finding(
        name="store",
        status="ok",
        found=f"{path} (does not exist yet)",
        consequence="the first session makes it",
        required=True,
    )


def _is_writable(folder: Path) -> bool:
    """Tried, because permissions tell root nothing about read-only file systems."""
    try:
        with tempfile.TemporaryFile(dir=folder):
            return True
    except OSError:
        return False


def _unusable(path: Path, why: str, fix: str) -> Finding:
    return Finding(
        name="store",
        status="missing",
        found=f"{path}: {why}",
        consequence="no session can run",
        fix=f"{fix}; or name another with --store" if "--store" not in fix else fix,
        required=True,
    )


async def _postgres(settings: Settings) -> Finding:
    try:
        with anyio.fail_after(_SECONDS):
            version = await reach_postgres(settings.store)
    except (MainspringError, TimeoutError) as error:
        notes = getattr(error, "__notes__", None)
        return Finding(
            name="store",
            status="missing",
            found=str(error) or f"{settings.place}: no answer in {_SECONDS} s",
            consequence="no session can run",
            fix=notes[0] if notes else "start the server, or name another with --store",
            required=True,
        )
    return Finding(
        name="store",
        status="ok",
        found=f"{settings.place} (PostgreSQL {version})",
        consequence="sessions are kept there, for workers on any machine",
        required=True,
    )
