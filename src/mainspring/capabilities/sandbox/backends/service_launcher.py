"""Starts a server in a container that begins as root.

The server becomes a user of its own. Of root's capabilities it keeps the six with which sandboxes
give each session's programs a uid of their own; Landlock confines it to its own folders, so that
these six do not reach the rest of the container. The launcher stays root with one capability,
passes signals on, and cannot be reached by the server.
"""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from pathlib import Path

from msgspec import Struct

from mainspring.capabilities.sandbox.backends.landlock_rules import (
    ENOUGH_ABI,
    READ,
    SERVE,
    USE,
    enforce,
    landlock_abi,
    service_ruleset,
)
from mainspring.capabilities.sandbox.backends.linux_capabilities import (
    become_user,
    set_capabilities,
)
from mainspring.files.openat import OpenDescriptor
from mainspring.files.session_owner import CAPABILITIES_FOR_UIDS, missing_capabilities

_SYSTEM = (
    *("/usr", "/bin", "/sbin", "/lib", "/lib32", "/lib64", "/opt", "/sys", "/run"),
    *(sys.prefix, sys.base_prefix, str(Path(__file__).parents[4])),
)
_ETC, _SECRETS_OF_ROOT = Path("/etc"), ("shadow", "shadow-", "gshadow", "gshadow-", "sudoers")
_TEMPORARY = (Path("/tmp"), Path("/dev/shm"))
_PASSED_ON = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGQUIT, signal.SIGUSR1)
_AWAITED = frozenset((*_PASSED_ON, signal.SIGCHLD))
_SIGNALLED = 128  # a shell's status is 128 and the signal's number


class Server(Struct, frozen=True, kw_only=True):
    command: Sequence[str]
    environment: Mapping[str, str]
    uid: int
    gid: int
    groups: Sequence[int]
    folders: Sequence[Path]
    """The folders that it may change, besides those for temporary files."""


def run_server(server: Server) -> int:
    """Run it until it ends; its exit status, 128 + n after signal n."""
    signal.pthread_sigmask(signal.SIG_BLOCK, _AWAITED)
    process = os.fork()
    if process == 0:
        try:
            _become(server)
        except OSError as error:
            _complain(str(error))
        finally:
            os._exit(1)
    with suppress(OSError):  # a container may allow less; then it has less
        set_capabilities([CAPABILITIES_FOR_UIDS["kill"]])
    return _wait_for(process)


def _become(server: Server) -> None:
    complaint = _why_not_kept()
    if complaint:
        _complain(complaint)
    kept = () if complaint else tuple(CAPABILITIES_FOR_UIDS.values())
    become_user(server.uid, server.gid, server.groups, kept)
    if kept:
        enforce(service_ruleset(_rights(server.folders)))
    signal.pthread_sigmask(signal.SIG_UNBLOCK, _AWAITED)
    os.execve(server.command[0], list(server.command), dict(server.environment))


def _why_not_kept() -> str | None:
    """Why programs cannot have uids of their own here, and what helps."""
    if missing := missing_capabilities():
        options = " ".join(f"--cap-add {name.upper()}" for name in missing)
        return (
            f"programs of sessions cannot have uids of their own, because this container lacks the"
            f" capabilities {', '.join(missing)}: start it with {options}"
        )
    if landlock_abi() < ENOUGH_ABI:
        return (
            f"programs of sessions cannot be confined, because this kernel has Landlock ABI"
            f" {landlock_abi()} of at least {ENOUGH_ABI}: use Linux 6.12 or newer"
        )
    return None


def _complain(text: str) -> None:
    sys.stderr.write(f"mainspring-container: {text}\n")


def _rights(folders: Iterable[Path]) -> Iterator[tuple[int, int]]:
    """Open paths and what the server may do below them."""
    readable = [*map(Path, _SYSTEM)]
    readable += [_ETC / name for name in os.listdir(_ETC) if name not in _SECRETS_OF_ROOT]
    usable = (Path("/dev"), Path("/proc"))
    own = (*folders, *_TEMPORARY)
    for rights, paths in ((READ, readable), (USE | READ, usable), (SERVE, own)):
        for path in paths:
            if os.path.exists(path):
                with OpenDescriptor(os.open(path, os.O_PATH | os.O_CLOEXEC)) as descriptor:
                    yield descriptor, rights


def _wait_for(server: int) -> int:
    while True:
        received = signal.sigwait(_AWAITED)
        if received != signal.SIGCHLD:
            os.kill(server, received)
            continue
        while (ended := os.waitpid(-1, os.WNOHANG))[0]:  # also what others left behind
            process, status = ended
            if process == server:
                code = os.waitstatus_to_exitcode(status)
                return code if code >= 0 else _SIGNALLED - code
