"""The operator's own files, which no session may see: their paths, and checks of their modes and
location."""

from __future__ import annotations

import os
import stat
import sys
from pathlib import Path

from msgspec import Struct

from mainspring.capabilities.sandbox.backend import containing_paths, file_identity
from mainspring.capabilities.sandbox.sandbox_probes import SandboxProbe
from mainspring.core.errors import InvalidInput

_STORE_SUFFIXES = ("", "-wal", "-shm")
_OTHERS_BITS = stat.S_IRWXG | stat.S_IRWXO


class PrivateFiles(Struct, frozen=True, kw_only=True):
    store: Path | None
    """`None`: the store is a database server."""
    vault: Path | None
    workspaces: Path
    """The folder with the workspaces of the service's sessions."""

    @property
    def paths(self) -> tuple[Path, ...]:
        """The files of the store, and of the vault with its key."""
        store = [] if self.store is None else [f"{self.store}{end}" for end in _STORE_SUFFIXES]
        vault = [] if self.vault is None else [self.vault, self.vault.with_suffix(".key")]
        return tuple(map(Path, (*store, *vault)))

    def require_apart(self) -> str | None:
        """Check that the store is not below the workspaces. `None`, or what to change for an
        existing store.

        Raises:
            InvalidInput: a store that does not exist yet would be made there.
        """
        misplaced = self._below(self.workspaces)
        if misplaced is None:
            return None
        problem = f"{misplaced} is below {self.workspaces}, where sessions work"
        fix = (
            "set MAINSPRING_WORKSPACES, MAINSPRING_STORE or MAINSPRING_VAULT so that none is in"
            " another"
        )
        if self.store is not None and self.store.exists():
            return f"{problem}: {fix}, and move the existing files"
        error = InvalidInput(problem)
        error.add_note(fix)
        raise error

    def probe(self, folder: Path) -> list[SandboxProbe]:
        """Checks of this machine; `folder` is the workspace of its user's sessions."""
        if sys.platform == "win32":
            return []
        return [_check_user(), self._check_modes(), self._check_location(folder)]

    def _below(self, folder: Path) -> Path | None:
        return containing_paths(self.paths).get(file_identity(folder) or (0, 0))

    def _check_modes(self) -> SandboxProbe:
        """Check the modes of existing files. A closed parent folder does not count: mounts bypass
        it."""
        files = [path for path in self.paths if path.is_file()]
        open_ = [str(path) for path in files if path.stat().st_mode & _OTHERS_BITS]
        if open_:
            return SandboxProbe(
                name="private files",
                status="warn",
                found=f"{', '.join(open_)}: other users can read them",
                consequence="so could a session's program, if a sandbox mounted them by mistake",
                fix=f"chmod 600 {' '.join(open_)}",
            )
        return SandboxProbe(
            name="private files",
            status="ok",
            found=f"{len(files)} of store and vault are for their owner only"
            if files
            else "none yet",
            consequence="other users cannot read them"
            if files
            else "the first session creates them",
        )

    def _check_location(self, folder: Path) -> SandboxProbe:
        misplaced = self._below(self.workspaces)
        if misplaced is not None:
            return SandboxProbe(
                name="store's place",
                status="warn",
                found=f"{misplaced} is below {self.workspaces}",
                consequence="the service gives this folder to sessions",
                fix="set MAINSPRING_WORKSPACES to a folder that has nothing else in it",
            )
        inside = self._below(folder)
        if inside is not None:
            return SandboxProbe(
                name="store's place",
                status="ok",
                found=f"{inside} is in this folder",
                consequence="the sandbox hides it from sessions that work here",
            )
        return SandboxProbe(
            name="store's place",
            status="ok",
            found="PostgreSQL" if self.store is None else str(self.store.parent),
            consequence="no session gets a folder that contains the store or the vault",
        )


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
        fix="use a separate user; `serve` and `worker` switch to it with --user NAME",
    )
