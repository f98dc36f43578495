"""Work that the user may stop: it runs until it is done or an interrupt comes."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from functools import partial

import anyio

from mainspring.harness.desk import Desk
from mainspring.log.background import unwrapped
from mainspring.log.patience import patiently


async def until_interrupted(desk: Desk, work: Callable[[], Awaitable[None]]) -> bool:
    """Do `work`; True if the user stopped it before it was done."""
    is_interrupted = False
    own = desk.thread.id
    hear = partial(desk.writer.hear, "user.interrupt", is_for=lambda thread_id: thread_id == own)
    with unwrapped():
        async with anyio.create_task_group() as group:

            async def stop(until: Callable[[], Awaitable[object]]) -> None:
                nonlocal is_interrupted
                await until()
                is_interrupted = True
                group.cancel_scope.cancel()

            if not desk.is_heard_for:
                group.start_soon(stop, partial(patiently, hear))
            group.start_soon(stop, desk.halted.wait)
            await work()
            is_interrupted = False
            group.cancel_scope.cancel()
    return is_interrupted
