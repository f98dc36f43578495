"""Tasks that run for as long as a block does, errors that leave a task group as themselves, and
retries while the store is unavailable.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, Awaitable, Callable, Coroutine, Generator, Sequence
from contextlib import asynccontextmanager, contextmanager
from typing import Any, TypeVar, cast

import anyio
from anyio.abc import TaskGroup

from mainspring.core.errors import StoreUnavailable


@contextmanager
def unwrap_single_error() -> Generator[None]:
    """Raise a group's only error as itself: callers know that one, not the group around it.

    An error that another of the group has caused tells nothing more, and is left out.
    """
    try:
        yield
    except BaseExceptionGroup as group:
        error = _single_error(_without_consequences(group))
        raise error from error.__cause__


def _without_consequences(group: BaseExceptionGroup[BaseException]) -> BaseException:
    errors = list(_leaf_errors(group))
    _, rest = group.split(lambda error: error.__cause__ in errors)
    return rest or group


def _leaf_errors(error: BaseException) -> Generator[BaseException]:
    if isinstance(error, BaseExceptionGroup):
        for exception in cast("BaseExceptionGroup[BaseException]", error).exceptions:
            yield from _leaf_errors(exception)
    else:
        yield error


def _single_error(error: BaseException) -> BaseException:
    if not isinstance(error, BaseExceptionGroup):
        return error
    group = cast("BaseExceptionGroup[BaseException]", error)
    return _single_error(group.exceptions[0]) if len(group.exceptions) == 1 else group


@asynccontextmanager
async def background_tasks() -> AsyncGenerator[TaskGroup, None]:
    """A group for tasks that run beside a block and are cancelled when it ends."""
    with unwrap_single_error():
        async with anyio.create_task_group() as group:
            try:
                yield group
            finally:
                group.cancel_scope.cancel()


@asynccontextmanager
async def run_in_background(
    *tasks: Callable[[], Coroutine[Any, Any, None]],
) -> AsyncGenerator[None, None]:
    """Run tasks beside a block. The first to fail, task or block, ends all, with its own error."""
    with unwrap_single_error():
        async with anyio.create_task_group() as group:
            for task in tasks:
                group.start_soon(task)
            yield
            group.cancel_scope.cancel()


T = TypeVar("T")

RETRY_SECONDS = (0.05, 0.2, 0.5, 1.0, 2.0)
"""A database that restarts is back within this; then the caller hears of it."""


async def retry_unavailable(
    work: Callable[[], Awaitable[T]], *, waits: Sequence[float] = RETRY_SECONDS
) -> T:
    """Do `work` again while the store is unavailable; it must be safe to do twice.

    Raises:
        StoreUnavailable: it still was after the last wait.
    """
    for seconds in waits:
        try:
            return await work()
        except StoreUnavailable:
            await anyio.sleep(seconds)
    return await work()
