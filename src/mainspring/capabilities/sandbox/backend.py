"""What a sandbox is built from: the session's sandbox spec and limits, how a backend launches
the agent, which Python the agent runs on, and the operator's files that no program may reach.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Protocol, TypeAlias

from msgspec import Struct

from mainspring.core.errors import SandboxFailed
from mainspring.core.ports import IsolationLevel
from mainspring.files.openat import real_path

MIB = 1024 * 1024

CONTROL_FD = 3
"""Where the agent finds its socket to the keeper. What else it is given follows, from 4 on."""


class SandboxLimits(Struct, frozen=True, kw_only=True):
    """Limits of one program with all its descendants; each request has its own time limit."""

    cpu_seconds: int = 600
    """Of one process."""
    memory_bytes: int = 1024 * MIB
    processes: int = 128
    file_bytes: int = 128 * MIB
    """Of one file."""
    open_files: int = 1024
    disk_bytes: int = 1024 * MIB
    """By how much the workspace may grow."""
    tmp_bytes: int = 64 * MIB
    output_bytes: int = 64 * MIB
    """Of both streams, kept or not."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SandboxSpec:
    """A session's sandbox, as the operator configured it. Nothing comes from the workspace."""

    session_id: str
    workspace: Path
    state: Path
    """A private folder on the host for this sandbox: its socket and its results."""
    aliases: tuple[Path, ...] = ()
    """Paths that lead to the workspace besides its own, where a backend can make links. Links, so
    that what is hidden and protected in the workspace is so under these names too."""
    share: Path | None = None
    """A folder on the host that programs may read, at its own path."""
    read_only: tuple[Path, ...] = ()
    """Toolchains outside /usr, at their own paths."""
    distrusted: tuple[Path, ...] = ()
    """Folders besides the workspace that programs of the session can change: no link in them leads
    to what is mounted."""
    hidden: tuple[Path, ...] = ()
    """In the workspace, and not to be seen by programs."""
    protected: tuple[Path, ...] = ()
    """In the workspace, and not to be changed by programs; those that exist are read-only."""
    private: tuple[Path, ...] = ()
    """Files of the operator's that programs must not reach, wherever they are."""
    sandbox_limits: SandboxLimits = field(default_factory=SandboxLimits)
    network: bool = False
    """Whether the sandbox has a listener for the proxy outside."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Launch:
    """How the agent of a sandbox is started. Its control socket is at `CONTROL_FD`."""

    argv: tuple[str, ...]
    env: Mapping[str, str] = field(default_factory=dict[str, str])
    """Of the launcher itself. Programs can read it, so there is nothing of ours in it."""
    files: tuple[bytes, ...] = ()
    """Contents that the launcher reads at descriptors 4, 5, ... (a seccomp program, say)."""
    sources: tuple[str, ...] = ()
    """What the launcher mounts from the descriptors after those. The keeper opens them, and follows
    no link that a program of the session could have made."""
    forbidden: tuple[tuple[int, int], ...] = ()
    """Device and inode of what no source may be, by whatever name it was reached."""
    uid: int | None = None
    """Whom the launcher runs as, with the workspace's files for its own; where a file system cannot
    do that, as the harness. For root."""
    variables: Mapping[str, str] = field(default_factory=dict[str, str])
    """The environment of programs, where they are not given another."""
    rlimits: Mapping[str, int] = field(default_factory=dict[str, int])
    """What the agent sets for each program, by name: `NPROC`, `FSIZE`."""
    has_own_pids: bool = True
    """Whether killing the launcher kills everything inside; otherwise the keeper kills it."""
    fingerprint: str
    """Everything that decides how strict the sandbox is, and nothing specific to a session. Its
    hash is in the log."""


class Backend(Protocol):
    @property
    def name(self) -> str: ...

    @property
    def level(self) -> IsolationLevel: ...

    def launch(self, spec: SandboxSpec) -> Launch:
        """
        Raises:
            SandboxFailed: it cannot be used here; it says what to do about it.
        """
        ...


def readable_sources(spec: SandboxSpec) -> dict[Path, Path]:
    """Where the share and what is read-only really are, by their own paths.

    Raises:
        SandboxFailed: one is not there, or is behind a link that a program may have made.
    """
    untrusted = [str(item) for item in (spec.workspace, *spec.distrusted)]
    found: dict[Path, Path] = {}
    for path in (*spec.read_only, *([spec.share] if spec.share else [])):
        try:
            found[path] = Path(real_path(str(path), distrusted=untrusted))
        except OSError as error:
            raise SandboxFailed(f"not run: {path}: {error.strerror}") from error
    return found


def rlimits_of(limits: SandboxLimits) -> dict[str, int]:
    """What the kernel enforces for each process; the keeper sees to the rest.

    RLIMIT_DATA is close to what programs use; RLIMIT_AS is not (a node reserves gigabytes).
    RLIMIT_NPROC counts per sandbox only inside a user namespace or under a uid of its own.
    """
    return {
        "CORE": 0,
        "CPU": limits.cpu_seconds,
        "DATA": limits.memory_bytes,
        "FSIZE": limits.file_bytes,
        "NOFILE": limits.open_files,
        "NPROC": limits.processes,
    }


_SYSTEM_PREFIX = Path("/usr")


class AgentInterpreter(Struct, frozen=True):
    path: Path
    home: Path | None
    """What has to be readable for it, if that is not in /usr."""


def find_agent_interpreter() -> AgentInterpreter:
    """Ours, if it is the system's; else the system's own; else ours, with all that it needs."""
    prefix = Path(sys.base_prefix).resolve()
    version = f"python{sys.version_info.major}.{sys.version_info.minor}"
    ours = prefix / "bin" / version
    if prefix.is_relative_to(_SYSTEM_PREFIX) and os.access(ours, os.X_OK):
        return AgentInterpreter(ours, None)
    for minor in range(20, 8, -1):
        system = _SYSTEM_PREFIX / "bin" / f"python3.{minor}"
        if os.access(system, os.X_OK):
            return AgentInterpreter(system, None)
    return AgentInterpreter(ours, prefix)


FileIdentity: TypeAlias = tuple[int, int]
"""Device and inode."""
SYSTEM_FOLDERS = ("/usr", "/bin", "/sbin", "/lib", "/lib32", "/lib64", "/opt/homebrew")
"""What every program is shown, by one backend or another."""


def containing_paths(paths: Iterable[Path]) -> dict[FileIdentity, Path]:
    """Everything that shows one of these files if it is mounted: the file itself, and every folder
    above it. A file that is not there yet has the folders that it would be made in."""
    found: dict[FileIdentity, Path] = {}
    for path in paths:
        real = Path(os.path.realpath(path))
        for parent in (real, *real.parents):
            if (identity := file_identity(parent)) is not None:
                found.setdefault(identity, path)
    return found


def file_identity(path: Path) -> FileIdentity | None:
    try:
        state = path.stat()
    except OSError:
        return None
    return state.st_dev, state.st_ino


def check_private_paths(spec: SandboxSpec) -> None:
    """
    Raises:
        SandboxFailed: programs would be shown a private file; it says which, and by what.
    """
    workspace = file_identity(spec.workspace)
    elsewhere = [path for path in spec.private if workspace not in containing_paths([path])]
    home = find_agent_interpreter().home
    named = (*spec.read_only, *([spec.share] if spec.share else []))
    for folders, private in ((named, spec.private), ((*SYSTEM_FOLDERS, home or "/usr"), elsewhere)):
        held = containing_paths(private)
        for folder in folders:
            if (path := held.get(file_identity(Path(folder)) or (0, 0))) is not None:
                raise SandboxFailed(
                    f"not run: {folder} is shown to programs, and {path} is in it: keep that"
                    " elsewhere, or name narrower folders under `readOnly`"
                )
    hidden = {file_identity(spec.workspace / item) for item in spec.hidden}
    for path in filter(Path.exists, spec.private):
        above = containing_paths([path])
        if workspace in above and not hidden & above.keys():
            raise SandboxFailed(
                f"not run: {path} is in the workspace, where programs could read it: keep it"
                " elsewhere"
            )


PACKAGE_ROOT = Path(__file__).parents[2]


def module_command(module: str, *arguments: str) -> tuple[str, ...]:
    """Python's arguments to run `main` of a module beside this one. The package's own `__init__` is
    left out: what it imports takes longer than such a process needs."""
    code = (
        "import sys; package = type(sys)('mainspring'); package.__path__ = [sys.argv[1]];"
        " sys.modules['mainspring'] = package;"
        f" from mainspring.capabilities.sandbox.{module} import main; main(*sys.argv[2:])"
    )
    return ("-I", "-S", "-c", code, str(PACKAGE_ROOT), *arguments)


@dataclass(frozen=True, slots=True)
class Unsandboxed:
    name = "none"
    level: IsolationLevel = field(default="none", init=False)

    def launch(self, spec: SandboxSpec) -> Launch:
        if spec.network:
            raise SandboxFailed(
                "an allow-list of hosts cannot be enforced without a sandbox: turn it off"
            )
        rlimits = rlimits_of(spec.sandbox_limits)
        del rlimits["NPROC"]  # would count everything that this user runs
        return Launch(
            argv=bare_agent("family"),
            variables={
                "PATH": "/usr/local/bin:/usr/bin:/bin:/usr/local/sbin:/usr/sbin:/sbin",
                "HOME": str(spec.workspace),
                "LANG": "C.UTF-8",
            },
            rlimits=rlimits,
            has_own_pids=False,
            fingerprint=f"none\n{spec.sandbox_limits!r}",
        )


def bare_agent(sweeps: str) -> tuple[str, ...]:
    """The agent where there is no PID namespace: `reachable` kills all that it can reach, `family`
    all that descends from it."""
    return (sys.executable, *module_command("bare_inside", sweeps))
