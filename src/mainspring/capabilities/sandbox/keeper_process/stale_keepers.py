"""Ends sandboxes that another version, or other settings, left running.

A keeper is found by its socket in a folder that only we can access, and ended through a pidfd:
never by name or by a PID, which another process may have got meanwhile. Blocks.
"""

from __future__ import annotations

import hashlib
import os
import select
import signal
import socket
import stat
import sys
from collections.abc import Iterator
from functools import cache
from pathlib import Path

from mainspring.capabilities.sandbox.keeper_process.execution_records import ExecutionRecords
from mainspring.capabilities.sandbox.wire import SOCKET, frame

_SECONDS = 5.0  # for a keeper to close by itself; then it is killed
_CREDENTIALS = 3 * 4  # bytes of `struct ucred`


@cache
def source_version() -> str:
    """A hash of all code that a sandbox is made by."""
    digest = hashlib.sha256()
    for source in sorted(Path(__file__).parents[1].rglob("*.py")):
        digest.update(source.read_bytes())
    return digest.hexdigest()[:16]


def stamp(flags_hash: str) -> str:
    """A keeper's stamp: which code started it, and how strict its sandbox is."""
    return f"{source_version()} {flags_hash}"


def end_keeper_if_stale(stamp: str, state: Path, *, seconds: float = _SECONDS) -> None:
    """End the keeper of this folder, with all programs in its sandbox, if its stamp differs."""
    if (state / SOCKET).exists() and ExecutionRecords(str(state)).stamp() != stamp:
        _end(state, seconds)


def end_stale_keepers(folder: Path, *, seconds: float = _SECONDS) -> int:
    """End all keepers below a folder of sessions' states that other code started; returns their
    number."""
    count = 0
    for state in _states(folder):
        if ExecutionRecords(str(state)).stamp().partition(" ")[0] != source_version():
            count += _end(state, seconds)
    return count


def _states(folder: Path) -> Iterator[Path]:
    for pattern in (f"*/{SOCKET}", f"*/services/*/{SOCKET}"):
        for path in sorted(folder.glob(pattern)):
            yield path.parent


def _end(state: Path, seconds: float) -> bool:
    """End the keeper of this state; whether there was one."""
    try:
        folder = os.open(state, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW)
    except OSError:
        return False
    try:
        if not _is_ours(os.fstat(folder)) or not is_socket(folder):
            return False
        with socket.socket(socket.AF_UNIX) as visit:
            visit.settimeout(seconds)
            try:  # a socket path may have at most 107 bytes
                linux = sys.platform == "linux"
                visit.connect(f"/proc/self/fd/{folder}/{SOCKET}" if linux else f"{state}/{SOCKET}")
            except OSError:
                return False  # no keeper listens there
            _end_peer(visit, seconds)
            return True
    finally:
        os.close(folder)


def is_socket(folder: int) -> bool:
    """Whether the keeper's socket is in this folder; a link may lead to somebody else's."""
    try:
        return stat.S_ISSOCK(os.stat(SOCKET, dir_fd=folder, follow_symlinks=False).st_mode)
    except OSError:
        return False


def _is_ours(folder: os.stat_result) -> bool:
    return folder.st_uid == os.geteuid() and not folder.st_mode & (stat.S_IRWXG | stat.S_IRWXO)


def _end_peer(visit: socket.socket, seconds: float) -> None:
    """Ask the keeper to close, so that its program's result is stored; kill it if it does not."""
    process = _process(visit)
    try:
        _ask_to_close(visit)
        if process is not None and not _has_ended(process, seconds):
            signal.pidfd_send_signal(process, signal.SIGKILL)
            _has_ended(process, seconds)
    finally:
        if process is not None:
            os.close(process)


def _process(visit: socket.socket) -> int | None:
    """A pidfd of the process that listens there, if it has our uid."""
    if sys.platform != "linux":
        return None
    packed = visit.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, _CREDENTIALS)
    pid, uid = (int.from_bytes(packed[at : at + 4], sys.byteorder) for at in (0, 4))
    if uid != os.geteuid():
        return None
    try:
        process = os.pidfd_open(pid)
    except OSError:
        return None
    if _is_disconnected(visit):  # it died: another process may have its PID
        os.close(process)
        return None
    return process


def _is_disconnected(visit: socket.socket) -> bool:
    patience = visit.gettimeout()
    visit.setblocking(False)
    try:
        return visit.recv(1, socket.MSG_PEEK) == b""
    except BlockingIOError:
        return False
    except OSError:
        return True
    finally:
        visit.settimeout(patience)


def _ask_to_close(visit: socket.socket) -> None:
    try:
        visit.sendall(frame(b"close"))
        while visit.recv(65536):  # the keeper answers by disconnecting
            continue
    except OSError:
        return


def _has_ended(process: int, seconds: float) -> bool:
    poll = select.poll()
    poll.register(process, select.POLLIN)
    return bool(poll.poll(seconds * 1000))
