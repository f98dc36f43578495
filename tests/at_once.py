"""One call many times at once, as clients and processes that race each other make it."""

from collections.abc import Awaitable, Callable, Iterable
from typing import TypeVar

import anyio

Item = TypeVar("Item")
Result = TypeVar("Result")


async def at_once(
    call: Callable[[Item], Awaitable[Result]],
    items: Iterable[Item],
    *,
    refusal: type[Exception] | tuple[type[Exception], ...] = (),
) -> list[Result]:
    """The results, in the order of the items, without those of calls that raised `refusal`."""
    results: dict[int, Result] = {}

    async def run(index: int, item: Item) -> None:
        try:
            results[index] = await call(item)
        except refusal:
            return

    with anyio.fail_after(60):
        async with anyio.create_task_group() as group:
            for index, item in enumerate(items):
                group.start_soon(run, index, item)
    return [results[index] for index in sorted(results)]
