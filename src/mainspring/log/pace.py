"""Where to make a short blocking call: here while it has proven quick, in a thread otherwise.

On a good disk a commit takes 0.3 ms, and handing it to a thread and back another 0.15-0.3 ms
(bench/append.py); a loop that streams tokens does not notice either. A disk that is slow even once
sends the following calls to a thread, so the loop is not held up twice in a row.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import TypeVar

import anyio

T = TypeVar("T")

_QUICK_SECONDS = 0.003
_FEWEST, _MOST = 8, 1024


class Pace:
    """Each slow call sends twice as many of those after it to a thread; a quick one forgives."""

    def __init__(self) -> None:
        self._in_thread = 0
        self._penalty = _FEWEST

    async def run(self, work: Callable[[], T]) -> T:
        if self._in_thread:
            self._in_thread -= 1
            return await anyio.to_thread.run_sync(work)
        begun = time.perf_counter()
        try:
            return work()
        finally:
            if time.perf_counter() - begun > _QUICK_SECONDS:
                self._in_thread = self._penalty
                self._penalty = min(self._penalty * 2, _MOST)
            else:
                self._penalty = max(self._penalty - 1, _FEWEST)
