"""The agent where it is not the first process of a PID namespace."""

from __future__ import annotations

import _socket
import ctypes
import os
import sys

from mainspring.capabilities.sandbox.agent import CONTROL_FD, serve
from mainspring.capabilities.sandbox.process_cleanup import (
    check_unreachable,
    kill_descendants,
    kill_reachable,
)

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
