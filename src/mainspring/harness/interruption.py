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
    hear = partial(desk.writer.hear, "user.interrupt", thread_id=desk.thread.id)
    with unwrapped():
        async with anyio.create_task_group() as group:

            async def stop() -> None:
                nonlocal is_interrupted
                await patiently(hear)
                is_interrupted = True
                group.cancel_scope.cancel()

            group.start_soon(stop)
            await work()
            is_interrupted = False
            group.cancel_scope.cancel()
    return is_interrupted
