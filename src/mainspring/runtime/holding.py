"""Holding a session: the one lease under which it is written to, renewed and given back."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Callable
from contextlib import asynccontextmanager, suppress
from dataclasses import replace

import anyio

from mainspring.core import ids
from mainspring.core.errors import Fenced, LeaseHeld, StoreFailed, StoreUnavailable
from mainspring.log.background import running
from mainspring.log.session_log import SessionLog
from mainspring.log.writer import Writer
from mainspring.runtime.owner import is_dead, local_owner

LEASE_SECONDS = 4.0
"""How long after its death a worker's sessions wait for another; it renews three times as often."""


@asynccontextmanager
async def held(
    log: SessionLog, session_id: str, *, new_id: Callable[[str], str] = ids.new_id
) -> AsyncGenerator[Writer, None]:
    """Write to a session until the block ends. Two never hold one at once, not even in one
    process: each has its own name.

    Raises:
        LeaseHeld: another worker has it.
    """
    writer = await _taken(log, session_id, local_owner(new_id(ids.WORKER)))
    try:
        async with running(lambda: _keep(writer)):
            yield writer
    except BaseException:
        with anyio.CancelScope(shield=True), suppress(StoreFailed, Fenced):
            # not given back but run out: whoever looks for what is to be done finds it
            await log.store.renew(replace(writer.lease, seconds=0.0))
        raise
    with anyio.CancelScope(shield=True), suppress(StoreFailed):
        await writer.release()  # if it fails, the lease runs out by itself


async def _taken(log: SessionLog, session_id: str, owner: str) -> Writer:
    try:
        return await log.hold(session_id, owner=owner, seconds=LEASE_SECONDS)
    except LeaseHeld as other:
        if not is_dead(other.owner):
            raise
        return await log.hold(
            session_id,
            owner=owner,
            seconds=LEASE_SECONDS,
            instead_of=(other.owner, other.epoch),
        )


async def _keep(writer: Writer) -> None:
    """Renew the lease while nothing is appended: a model may think for minutes.

    A store that is away for a while is no reason to stop: the lease is lost only to another.
    """
    while True:
        await anyio.sleep(writer.lease.seconds / 3)
        with suppress(StoreUnavailable):
            await writer.renew()
