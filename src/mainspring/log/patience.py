"""Waiting out a database that restarts: what is safe to repeat is repeated for a few seconds."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import TypeVar

import anyio

from mainspring.core.errors import StoreUnavailable

T = TypeVar("T")

RETRY_SECONDS = (0.05, 0.2, 0.5, 1.0, 2.0)
"""A database that restarts is back within this; then the caller hears of it."""


async def patiently(work: Callable[[], Awaitable[T]]) -> T:
    """Do `work` again while the store is unavailable; it must be safe to do twice.

    Raises:
        StoreUnavailable: it still was after the last wait.
    """
    for seconds in RETRY_SECONDS:
        try:
            return await work()
        except StoreUnavailable:
            await anyio.sleep(seconds)
    return await work()
