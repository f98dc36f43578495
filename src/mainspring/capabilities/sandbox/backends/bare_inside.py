"""The agent of backends without a PID namespace, and how it kills leftover processes."""

from __future__ import annotations

import _socket
import ctypes
import os
import signal
import sys

from mainspring.capabilities.sandbox.backends.agent import CONTROL_FD, serve
from mainspring.capabilities.sandbox.resource_monitor import descendants_of


def check_unreachable(process: int) -> None:
    """Check that signals do not reach a process outside: some kernels claim to restrict signals and
    do not, and killing every reachable process would then end everything that the user runs.

    Raises:
        OSError: the process can be signalled from here.
    """
    try:
        os.kill(process, 0)
    except PermissionError:
        return
    raise OSError("this system does not keep signals inside the sandbox")


def kill_reachable() -> None:
    """Kill all other processes that we can signal; first make sure that none is outside the
    sandbox."""
    try:
        os.kill(-1, signal.SIGKILL)
    except (ProcessLookupError, PermissionError):
        return


def kill_descendants() -> None:
    """Kill all descendants of this process. If they fork fast, it takes several rounds."""
    for process in descendants_of(os.getpid()):
        try:
            os.kill(process, signal.SIGKILL)
        except ProcessLookupError:
            continue


_SET_SUBREAPER = 36  # linux/prctl.h: PR_SET_CHILD_SUBREAPER


def main(sweeps: str) -> None:
    control = _socket.socket(fileno=CONTROL_FD)
    if sweeps == "reachable":
        check_unreachable(os.getppid())
        serve(control, sweep=kill_reachable)
        return
    if sys.platform == "linux" and ctypes.CDLL(None).prctl(_SET_SUBREAPER, 1, 0, 0, 0) != 0:
        raise OSError("cannot become the parent of what programs leave behind")
    serve(control, sweep=kill_descendants)
