"""The parts of a sandbox: the session's sandbox spec and limits, how a backend launches the agent,
which Python the agent runs on, and the operator's files that no program may reach.
"""

from __future__ import annotations

import hashlib
import os
import sys
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Protocol, TypeAlias

from msgspec import Struct

from mainspring.core.errors import SandboxFailed
from mainspring.core.ports import IsolationLevel, SandboxInfo
from mainspring.files.openat import real_path

MIB = 1024 * 1024  # bytes

CONTROL_FD = 3
"""The agent's socket to the keeper. Further descriptors follow, from 4 on."""


class SandboxLimits(Struct, frozen=True, kw_only=True):
    """Limits of one program with all its descendants; the time limit is part of each request."""

    cpu_seconds: int = 600
    """Per process."""
    memory_bytes: int = 1024 * MIB
    processes: int = 128
    file_bytes: int = 128 * MIB
    """The size of one file."""
    open_files: int = 1024
    disk_bytes: int = 1024 * MIB
    """How much the workspace may grow."""
    tmp_bytes: int = 64 * MIB
    output_bytes: int = 64 * MIB
    """The limit for both output streams together, including output that is not kept."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SandboxSpec:
    """A session's sandbox as the operator configured it; no value comes from the workspace."""

    session_id: str
    workspace: Path
    state: Path
    """A private folder on the host for this sandbox: its socket and its results."""
    aliases: tuple[Path, ...] = ()
    """Other paths that lead to the workspace, for backends that can make links. They are links, so
    that hidden and protected paths are so under these names too."""
    share: Path | None = None
    """A folder on the host that programs may read, at its own path."""
    read_only: tuple[Path, ...] = ()
    """Toolchains outside /usr, mounted at their own paths."""
    distrusted: tuple[Path, ...] = ()
    """Folders besides the workspace that programs of the session can change; links in them are not
    followed to what is mounted."""
    hidden: tuple[Path, ...] = ()
    """Paths in the workspace that programs must not see."""
    protected: tuple[Path, ...] = ()
    """Paths in the workspace that programs must not change; those that exist become read-only."""
    private: tuple[Path, ...] = ()
    """Files of the operator that programs must not reach, wherever they are."""
    sandbox_limits: SandboxLimits = field(default_factory=SandboxLimits)
    network: bool = False
    """Whether the sandbox has a listener for the proxy on the host."""
    guard: Path | None = None
    """The private folder of the session's guard of protected paths."""
    end_guard: tuple[str, ...] = ()
    """The command that ends that guard when its process was killed."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Launch:
    """How a sandbox's agent is started. Its control socket is at `CONTROL_FD`."""

    argv: tuple[str, ...]
    env: Mapping[str, str] = field(default_factory=dict[str, str])
    """The environment of the launcher itself. Programs can read it, so it has no values of ours."""
    files: tuple[bytes, ...] = ()
    """File contents that the launcher reads at descriptors 4, 5, ... (a seccomp program, for
    example)."""
    sources: tuple[str, ...] = ()
    """Paths that the launcher mounts from the descriptors after `files`. The keeper opens them,
    without following any link that a program of the session could have made."""
    forbidden: tuple[tuple[int, int], ...] = ()
    """Device and inode of everything that must never be mounted, whatever its path."""
    uid: int | None = None
    """The uid that the launcher runs as, with the workspace's files mapped to it; on a file system
    without idmapped mounts, it runs as the harness. Needs root."""
    variables: Mapping[str, str] = field(default_factory=dict[str, str])
    """The default environment of programs."""
    rlimits: Mapping[str, int] = field(default_factory=dict[str, int])
    """Resource limits that the agent sets for each program, by name: `NPROC`, `FSIZE`."""
    has_own_pids: bool = True
    """Whether killing the launcher kills everything inside; otherwise the keeper kills each
    process."""


class Backend(Protocol):
    @property
    def name(self) -> str: ...

    @property
    def level(self) -> IsolationLevel: ...

    def fingerprint(self, spec: SandboxSpec) -> str:
        """Everything that decides how strict the sandbox is, and nothing specific to a session.

        Raises:
            SandboxFailed: it cannot be used here; it says what to do about it.
        """
        ...

    def launch(self, spec: SandboxSpec) -> Launch:
        """How to start the agent for this sandbox.

        Raises:
            SandboxFailed: it cannot be used here; it says what to do about it.
        """
        ...


def describe_sandbox(backend: Backend, spec: SandboxSpec) -> SandboxInfo:
    """
    Raises:
        SandboxFailed: the backend cannot be used here; it says what to do about it.
    """
    digest = hashlib.sha256(backend.fingerprint(spec).encode()).hexdigest()
    return SandboxInfo(backend=backend.name, isolation_level=backend.level, flags_hash=digest[:16])


def readable_sources(spec: SandboxSpec) -> dict[Path, Path]:
    """The real paths of the share and of the read-only folders, by their own paths.

    Raises:
        SandboxFailed: one does not exist, or is behind a link that a program may have made.
    """
    untrusted = [str(item) for item in (spec.workspace, *spec.distrusted)]
    sources: dict[Path, Path] = {}
    for path in (*spec.read_only, *([spec.share] if spec.share else [])):
        try:
            sources[path] = Path(real_path(str(path), distrusted=untrusted))
        except OSError as error:
            raise SandboxFailed(f"not run: {path}: {error.strerror}") from error
    return sources


def rlimits_of(limits: SandboxLimits) -> dict[str, int]:
    """Limits that the kernel enforces for each process; the keeper enforces the others.

    RLIMIT_DATA is close to what programs use; RLIMIT_AS is not (node reserves gigabytes).
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
    """The folder that must be readable for it, if it is not in /usr."""


def find_agent_interpreter() -> AgentInterpreter:
    """Our own Python if it is in /usr; else the newest Python in /usr; else ours, with its
    prefix."""
    prefix = Path(sys.base_prefix).resolve()
    version = f"python{sys.version_info.major}.{sys.version_info.minor}"
    interpreter = prefix / "bin" / version
    if prefix.is_relative_to(_SYSTEM_PREFIX) and os.access(interpreter, os.X_OK):
        return AgentInterpreter(interpreter, None)
    for minor in range(20, 8, -1):
        system = _SYSTEM_PREFIX / "bin" / f"python3.{minor}"
        if os.access(system, os.X_OK):
            return AgentInterpreter(system, None)
    return AgentInterpreter(interpreter, prefix)


FileIdentity: TypeAlias = tuple[int, int]
"""Device and inode."""
SYSTEM_FOLDERS = ("/usr", "/bin", "/sbin", "/lib", "/lib32", "/lib64", "/opt/homebrew")
"""Folders that some backend shows to every program."""


def containing_paths(paths: Iterable[Path]) -> dict[FileIdentity, Path]:
    """All paths that would show one of these files if they were mounted: the file itself and every
    folder above it. For a file that does not exist yet, the existing folders above it."""
    path_by_identity: dict[FileIdentity, Path] = {}
    for path in paths:
        real = Path(os.path.realpath(path))
        for parent in (real, *real.parents):
            if (identity := file_identity(parent)) is not None:
                path_by_identity.setdefault(identity, path)
    return path_by_identity


def file_identity(path: Path) -> FileIdentity | None:
    try:
        state = path.stat()
    except OSError:
        return None
    return state.st_dev, state.st_ino


def check_private_paths(spec: SandboxSpec) -> None:
    """Check that no folder that programs see contains a private file.

    Raises:
        SandboxFailed: programs would see a private file; it says which, and in which folder.
    """
    workspace = file_identity(spec.workspace)
    parents = {path: containing_paths([path]).keys() for path in spec.private}
    elsewhere = [path for path in spec.private if workspace not in parents[path]]
    home = find_agent_interpreter().home
    paths = (*spec.read_only, *([spec.share] if spec.share else []))
    for folders, private in ((paths, spec.private), ((*SYSTEM_FOLDERS, home or "/usr"), elsewhere)):
        for identity, folder in ((file_identity(Path(folder)), folder) for folder in folders):
            if path := next((item for item in private if identity in parents[item]), None):
                raise SandboxFailed(
                    f"not run: {folder} is shown to programs, and {path} is in it: keep that"
                    " elsewhere, or name narrower folders under `readOnly`"
                )
    hidden = {file_identity(spec.workspace / item) for item in spec.hidden}
    for path in filter(Path.exists, spec.private):
        if workspace in parents[path] and not hidden & parents[path]:
            raise SandboxFailed(
                f"not run: {path} is in the workspace, where programs could read it: keep it"
                " elsewhere"
            )


PACKAGE_ROOT = Path(__file__).parents[2]


def module_command(module: str, *arguments: str) -> tuple[str, ...]:
    """Python's arguments to run `main` of a module of this package. They skip the package's own
    `__init__`, whose imports take longer than such a process needs."""
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

    def _refuse(self, spec: SandboxSpec) -> None:
        if spec.network:
            raise SandboxFailed(
                "an allow-list of hosts cannot be enforced without a sandbox: turn it off"
            )

    def fingerprint(self, spec: SandboxSpec) -> str:
        self._refuse(spec)
        return f"none\n{spec.sandbox_limits!r}"

    def launch(self, spec: SandboxSpec) -> Launch:
        self._refuse(spec)
        rlimits = rlimits_of(spec.sandbox_limits)
        del rlimits["NPROC"]  # it would count all processes of this user
        return Launch(
            argv=bare_agent("family"),
            variables={
                "PATH": "/usr/local/bin:/usr/bin:/bin:/usr/local/sbin:/usr/sbin:/sbin",
                "HOME": str(spec.workspace),
                "LANG": "C.UTF-8",
            },
            rlimits=rlimits,
            has_own_pids=False,
        )


def bare_agent(sweeps: str) -> tuple[str, ...]:
    """The command of an agent without a PID namespace: `reachable` kills all processes that it can
    signal, `family` all its descendants."""
    return (sys.executable, *module_command("backends.bare_inside", sweeps))
