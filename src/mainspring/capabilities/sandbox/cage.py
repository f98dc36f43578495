"""What a sandbox is made of: the place, its limits, and how a backend starts the agent in it.

A backend says how (`Launch`); the keeper does it and holds programs to the limits; the agent,
inside, starts them. None of that is here.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Protocol

from mainspring.core.errors import SandboxFailed
from mainspring.core.hands import Level
from mainspring.core.openat import real_path

MIB = 1024 * 1024

CONTROL_FD = 3
"""Where the agent finds its socket to the keeper. What else it is given follows, from 4 on."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """Of one program with all its descendants; how long it may take is said with each."""

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
class Site:
    """One session's place, as the operator set it up. Nothing in it comes from the workspace."""

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
    limits: Limits = field(default_factory=Limits)
    network: bool = False
    """Whether there is to be a listener inside for a proxy outside."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Launch:
    """How the agent of a site is started. It finds its control socket at `CONTROL_FD`."""

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
    """Whether killing the launcher kills all that runs inside; if not, the keeper hunts it down."""
    fingerprint: str
    """All that decides how tight the cage is, and nothing of one session; the hash of it is
    in the log."""


class Backend(Protocol):
    @property
    def name(self) -> str: ...

    @property
    def level(self) -> Level: ...

    def launch(self, site: Site) -> Launch:
        """
        Raises:
            SandboxFailed: it cannot be used here; it says what to do about it.
        """
        ...


def readable_sources(site: Site) -> dict[Path, Path]:
    """Where the share and what is read-only really are, by their own paths.

    Raises:
        SandboxFailed: one is not there, or is behind a link that a program may have made.
    """
    untrusted = [str(each) for each in (site.workspace, *site.distrusted)]
    found: dict[Path, Path] = {}
    for path in (*site.read_only, *([site.share] if site.share else [])):
        try:
            found[path] = Path(real_path(str(path), distrusted=untrusted))
        except OSError as error:
            raise SandboxFailed(f"not run: {path}: {error.strerror}") from error
    return found


def rlimits_of(limits: Limits) -> dict[str, int]:
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
