"""Tasks that run for as long as a block does, and errors that leave a task group as themselves."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Callable, Coroutine, Generator
from contextlib import asynccontextmanager, contextmanager
from typing import Any, cast

import anyio


@contextmanager
def unwrapped() -> Generator[None]:
    """Raise a group's only error as itself: callers know that one, not the group around it.

    An error that another of the group has caused tells nothing more, and is left out.
    """
    try:
        yield
    except BaseExceptionGroup as group:
        error = _only(_without_echoes(group))
        raise error from error.__cause__


def _without_echoes(group: BaseExceptionGroup[BaseException]) -> BaseException:
    errors = list(_leaves(group))
    _, rest = group.split(lambda error: error.__cause__ in errors)
    return rest or group


def _leaves(error: BaseException) -> Generator[BaseException]:
    if isinstance(error, BaseExceptionGroup):
        for each in cast("BaseExceptionGroup[BaseException]", error).exceptions:
            yield from _leaves(each)
    else:
        yield error


def _only(error: BaseException) -> BaseException:
    if not isinstance(error, BaseExceptionGroup):
        return error
    group = cast("BaseExceptionGroup[BaseException]", error)
    return _only(group.exceptions[0]) if len(group.exceptions) == 1 else group


@asynccontextmanager
async def running(*tasks: Callable[[], Coroutine[Any, Any, None]]) -> AsyncGenerator[None, None]:
    """Run tasks beside a block. The first to fail, task or block, ends all, with its own error."""
    with unwrapped():
        async with anyio.create_task_group() as group:
            for task in tasks:
                group.start_soon(task)
            yield
            group.cancel_scope.cancel()
