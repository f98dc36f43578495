"""The lease that a writer needs: acquired, renewed, released, and taken over when its owner has
died on this machine.
"""

from __future__ import annotations

import os
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager, suppress
from dataclasses import replace
from functools import cache
from pathlib import Path

import anyio

from mainspring.core import ids
from mainspring.core.errors import Fenced, LeaseHeld, StoreFailed, StoreUnavailable
from mainspring.log.session_log import SessionLog
from mainspring.log.task_groups import run_in_background
from mainspring.log.writer import Writer


def local_owner(worker_id: str) -> str:
    """`wrkr_...@place/pid`; only the worker id on systems without process namespaces."""
    place = _boot_and_namespace()
    return worker_id if place is None else f"{worker_id}@{place}/{os.getpid()}"


def is_dead(owner: str) -> bool:
    """Whether the owner was a process of this boot and this PID namespace that has ended."""
    _, _, where = owner.partition("@")
    place, _, pid = where.rpartition("/")
    if not place or place != _boot_and_namespace() or not pid.isdecimal():
        return False
    try:
        os.kill(int(pid), 0)
    except ProcessLookupError:
        return True
    except OSError:
        return False
    return False


@cache
def _boot_and_namespace() -> str | None:
    """This boot of this machine, as seen from this PID namespace. Linux only."""
    try:
        boot = Path("/proc/sys/kernel/random/boot_id").read_text(encoding="ascii").strip()
        return f"{boot}.{os.stat('/proc/self/ns/pid').st_ino}"
    except OSError:
        return None


LEASE_SECONDS = 4.0
"""How long the sessions of a dead worker wait for another one. A worker renews its leases three
times in this period."""


@asynccontextmanager
async def hold_session(
    log: SessionLog, session_id: str, *, is_receiving: bool = False
) -> AsyncGenerator[Writer, None]:
    """Hold a session's lease until the block ends. Only one writer holds it at a time, even within
    one process: each has its own name.

    Raises:
        LeaseHeld: another worker holds it.
        ForeignSession: this installation did not write it, and it is not being received.
    """
    owner = local_owner(ids.new_id(ids.WORKER))
    writer = await _acquire(log, session_id, owner, is_receiving=is_receiving)
    try:
        async with run_in_background(lambda: _renew_forever(writer)):
            yield writer
    except BaseException:
        with anyio.CancelScope(shield=True), suppress(StoreFailed, Fenced):
            # expired, not released: a worker that looks for unfinished sessions then finds it
            await log.store.renew(replace(writer.lease, seconds=0.0))
        raise
    with anyio.CancelScope(shield=True), suppress(StoreFailed):
        await writer.release()  # if it fails, the lease expires by itself


async def _acquire(log: SessionLog, session_id: str, owner: str, *, is_receiving: bool) -> Writer:
    try:
        return await log.hold(
            session_id, owner=owner, seconds=LEASE_SECONDS, is_receiving=is_receiving
        )
    except LeaseHeld as other:
        if not is_dead(other.owner):
            raise
        return await log.hold(
            session_id,
            owner=owner,
            seconds=LEASE_SECONDS,
            # With its epoch: if another process takes the dead owner's place first, we are refused.
            instead_of=(other.owner, other.epoch),
            is_receiving=is_receiving,
        )


async def _renew_forever(writer: Writer) -> None:
    """Renew the lease while nothing is appended: a model may think for minutes.

    An unavailable store does not stop this: the lease is lost only when another writer takes it.
    """
    while True:
        await anyio.sleep(writer.lease.seconds / 3)
        with suppress(StoreUnavailable):
            await writer.renew()
