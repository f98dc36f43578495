"""`mainspring doctor`: checks the machine, the store, the sandbox and protected files; fails
only if no session can run.
"""

from __future__ import annotations

import os
import platform
import shutil
import sqlite3
import subprocess
import sys
import tempfile
from contextlib import closing
from dataclasses import asdict
from functools import partial
from pathlib import Path
from typing import Annotated, Literal, TypeAlias

import anyio
import typer
from msgspec import Struct

from mainspring import __version__
from mainspring.capabilities.sandbox.backend_selection import SandboxSettings
from mainspring.capabilities.sandbox.sandbox_probes import probe_sandboxes
from mainspring.capabilities.tools.file_search import find_ripgreps
from mainspring.config import API_KEY_VARIABLES, Settings, is_postgres
from mainspring.core.errors import MainspringError, StoreCorrupt
from mainspring.edges.cli.render.printing import Screen, byte_size, pad, plural
from mainspring.log.sqlite.connect import refuse_journal
from mainspring.wiring.sandbox_settings import private_files
from mainspring.wiring.stores import reach_postgres

_MIN_SQLITE_VERSION = (3, 37, 0)
"""The first version with strict tables."""
_CONNECT_SECONDS = 5  # for a database or host to answer
_REBUILD_FIX = "use a Python with a newer SQLite: python.org's, uv's or your distribution's"
_NO_SESSION = "no session can run"


def _required(name: str, value: str, consequence: str, fix: str | None = None) -> DoctorCheck:
    """A check that must pass; it has passed if there is nothing to fix."""
    status = "ok" if fix is None else "missing"
    return DoctorCheck(
        name=name, status=status, found=value, consequence=consequence, fix=fix, required=True
    )


def _optional(name: str, value: str, consequence: str, fix: str | None = None) -> DoctorCheck:
    status = "ok" if fix is None else "warn"
    return DoctorCheck(name=name, status=status, found=value, consequence=consequence, fix=fix)


async def check_store(settings: Settings) -> list[DoctorCheck]:
    if is_postgres(settings.store):
        return [await _check_postgres(settings)]
    return [
        *_check_sqlite(),
        await anyio.to_thread.run_sync(_check_store_file, Path(settings.store)),
    ]


def _check_sqlite() -> list[DoctorCheck]:
    version = sqlite3.sqlite_version
    with closing(sqlite3.connect(":memory:")) as db:
        [has_fts5] = db.execute("select sqlite_compileoption_used('ENABLE_FTS5')").fetchone()
    return [
        _required("sqlite", version, "logs can be stored in a file")
        if sqlite3.sqlite_version_info >= _MIN_SQLITE_VERSION
        else _required("sqlite", version, "is too old for logs", _REBUILD_FIX),
        _required("sqlite fts5", "yes", "logs can be searched")
        if has_fts5
        else _required("sqlite fts5", "no", "no log can be stored without it", _REBUILD_FIX),
    ]


def _check_store_file(path: Path) -> DoctorCheck:
    if not os.path.exists(path):  # unlike `path.exists`, false if the folder may not be read
        return _check_new_store_file(path)
    if not (os.access(path, os.R_OK | os.W_OK) and _is_writable(path.parent)):
        return _unusable_store(path, "cannot be written", f"chown or chmod {path} and its folder")
    try:
        refuse_journal(path)
        with closing(sqlite3.connect(f"{path.absolute().as_uri()}?mode=ro", uri=True)) as db:
            [count] = db.execute("select count(*) from session").fetchone()
    except (StoreCorrupt, sqlite3.Error) as error:
        return _unusable_store(path, f"cannot be read ({error})", "name another with --store")
    size = sum(item.stat().st_size for item in (path, Path(f"{path}-wal")) if item.exists())
    contents = f"{path} ({plural(count, 'session')}, {byte_size(size)})"
    return _required("store", contents, "sessions are stored here")


def _check_new_store_file(path: Path) -> DoctorCheck:
    folder = nearest_folder(path)
    if not _is_writable(folder):
        return _unusable_store(path, f"{folder} cannot be written", f"chown or chmod {folder}")
    return _required("store", f"{path} (does not exist yet)", "the first session creates it")


def _is_writable(folder: Path) -> bool:
    """Tries to write: as root, permissions do not reveal a read-only file system."""
    try:
        with tempfile.TemporaryFile(dir=folder):
            return True
    except OSError:
        return False


def _unusable_store(path: Path, problem: str, fix: str) -> DoctorCheck:
    fix = f"{fix}; or name another with --store" if "--store" not in fix else fix
    return _required("store", f"{path}: {problem}", _NO_SESSION, fix)


async def _check_postgres(settings: Settings) -> DoctorCheck:
    try:
        with anyio.fail_after(_CONNECT_SECONDS):
            version = await reach_postgres(settings.store)
    except (MainspringError, TimeoutError) as error:
        notes = getattr(error, "__notes__", None)
        problem = str(error) or f"{settings.store_label}: no answer in {_CONNECT_SECONDS} s"
        fix = notes[0] if notes else "start the server, or name another with --store"
        return _required("store", problem, _NO_SESSION, fix)
    server = f"{settings.store_label} (PostgreSQL {version})"
    return _required("store", server, "sessions are stored there, for workers on any machine")


_LOW_DISK_BYTES = 1_000_000_000  # less free space than 1 GB is reported
_PROGRAM_SECONDS = 5  # for a program to say its version


def check_machine(settings: Settings) -> list[DoctorCheck]:
    return [
        _required("python", f"{platform.python_version()} ({sys.executable})", "Mainspring runs"),
        _check_platform(),
        *_check_disk(settings),
        _check_program(
            "ripgrep",
            next(iter(find_ripgreps()), None),
            consequence="agents search files fast",
            without="agents search files with the slower built-in search",
            fix="install ripgrep from your system's packages",
        ),
        _check_program(
            "git",
            shutil.which("git"),
            consequence="agents see a repository's state and history",
            without="agents cannot see a repository's state and history",
            fix="install git from your system's packages",
        ),
        _check_model_keys(settings),
    ]


def _check_platform() -> DoctorCheck:
    system = f"{platform.system()} {platform.release()} {platform.machine()}"
    if sys.platform in ("linux", "darwin"):
        return _optional("platform", system, "is supported")
    untested = "is not tested: it may not work"
    return _optional("platform", system, untested, "use Linux or macOS")


def _check_disk(settings: Settings) -> list[DoctorCheck]:
    if is_postgres(settings.store):
        return []
    folder = nearest_folder(Path(settings.store))
    free = shutil.disk_usage(folder).free
    size = f"{byte_size(free)} free at {folder}"
    if free >= _LOW_DISK_BYTES:
        return [_optional("disk", size, "logs have room")]
    fix = "free some space, or `mainspring log expire`"
    return [_optional("disk", size, "sessions stop when the disk is full", fix)]


def nearest_folder(path: Path) -> Path:
    """The nearest existing folder above `path`."""
    return next(folder for folder in path.absolute().parents if os.path.isdir(folder))


def _check_program(
    name: str, path: str | None, *, consequence: str, without: str, fix: str
) -> DoctorCheck:
    if path is None:
        return _optional(name, "not found", without, fix)
    return _optional(name, f"{program_version(path)} ({path})", consequence)


def program_version(path: str) -> str:
    try:
        output = subprocess.run(
            [path, "--version"],
            capture_output=True,
            text=True,
            timeout=_PROGRAM_SECONDS,
            check=True,
        ).stdout
    except (OSError, subprocess.SubprocessError):
        return "unknown version"
    first = output.split("\n", 1)[0].split("(")[0].split()
    return first[-1] if first else "unknown version"


def _check_model_keys(settings: Settings) -> DoctorCheck:
    keys = {name: "yes" if name in settings.keys else "no" for name in API_KEY_VARIABLES}
    if "yes" in keys.values():
        states = ", ".join(f"{name} {state}" for name, state in keys.items())
        return _optional("model keys", states, "models of these providers can be called")
    return DoctorCheck(
        name="model keys",
        status="missing",
        found="none is set",
        consequence="no hosted model can be called; logs can still be read",
        fix=f"export {API_KEY_VARIABLES[0]}=..., or another of {', '.join(API_KEY_VARIABLES[1:])}",
    )


CheckStatus: TypeAlias = Literal["ok", "warn", "missing"]


class DoctorCheck(Struct, frozen=True, kw_only=True):
    name: str
    status: CheckStatus
    found: str
    consequence: str
    """The consequence: what works, or does not work without it."""
    fix: str | None = None
    required: bool = False
    """Nothing works without it."""

    @property
    def is_fatal(self) -> bool:
        return self.required and self.status == "missing"


_STYLES = {"ok": "green", "warn": "yellow", "missing": "bold red"}
_STATUS_WIDTH = 9  # columns
_NAME_WIDTH = 17  # columns


class DoctorReport(Struct, frozen=True, kw_only=True):
    """The output of `--json`."""

    ok: bool
    version: str
    store: str
    keys: dict[str, bool]
    findings: list[DoctorCheck]


async def doctor(
    settings: Settings,
    *,
    json: Annotated[bool, typer.Option("--json", help="Print one JSON object.")] = False,
) -> int:
    """Check whether sessions can run on this machine. Shows how to fix problems."""
    protections = partial(private_files(settings).probe, Path(settings.folder))
    sandbox_settings = SandboxSettings(container_is_boundary=settings.container_is_boundary)
    findings = [
        *await anyio.to_thread.run_sync(check_machine, settings),
        *await check_store(settings),
        *[
            DoctorCheck(**asdict(probe))
            for probe in await probe_sandboxes(sandbox_settings, settings.environment)
        ],
        *[DoctorCheck(**asdict(probe)) for probe in await anyio.to_thread.run_sync(protections)],
    ]
    is_healthy = not any(finding.is_fatal for finding in findings)
    screen = Screen(settings)
    if json:
        report = DoctorReport(
            ok=is_healthy,
            version=__version__,
            store=settings.store_label,
            keys={name: name in settings.keys for name in API_KEY_VARIABLES},
            findings=findings,
        )
        screen.json(report)
    else:
        _print_report(screen, findings, is_healthy=is_healthy)
    return 0 if is_healthy else 1


def _print_report(screen: Screen, findings: list[DoctorCheck], *, is_healthy: bool) -> None:
    for finding in findings:
        head = (
            pad((finding.status, _STYLES[finding.status]), _STATUS_WIDTH),
            pad((finding.name, "bold"), _NAME_WIDTH),
        )
        if finding.status == "ok":
            screen.line(*head, (finding.found, ""), (f": {finding.consequence}", "dim"))
            continue
        screen.line(*head, (finding.found, ""))
        screen.paragraph((finding.consequence, ""), indent=_STATUS_WIDTH + _NAME_WIDTH)
        if finding.fix:
            screen.paragraph((f"fix: {finding.fix}", "cyan"), indent=_STATUS_WIDTH + _NAME_WIDTH)
    count = sum(finding.status != "ok" for finding in findings)
    screen.line(("", ""))
    if is_healthy:
        remarks = f"; {plural(count, 'thing')} could be better" if count else ""
        screen.paragraph((f"sessions can run here{remarks}", "green"))
    else:
        screen.paragraph(("sessions cannot run here: fix what is missing", "bold red"))
