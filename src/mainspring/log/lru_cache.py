"""A least-recently-used cache with a fixed capacity."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Hashable
from typing import Generic, TypeVar

K = TypeVar("K", bound=Hashable)
V = TypeVar("V")


class LruCache(Generic[K, V]):
    def __init__(self, capacity: int, *, size_of: Callable[[V], int] = lambda _: 1) -> None:
        """`size_of`: the size of a value, which must not change; the sizes of all values together
        never exceed the capacity. By default, the capacity is a number of values."""
        self._capacity = capacity
        self._size_of = size_of
        self._size = 0
        self._entries: OrderedDict[K, V] = OrderedDict()

    def __contains__(self, key: K) -> bool:
        return key in self._entries

    def __len__(self) -> int:
        return len(self._entries)

    def get(self, key: K) -> V | None:
        if key in self._entries:
            self._entries.move_to_end(key)
        return self._entries.get(key)

    def put(self, key: K, value: V) -> None:
        """Evict the least recently used entries above the capacity. A value that is larger than the
        capacity is not stored."""
        self.pop(key)
        size = self._size_of(value)
        if size > self._capacity:
            return
        self._entries[key] = value
        self._size += size
        while self._size > self._capacity:
            _, evicted = self._entries.popitem(last=False)
            self._size -= self._size_of(evicted)

    def pop(self, key: K) -> V | None:
        if key not in self._entries:
            return None
        value = self._entries.pop(key)
        self._size -= self._size_of(value)
        return value
