"""A cache of recent lookups, so that not every request reads the store."""

from __future__ import annotations

import time
from collections.abc import Awaitable, Callable, Hashable
from typing import Generic, TypeVar

from mainspring.core.errors import ServiceError
from mainspring.log.lru_cache import LruCache

K = TypeVar("K", bound=Hashable)
V = TypeVar("V")


class TtlCache(Generic[K, V]):
    """Caches values for some seconds and keeps the most recently used ones."""

    def __init__(
        self,
        fetch: Callable[[K], Awaitable[V]],
        *,
        seconds: float,
        most: int = 10_000,
        monotonic: Callable[[], float] = time.monotonic,
    ) -> None:
        self._fetch = fetch
        self._seconds = seconds
        self._monotonic = monotonic
        self._entries: LruCache[K, tuple[V, float]] = LruCache(most)

    def __contains__(self, key: K) -> bool:
        """Whether a value is still stored, even if it has expired."""
        return key in self._entries

    async def get(self, key: K) -> V:
        """Raises what the lookup raises; a failed lookup is not cached."""
        now = self._monotonic()
        cached = self._entries.get(key)
        if cached is not None and now < cached[1]:
            return cached[0]
        try:
            value = await self._fetch(key)
        except ServiceError:
            self._entries.pop(key)
            raise
        self._entries.put(key, (value, now + self._seconds))
        return value

    def forget(self, key: K) -> None:
        self._entries.pop(key)
