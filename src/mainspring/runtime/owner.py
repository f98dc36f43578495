"""Names of lease holders, and whether the holder of one has died on this very machine.

A worker that was killed cannot give its lease back. Where we can see for certain that it is gone,
nobody has to wait until it runs out.
"""

from __future__ import annotations

import os
from pathlib import Path


def local_owner(worker_id: str) -> str:
    """`wrkr_...@place/pid`; the place is left out where processes cannot be told apart."""
    place = _place()
    return worker_id if place is None else f"{worker_id}@{place}/{os.getpid()}"


def is_dead(owner: str) -> bool:
    """True only if the owner was a process of this boot and this PID namespace and is no more."""
    _, _, where = owner.partition("@")
    place, _, pid = where.rpartition("/")
    if not place or place != _place() or not pid.isdecimal():
        return False
    try:
        os.kill(int(pid), 0)
    except ProcessLookupError:
        return True
    except OSError:
        return False
    return False


def _place() -> str | None:
    """This boot of this machine, as seen from this PID namespace. Linux only."""
    try:
        boot = Path("/proc/sys/kernel/random/boot_id").read_text(encoding="ascii").strip()
        return f"{boot}.{os.stat('/proc/self/ns/pid').st_ino}"
    except OSError:
        return None
