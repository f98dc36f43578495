"""Short calls are made in place; a slow one sends those after it to a thread, for a while."""

import threading
from collections.abc import Callable

import anyio
import pytest

from mainspring.log.sqlite.commits import AdaptiveThreads

HERE = threading.get_ident


def slow() -> int:
    threading.Event().wait(0.01)  # a disk that takes its time
    return HERE()


async def places(pace: AdaptiveThreads, count: int, work: Callable[[], int] = HERE) -> str:
    """`h` for each call made here, `t` for each made in a thread."""
    return "".join(["h" if await pace.run(work) == HERE() else "t" for _ in range(count)])


async def test_quick_calls_run_in_place():
    with anyio.fail_after(60):
        assert await places(AdaptiveThreads(), 50) == "h" * 50


async def test_a_slow_call_sends_the_next_eight_to_a_thread():
    pace = AdaptiveThreads()
    with anyio.fail_after(60):
        assert await places(pace, 1, slow) == "h"
        assert await places(pace, 10) == "t" * 8 + "hh"


async def test_each_further_slow_call_doubles_the_calls_sent_to_a_thread():
    pace = AdaptiveThreads()
    with anyio.fail_after(60):
        for threads in (8, 16, 32):
            assert await places(pace, 1, slow) == "h"
            assert await places(pace, threads) == "t" * threads


async def test_quick_calls_reset_the_doubling():
    pace = AdaptiveThreads()
    with anyio.fail_after(60):
        assert await places(pace, 1, slow) == "h"
        assert await places(pace, 8 + 20) == "t" * 8 + "h" * 20
        assert await places(pace, 1, slow) == "h"
        assert await places(pace, 9) == "t" * 8 + "h"


async def test_an_exception_is_raised_from_both_places():
    def fail() -> int:
        raise LookupError("not here")

    pace = AdaptiveThreads()
    with anyio.fail_after(60):
        with pytest.raises(LookupError):
            await pace.run(fail)
        await pace.run(slow)
        with pytest.raises(LookupError):
            await pace.run(fail)


async def test_a_call_in_a_thread_finishes_even_if_its_caller_is_cancelled():
    pace = AdaptiveThreads()
    finished: list[bool] = []
    begun, may_finish = anyio.Event(), threading.Event()

    def work() -> None:
        anyio.from_thread.run_sync(begun.set)
        assert may_finish.wait(60)
        finished.append(True)

    with anyio.fail_after(60):
        await pace.run(slow)
        async with anyio.create_task_group() as group:
            group.start_soon(pace.run, work)
            await begun.wait()
            group.cancel_scope.cancel()
            may_finish.set()
    assert finished == [True]
