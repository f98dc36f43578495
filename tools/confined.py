"""Runs a command as in a default container: no new namespaces, no mounts, few capabilities.

    .venv/bin/python tools/confined.py [--no-landlock] [--no-new-privs] [--user UID] COMMAND...

It needs root. It uses what the sandbox itself is made of, so that no further package is needed.
"""

from __future__ import annotations

import argparse
import ctypes
import errno
import os
import struct
import sys
from collections.abc import Iterable

from mainspring.capabilities.sandbox.backends.agent import install_filter
from mainspring.capabilities.sandbox.backends.seccomp import MACHINES

_REFUSED = ("unshare", "setns", "mount", "umount2", "pivot_root", "keyctl", "bpf")
_REFUSED_TOO = (298 if os.uname().machine == "x86_64" else 241, 428, 429, 430, 431, 432, 442)
"""perf_event_open, open_tree, move_mount, fsopen, fsconfig, fsmount, mount_setattr"""
_CLONE3 = 435
_LANDLOCK = (444, 445, 446)
_NEW_NAMESPACES = 0x7E020000
_CAPABILITIES = (
    *("chown", "dac_override", "fowner", "fsetid", "kill", "setgid", "setuid", "setpcap"),
    *("net_bind_service", "net_raw", "sys_chroot", "mknod", "audit_write", "setfcap"),
)
"""Those that Docker leaves to a container's root."""
_LOAD, _EQUAL, _ANY_BIT, _RETURN = 0x20, 0x15, 0x45, 0x06
_NUMBER, _FIRST_ARGUMENT = 0, 16
_ALLOW, _ERROR = 0x7FFF0000, 0x00050000
_SET_NO_NEW_PRIVS = 38


def container_filter(machine: str, *, has_landlock: bool) -> bytes:
    """A seccomp program that refuses what a container's default profile refuses to sandboxes."""
    calls = MACHINES[machine].calls
    steps = [_step(_LOAD, _NUMBER)]
    for number in (*(calls[name] for name in _REFUSED), *_REFUSED_TOO):
        steps += _error_if(_EQUAL, number, errno.EPERM)
    for number in (_CLONE3, *(() if has_landlock else _LANDLOCK)):
        steps += _error_if(_EQUAL, number, errno.ENOSYS)
    new_namespaces = _error_if(_ANY_BIT, _NEW_NAMESPACES, errno.EPERM)
    checked = [_step(_LOAD, _FIRST_ARGUMENT), *new_namespaces]
    steps += [_step(_EQUAL, calls["clone"], 0, len(checked)), *checked, _step(_RETURN, _ALLOW)]
    return b"".join(steps)


def _error_if(test: int, value: int, error: int) -> Iterable[bytes]:
    return [_step(test, value, 0, 1), _step(_RETURN, _ERROR | error)]


def _step(code: int, value: int, if_true: int = 0, if_false: int = 0) -> bytes:
    return struct.pack("=HBBI", code, if_true, if_false, value)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument(
        "--no-landlock", action="store_true", help="as on an older kernel, or under gVisor"
    )
    parser.add_argument(
        "--no-new-privs", action="store_true", help="as with --security-opt no-new-privileges"
    )
    parser.add_argument("--user", type=int, help="as this uid instead of root")
    parser.add_argument("command", nargs=argparse.REMAINDER)
    options = parser.parse_args()
    if os.geteuid() != 0:
        sys.exit(
            "tools/confined.py needs root: only root can take capabilities away and change its uid"
        )
    if not options.command:
        parser.error("a command is missing")
    if options.no_new_privs and ctypes.CDLL(None).prctl(_SET_NO_NEW_PRIVS, 1, 0, 0, 0) != 0:
        sys.exit("no_new_privs could not be set")
    install_filter(container_filter(os.uname().machine, has_landlock=not options.no_landlock))
    user = options.user
    identity = [] if user is None else [f"--reuid={user}", f"--regid={user}", "--clear-groups"]
    bounding = ",".join(f"+{name}" for name in _CAPABILITIES)
    os.execvp(
        "setpriv",
        [
            "setpriv",
            *identity,
            "--bounding-set",
            f"-all,{bounding}",
            "--inh-caps",
            "-all",
            *options.command,
        ],
    )


if __name__ == "__main__":
    main()
