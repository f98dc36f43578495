"""Tasks that run for as long as a block does, and leaves the block's own errors as they are."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Callable, Coroutine
from contextlib import asynccontextmanager
from typing import Any

import anyio


@asynccontextmanager
async def running(*tasks: Callable[[], Coroutine[Any, Any, None]]) -> AsyncGenerator[None, None]:
    failure: Exception | None = None
    async with anyio.create_task_group() as group:
        for task in tasks:
            group.start_soon(task)
        try:
            yield
        except Exception as error:  # noqa: BLE001 (raised again below: a group would wrap it)
            failure = error
        group.cancel_scope.cancel()
    if failure is not None:
        raise failure
