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
from mainspring.core.errors import MainspringError
from mainspring.edges.cli.printing import Screen, byte_size, pad, plural
from mainspring.wiring.sandbox_environment import private_files
from mainspring.wiring.stores import reach_postgres

_MIN_SQLITE_VERSION = (3, 37, 0)
"""The first that has strict tables."""
_CONNECT_SECONDS = 5


async def check_store(settings: Settings) -> list[CheckResult]:
    if is_postgres(settings.store):
        return [await _check_postgres(settings)]
    return [
        *_check_sqlite(),
        await anyio.to_thread.run_sync(_check_store_file, Path(settings.store)),
    ]


def _check_sqlite() -> list[CheckResult]:
    is_new_enough = sqlite3.sqlite_version_info >= _MIN_SQLITE_VERSION
    with closing(sqlite3.connect(":memory:")) as db:
        has_words = bool(
            db.execute("select sqlite_compileoption_used('ENABLE_FTS5')").fetchone()[0]
        )
    rebuild = "use a Python with a newer SQLite: python.org's, uv's or your distribution's"
    return [
        CheckResult(
            name="sqlite",
            status="ok" if is_new_enough else "missing",
            found=sqlite3.sqlite_version,
            consequence="logs can be stored in a file" if is_new_enough else "is too old for logs",
            fix=None if is_new_enough else rebuild,
            required=True,
        ),
        CheckResult(
            name="sqlite fts5",
            status="ok" if has_words else "missing",
            found="yes" if has_words else "no",
            consequence="logs can be searched" if has_words else "no log can be stored without it",
            fix=None if has_words else rebuild,
            required=True,
        ),
    ]


def _check_store_file(path: Path) -> CheckResult:
    if not os.path.exists(path):  # unlike `path.exists`, says no when it may not look
        return _check_new_store_file(path)
    if not (os.access(path, os.R_OK | os.W_OK) and _is_writable(path.parent)):
        return _unusable_store(path, "cannot be written", f"chown or chmod {path} and its folder")
    try:
        with closing(sqlite3.connect(f"{path.absolute().as_uri()}?mode=ro", uri=True)) as db:
            [count] = db.execute("select count(*) from session").fetchone()
    except sqlite3.Error as error:
        return _unusable_store(path, f"cannot be read ({error})", "name another with --store")
    size = sum(item.stat().st_size for item in (path, Path(f"{path}-wal")) if item.exists())
    return CheckResult(
        name="store",
        status="ok",
        found=f"{path} ({plural(count, 'session')}, {byte_size(size)})",
        consequence="sessions are stored here",
        required=True,
    )


def _check_new_store_file(path: Path) -> CheckResult:
    folder = nearest_folder(path)
    if not _is_writable(folder):
        return _unusable_store(path, f"{folder} cannot be written", f"chown or chmod {folder}")
    return CheckResult(
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


def _unusable_store(path: Path, why: str, fix: str) -> CheckResult:
    return CheckResult(
        name="store",
        status="missing",
        found=f"{path}: {why}",
        consequence="no session can run",
        fix=f"{fix}; or name another with --store" if "--store" not in fix else fix,
        required=True,
    )


async def _check_postgres(settings: Settings) -> CheckResult:
    try:
        with anyio.fail_after(_CONNECT_SECONDS):
            version = await reach_postgres(settings.store)
    except (MainspringError, TimeoutError) as error:
        notes = getattr(error, "__notes__", None)
        return CheckResult(
            name="store",
            status="missing",
            found=str(error) or f"{settings.store_label}: no answer in {_CONNECT_SECONDS} s",
            consequence="no session can run",
            fix=notes[0] if notes else "start the server, or name another with --store",
            required=True,
        )
    return CheckResult(
        name="store",
        status="ok",
        found=f"{settings.store_label} (PostgreSQL {version})",
        consequence="sessions are stored there, for workers on any machine",
        required=True,
    )


async def check_sandbox() -> list[CheckResult]:
    return [CheckResult(**asdict(look)) for look in await probe_sandboxes(SandboxSettings())]


def check_protections(settings: Settings) -> list[CheckResult]:
    return [
        CheckResult(**asdict(look)) for look in private_files(settings).probe(Path(settings.folder))
    ]


_LOW_DISK_BYTES = 1_000_000_000
_PROGRAM_SECONDS = 5


def check_machine(settings: Settings) -> list[CheckResult]:
    return [
        _check_python(),
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


def _check_python() -> CheckResult:
    return CheckResult(
        name="python",
        status="ok",
        found=f"{platform.python_version()} ({sys.executable})",
        consequence="Mainspring runs",
        required=True,
    )


def _check_platform() -> CheckResult:
    is_known = sys.platform in ("linux", "darwin")
    return CheckResult(
        name="platform",
        status="ok" if is_known else "warn",
        found=f"{platform.system()} {platform.release()} {platform.machine()}",
        consequence="is supported" if is_known else "is not tested: nothing is promised here",
        fix=None if is_known else "use Linux or macOS",
    )


def _check_disk(settings: Settings) -> list[CheckResult]:
    if is_postgres(settings.store):
        return []
    folder = nearest_folder(Path(settings.store))
    free = shutil.disk_usage(folder).free
    is_enough = free >= _LOW_DISK_BYTES
    return [
        CheckResult(
            name="disk",
            status="ok" if is_enough else "warn",
            found=f"{byte_size(free)} free at {folder}",
            consequence="logs have room" if is_enough else "sessions stop when the disk is full",
            fix=None if is_enough else "free some space, or `mainspring log expire`",
        )
    ]


def nearest_folder(path: Path) -> Path:
    """The folder that `path` is in, or would be made in."""
    return next(folder for folder in path.absolute().parents if os.path.isdir(folder))


def _check_program(
    name: str, path: str | None, *, consequence: str, without: str, fix: str
) -> CheckResult:
    if path is None:
        return CheckResult(
            name=name, status="warn", found="not found", consequence=without, fix=fix
        )
    return CheckResult(
        name=name, status="ok", found=f"{program_version(path)} ({path})", consequence=consequence
    )


def program_version(path: str) -> str:
    try:
        said = subprocess.run(
            [path, "--version"],
            capture_output=True,
            text=True,
            timeout=_PROGRAM_SECONDS,
            check=True,
        ).stdout
    except (OSError, subprocess.SubprocessError):
        return "unknown version"
    first = said.split("\n", 1)[0].split("(")[0].split()
    return first[-1] if first else "unknown version"


def _check_model_keys(settings: Settings) -> CheckResult:
    present = [name for name in API_KEY_VARIABLES if name in settings.keys]
    if present:
        return CheckResult(
            name="model keys",
            status="ok",
            found=", ".join(
                f"{name} {'yes' if name in present else 'no'}" for name in API_KEY_VARIABLES
            ),
            consequence="models of these providers can be called",
        )
    return CheckResult(
        name="model keys",
        status="missing",
        found="none is set",
        consequence="no hosted model can be called; logs can be read all the same",
        fix=f"export {API_KEY_VARIABLES[0]}=..., or another of {', '.join(API_KEY_VARIABLES[1:])}",
    )


CheckStatus: TypeAlias = Literal["ok", "warn", "missing"]


class CheckResult(Struct, frozen=True, kw_only=True):
    name: str
    status: CheckStatus
    found: str
    consequence: str
    """What can be done because of it, or cannot."""
    fix: str | None = None
    required: bool = False
    """Nothing works without it."""

    @property
    def is_fatal(self) -> bool:
        return self.required and self.status == "missing"


_STYLES = {"ok": "green", "warn": "yellow", "missing": "bold red"}
_STATUS_WIDTH = 9
_NAME_WIDTH = 17


class DoctorReport(Struct, frozen=True, kw_only=True):
    """What `--json` prints."""

    ok: bool
    version: str
    store: str
    keys: dict[str, bool]
    findings: list[CheckResult]


async def doctor(
    settings: Settings,
    *,
    json: Annotated[bool, typer.Option("--json", help="Print one JSON object.")] = False,
) -> int:
    """Check what this machine can do. Says how to fix what is missing."""
    findings = [
        *await anyio.to_thread.run_sync(check_machine, settings),
        *await check_store(settings),
        *await check_sandbox(),
        *await anyio.to_thread.run_sync(check_protections, settings),
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


def _print_report(screen: Screen, findings: list[CheckResult], *, is_healthy: bool) -> None:
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
        rest = f"; {plural(count, 'thing')} could be better" if count else ""
        screen.paragraph((f"sessions can run here{rest}", "green"))
    else:
        screen.paragraph(("sessions cannot run here: fix what is missing", "bold red"))
