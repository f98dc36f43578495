"""Killing whatever a program has left behind where there is no PID namespace to do it in."""

from __future__ import annotations

import os
import signal

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
