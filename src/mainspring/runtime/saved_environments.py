"""Environments that `mainspring environment setup` has proven for a repository, stored in the
user's home: packages, services, and the files that the setup creates. Sessions in the repository
start from them."""

from __future__ import annotations

import hashlib
import os
import shlex
import shutil
from collections.abc import Callable, Sequence
from datetime import datetime
from pathlib import Path
from typing import Annotated, TypeAlias

import msgspec
from anyio import to_thread
from msgspec import Meta, Struct

from mainspring.core.errors import InvalidInput, SandboxFailed
from mainspring.core.ids import new_id
from mainspring.core.ports import CapturedOutput, ExecRequest, Sandbox
from mainspring.files.atomic_file import file_errors, read_bounded, write_atomic

FILES = "files.tar"
WITH_SERVICES = "with-services"
"""The program that runs a command together with the services of the environment."""
_CURRENT = "current.json"
_UNFINISHED = "unfinished-session"
_PROGRAMS = "bin"
_WORKTREES = "worktrees"
_READY_ATTEMPTS = 300  # 0.1 s apart, until a service answers


_Line: TypeAlias = Annotated[str, Meta(pattern=r"^[^\x00-\x1f\x7f\u2028\u2029]{1,1000}\Z")]
"""One line: later sessions read it beside their instructions."""
_Name: TypeAlias = Annotated[str, Meta(pattern=r"^[A-Za-z0-9][A-Za-z0-9._-]{0,63}\Z")]
_Command: TypeAlias = Annotated[str, Meta(pattern=r"^[^\x00]{1,10000}\Z")]
_Package: TypeAlias = Annotated[str, Meta(pattern=r"^[^\x00-\x20\x7f-][^\x00-\x1f\x7f]{0,300}\Z")]
"""Not an option of an installer."""


class EnvironmentService(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    name: _Name
    command: _Command
    """The command that runs it in the foreground."""
    ready: _Command = "true"
    """A command that succeeds once the service can be used."""


class EnvironmentPlan(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What a repository needs, and the command that proves it."""

    test: _Line
    pip: tuple[_Package, ...] = ()
    npm: tuple[_Package, ...] = ()
    apt: tuple[_Package, ...] = ()
    services: tuple[EnvironmentService, ...] = ()
    setup: tuple[_Command, ...] = ()
    """Commands that create files in the repository: generated code, built extensions."""

    @property
    def packages(self) -> dict[str, tuple[str, ...]]:
        packages = {"pip": self.pip, "npm": self.npm, "apt": self.apt}
        return {manager: names for manager, names in packages.items() if names}


class SavedEnvironment(Struct, frozen=True, kw_only=True):
    repository: str
    plan: EnvironmentPlan
    folder: str
    """The folder with its programs and files."""
    files: tuple[str, ...] = ()
    """The topmost paths that its setup created."""
    test_output: str = ""
    """The end of the test's output."""
    session_id: str
    saved_at: datetime

    @property
    def programs(self) -> Path:
        return Path(self.folder) / _PROGRAMS

    @property
    def archive(self) -> Path:
        return Path(self.folder) / FILES

    @property
    def note(self) -> str:
        """The note for the model about it."""
        lines = [f"This repository's tests run with: {self.plan.test}"]
        if self.plan.services:
            names = ", ".join(service.name for service in self.plan.services)
            lines.append(
                f"`{WITH_SERVICES} COMMAND...` runs a command beside the services that it needs"
                f" ({names}); without it they do not run."
            )
        return "\n".join(lines)

    def missing_files(self, workspace: Path) -> list[str]:
        """The files of its setup that a workspace lacks; empty if the workspace is only a part of
        the repository. Blocks."""
        repository = Path(self.repository)
        if workspace != repository and workspace.parent.name != _WORKTREES:
            return []
        return [path for path in self.files if not os.path.lexists(workspace / path)]

    async def restore_files(
        self, sandbox: Sandbox, workspace: Path, read_output: Callable[[CapturedOutput], str]
    ) -> None:
        """Restore the files of its setup that the workspace lacks.

        Raises: SandboxFailed.
        """
        if not await to_thread.run_sync(self.missing_files, workspace):
            return
        archive = str(self.archive)
        argv = ("tar", "--extract", "--skip-old-files", "--no-same-owner", "--file", archive)
        result = await sandbox.run(ExecRequest(key=new_id("env"), argv=argv, wall_seconds=600))
        if result.status != 0:
            output = read_output(result.stderr)[-500:]
            raise SandboxFailed(f"the files of its environment: {output}")


class SavedEnvironments:
    """The environments of one user, by repository. Blocks."""

    def __init__(self, place: Path) -> None:
        self._place = place

    def find(self, workspace: Path) -> SavedEnvironment | None:
        """The environment of the repository that contains a workspace."""
        if not self._place.is_dir():
            return None
        workspace = Path(os.path.realpath(workspace))
        for folder in (workspace, *workspace.parents):
            if (saved := self.read(folder)) is not None:
                return saved
        return None

    def read(self, repository: Path) -> SavedEnvironment | None:
        """Raises: InvalidInput: the file cannot be decoded."""
        file = self.folder(repository) / _CURRENT
        if (content := read_bounded(file)) is None:
            return None
        try:
            return msgspec.json.decode(content, type=SavedEnvironment)
        except (msgspec.MsgspecError, RecursionError) as error:
            raise InvalidInput(f"{file}: {error}; remove it, and set the environment up") from error

    def list(self) -> list[SavedEnvironment]:
        files = sorted(self._place.glob(f"*/{_CURRENT}"))
        return [msgspec.json.decode(file.read_bytes(), type=SavedEnvironment) for file in files]

    def begin(self, repository: Path, plan: EnvironmentPlan, name: str) -> Path:
        """Create the folder of an environment that is being tested, with its programs."""
        folder = self.folder(repository) / name
        with file_errors(str(folder)):
            (folder / _PROGRAMS).mkdir(parents=True)
            program = folder / _PROGRAMS / WITH_SERVICES
            program.write_text(services_script(plan.services), encoding="utf-8")
            program.chmod(0o755)
        return folder

    def save(self, saved: SavedEnvironment) -> None:
        """Save an environment for sessions to start from, and remove the folders of earlier
        ones."""
        place = self.folder(Path(saved.repository))
        write_atomic(place / _CURRENT, msgspec.json.encode(saved))
        for folder in place.iterdir():
            if folder.is_dir() and str(folder) != saved.folder:
                shutil.rmtree(folder, ignore_errors=True)

    def remove(self, repository: Path) -> bool:
        folder = self.folder(repository)
        was_there = (folder / _CURRENT).exists()
        shutil.rmtree(folder, ignore_errors=True)
        return was_there

    def unfinished(self, repository: Path) -> str | None:
        """The id of the session that sets up the environment and has not ended."""
        content = read_bounded(self.folder(repository) / _UNFINISHED)
        return None if content is None else content.decode("ascii")

    def set_unfinished(self, repository: Path, session_id: str | None) -> None:
        file = self.folder(repository) / _UNFINISHED
        if session_id is None:
            file.unlink(missing_ok=True)
        else:
            write_atomic(file, session_id.encode("ascii"))

    def folder(self, repository: Path) -> Path:
        name = os.fsencode(os.path.realpath(repository))
        return self._place / hashlib.sha256(name).hexdigest()[:20]


def services_script(services: Sequence[EnvironmentService]) -> str:
    """A script that runs services in the sandbox of a command: programs in other sandboxes cannot
    reach its ports."""
    starts = "\n".join(
        f"start {shlex.quote(item.name)} {shlex.quote(item.command)} {shlex.quote(item.ready)}"
        for item in services
    )
    return f"""#!/bin/bash
# {WITH_SERVICES} COMMAND...: runs a command beside the services of this environment
pids=()
logs=$(mktemp -d)
trap 'kill "${{pids[@]}}" 2>/dev/null' EXIT
fail() {{
  echo "{WITH_SERVICES}: $1 $2:" >&2
  tail -n 20 "$logs/$1" >&2
  exit 70
}}
start() {{
  bash -c "$2" >"$logs/$1" 2>&1 &
  pids+=($!)
  for attempt in $(seq {_READY_ATTEMPTS}); do
    kill -0 $! 2>/dev/null || fail "$1" "has ended"
    bash -c "$3" >/dev/null 2>&1 && return
    sleep 0.1
  done
  fail "$1" "is not ready"
}}
{starts}
"$@"
"""
