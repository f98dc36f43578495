"""The client bears servers that answer at random: an answer or an error, never a hang."""

import gc
import time
import tracemalloc

import pytest
from tests.mcp.fuzzing import Tally, play


async def test_random_answers_of_a_server_give_a_result_or_an_error() -> None:
    tally = Tally()
    await play(range(60), tally)
    assert tally.cases == 60
    assert tally.results["answered"]
    assert tally.results["refused"]
    assert tally.results["asked"]


@pytest.mark.slow
@pytest.mark.timeout(300)
async def test_random_answers_do_not_make_memory_grow() -> None:
    tally, until = Tally(), time.monotonic() + 60
    await play(range(100_000, 100_200), tally)
    tracemalloc.start()
    try:
        gc.collect()
        before = tracemalloc.get_traced_memory()[0]
        await play(range(200_000, 300_000), tally, until)
        gc.collect()
        growth = tracemalloc.get_traced_memory()[0] - before
    finally:
        tracemalloc.stop()
    assert tally.cases > 300
    assert growth < 4 << 20, f"{growth:,} bytes after {tally.cases} cases"
