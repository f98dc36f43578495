"""Python, the system, programs, disk, and which model keys are set."""

from __future__ import annotations

import os
import platform
import shutil
import subprocess
import sys
from pathlib import Path

from mainspring.config import KEYS, Settings, is_postgres
from mainspring.edges.cli.checks.finding import Finding
from mainspring.edges.cli.render import byte_size

_LITTLE_DISK = 1_000_000_000
_SECONDS = 5


def look_at_machine(settings: Settings) -> list[Finding]:
    return [
        _python(),
        _platform(),
        *_disk(settings),
        _program(
            "ripgrep",
            "rg",
            consequence="agents search files fast",
            without="agents search files with the slower search of our own",
            fix="install ripgrep from your system's packages",
        ),
        _program(
            "git",
            "git",
            consequence="agents see a repository's state and history",
            without="agents cannot see a repository's state and history",
            fix="install git from your system's packages",
        ),
        _keys(settings),
    ]


def _python() -> Finding:
    return Finding(
        name="python",
        status="ok",
        found=f"{platform.python_version()} ({sys.executable})",
        consequence="Mainspring runs",
        required=True,
    )


def _platform() -> Finding:
    is_known = sys.platform in ("linux", "darwin")
    return Finding(
        name="platform",
        status="ok" if is_known else "warn",
        found=f"{platform.system()} {platform.release()} {platform.machine()}",
        consequence="is supported" if is_known else "is not tested: nothing is promised here",
        fix=None if is_known else "use Linux or macOS",
    )


def _disk(settings: Settings) -> list[Finding]:
    if is_postgres(settings.store):
        return []
    folder = nearest_folder(Path(settings.store))
    free = shutil.disk_usage(folder).free
    is_enough = free >= _LITTLE_DISK
    return [
        Finding(
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


def _program(name: str, command: str, *, consequence: str, without: str, fix: str) -> Finding:
    path = shutil.which(command)
    if path is None:
        return Finding(name=name, status="warn", found="not found", consequence=without, fix=fix)
    return Finding(
        name=name, status="ok", found=f"{version_of(path)} ({path})", consequence=consequence
    )


def version_of(path: str) -> str:
    try:
        said = subprocess.run(
            [path, "--version"], capture_output=True, text=True, timeout=_SECONDS, check=True
        ).stdout
    except (OSError, subprocess.SubprocessError):
        return "unknown version"
    first = said.split("\n", 1)[0].split("(")[0].split()
    return first[-1] if first else "unknown version"


def _keys(settings: Settings) -> Finding:
    present = [name for name in KEYS if name in settings.keys]
    if present:
        return Finding(
            name="model keys",
            status="ok",
            found=", ".join(f"{name} {'yes' if name in present else 'no'}" for name in KEYS),
            consequence="models of these providers can be called",
        )
    return Finding(
        name="model keys",
        status="missing",
        found="none is set",
        consequence="no hosted model can be called; logs can be read all the same",
        fix=f"export {KEYS[0]}=..., or another of {', '.join(KEYS[1:])}",
    )
