"""Background tasks that end with a block, groups of one error replaced by that error, and retries
while the store is unavailable.
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
    """Raise a group's only error instead of the group, which callers do not expect.

    Errors that another error of the group caused do not count.
    """
    try:
        yield
    except BaseExceptionGroup as group:
        error = _single_error(_without_consequences(group))
        raise error from error.__cause__


def _without_consequences(group: BaseExceptionGroup[BaseException]) -> BaseException:
    errors = list(_leaf_errors(group))
    _, causes = group.split(lambda error: error.__cause__ in errors)
    return causes or group


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
    """A task group whose tasks are cancelled when the block ends."""
    with unwrap_single_error():
        async with anyio.create_task_group() as group:
            try:
                yield group
            finally:
                group.cancel_scope.cancel()


@asynccontextmanager
async def awaited_tasks() -> AsyncGenerator[TaskGroup, None]:
    """A task group whose tasks are waited for when the block ends, and cancelled if it fails."""
    with unwrap_single_error():
        async with anyio.create_task_group() as group:
            yield group


@asynccontextmanager
async def run_in_background(
    *tasks: Callable[[], Coroutine[Any, Any, None]],
) -> AsyncGenerator[None, None]:
    """Run tasks while the block runs. The first error, of a task or the block, cancels the rest."""
    with unwrap_single_error():
        async with anyio.create_task_group() as group:
            for task in tasks:
                group.start_soon(task)
            yield
            group.cancel_scope.cancel()


T = TypeVar("T")

RETRY_SECONDS = (0.05, 0.2, 0.5, 1.0, 2.0)
"""Long enough for a database to restart; after that, the caller gets the error."""


async def retry_unavailable(
    work: Callable[[], Awaitable[T]], *, waits: Sequence[float] = RETRY_SECONDS
) -> T:
    """Retry `work` while the store is unavailable; it must be idempotent.

    Raises:
        StoreUnavailable: the last attempt failed as well.
    """
    for seconds in waits:
        try:
            return await work()
        except StoreUnavailable:
            await anyio.sleep(seconds)
    return await work()
