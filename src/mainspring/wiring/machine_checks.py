"""Checks of this machine for `mainspring doctor`: its sandboxes, and how the operator's own
files are protected.
"""

from __future__ import annotations

import os
import stat
import sys
from pathlib import Path

from mainspring.capabilities.sandbox.backend import containing_paths, file_identity
from mainspring.capabilities.sandbox.backend_selection import SandboxSettings
from mainspring.capabilities.sandbox.sandbox_probes import SandboxProbe, probe_sandboxes
from mainspring.capabilities.tools.file_search import find_ripgreps
from mainspring.config import Settings, is_postgres
from mainspring.wiring.private_files import misplaced_file, private_files

_OTHERS_BITS = stat.S_IRWXG | stat.S_IRWXO


def find_ripgrep() -> str | None:
    return next(iter(find_ripgreps()), None)


def check_private_files(settings: Settings) -> list[SandboxProbe]:
    if sys.platform == "win32":
        return []
    return [_check_user(), _check_modes(settings), _check_location(settings)]


def _check_user() -> SandboxProbe:
    if os.geteuid() != 0:
        return SandboxProbe(
            name="user",
            status="ok",
            found=f"uid {os.geteuid()}",
            consequence="a way out of a sandbox would not lead to root",
        )
    return SandboxProbe(
        name="user",
        status="warn",
        found="root",
        consequence="a way out of a sandbox would lead to the whole machine; `serve` and `worker`"
        " refuse to run like this",
        fix="use a user of its own; `serve` and `worker` become one with --user NAME",
    )


def _check_modes(settings: Settings) -> SandboxProbe:
    """Of what is there; a folder closed to others does not count, as mounts go around it."""
    files = [path for path in private_files(settings) if path.is_file()]
    open_ = [str(path) for path in files if path.stat().st_mode & _OTHERS_BITS]
    if open_:
        return SandboxProbe(
            name="private files",
            status="warn",
            found=f"{', '.join(open_)}: other users can read them",
            consequence="a session's program could too, if it was ever shown them by mistake",
            fix=f"chmod 600 {' '.join(open_)}",
        )
    return SandboxProbe(
        name="private files",
        status="ok",
        found=f"{len(files)} of store and vault are for their owner only" if files else "none yet",
        consequence="nobody else can read them",
    )


def _check_location(settings: Settings) -> SandboxProbe:
    misplaced = misplaced_file(settings)
    if misplaced is not None:
        return SandboxProbe(
            name="store's place",
            status="warn",
            found=f"{misplaced} is below {settings.workspaces}",
            consequence="it is among the folders that sessions of the service are given",
            fix="set MAINSPRING_WORKSPACES to a folder that has nothing else in it",
        )
    inside = containing_paths(private_files(settings)).get(
        file_identity(Path(settings.folder)) or (0, 0)
    )
    if inside is not None:
        return SandboxProbe(
            name="store's place",
            status="ok",
            found=f"{inside} is in this folder",
            consequence="sessions that work here do not see it: their sandbox hides it",
        )
    return SandboxProbe(
        name="store's place",
        status="ok",
        found="PostgreSQL" if is_postgres(settings.store) else str(Path(settings.store).parent),
        consequence="no session is given a folder with the store or the vault in it",
    )


async def check_sandboxes() -> list[SandboxProbe]:
    return await probe_sandboxes(SandboxSettings())
