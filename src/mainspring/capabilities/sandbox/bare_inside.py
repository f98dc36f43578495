"""The agent where it is not the first process of a PID namespace, and killing what a program
leaves behind there.
"""

from __future__ import annotations

import _socket
import ctypes
import os
import signal
import sys

from mainspring.capabilities.sandbox.agent import CONTROL_FD, serve
from mainspring.capabilities.sandbox.resource_monitor import descendants_of


def check_unreachable(process: int) -> None:
    """Some kernels say that they keep signals inside and do not; killing everything in reach would
    end all that the user runs there.

    Raises:
        OSError: it can be signalled from here.
    """
    try:
        os.kill(process, 0)
    except PermissionError:
        return
    raise OSError("this system does not keep signals inside the sandbox")


def kill_reachable() -> None:
    """All but ourselves, at once. Only for who has made sure that others are out of reach."""
    try:
        os.kill(-1, signal.SIGKILL)
    except (ProcessLookupError, PermissionError):
        return


def kill_descendants() -> None:
    """All that descend from us. Something that forks fast enough takes several rounds."""
    for process in descendants_of(os.getpid()):
        try:
            os.kill(process, signal.SIGKILL)
        except ProcessLookupError:
            continue


_SET_SUBREAPER = 36


def main(sweeps: str) -> None:
    control = _socket.socket(fileno=CONTROL_FD)
    if sweeps == "reachable":
        check_unreachable(os.getppid())
        serve(control, sweep=kill_reachable)
        return
    if sys.platform == "linux" and ctypes.CDLL(None).prctl(_SET_SUBREAPER, 1, 0, 0, 0) != 0:
        raise OSError("cannot adopt what programs leave behind")
    serve(control, sweep=kill_descendants)
