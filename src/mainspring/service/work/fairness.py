"""Whose turn it is: tenants take turns, and each one's jobs come by their time.

While a tenant waits with something due, no other is served twice.
"""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime
from heapq import heappop, heappush
from itertools import count


def nobody(_tenant: str) -> bool:
    return False


class Turns:
    """Names of jobs, each of a tenant and due at some time."""

    def __init__(self) -> None:
        self._waiting: dict[str, tuple[datetime, int]] = {}
        self._queues: dict[str, list[tuple[datetime, int, str]]] = {}
        """By tenant, in the order of turns; what is no longer in `_waiting` so does not count."""
        self._arrivals = count()

    def __len__(self) -> int:
        return len(self._waiting)

    def put(self, name: str, tenant: str, at: datetime) -> None:
        """Let it wait; one that waits already has its time changed."""
        place = (at, next(self._arrivals))
        self._waiting[name] = place
        heappush(self._queues.setdefault(tenant, []), (*place, name))

    def discard(self, name: str) -> None:
        self._waiting.pop(name, None)

    def take(self, now: datetime, *, is_full: Callable[[str], bool] = nobody) -> str | None:
        """The job whose turn it is, unless its tenant has as many as it may."""
        for tenant in tuple(self._queues):
            head = self._head(tenant)
            if head is None or head[0] > now or is_full(tenant):
                continue
            queue = self._queues.pop(tenant)  # and to the end of the row
            _, _, name = heappop(queue)
            del self._waiting[name]
            if queue:
                self._queues[tenant] = queue
            return name
        return None

    def next_at(self, *, is_full: Callable[[str], bool] = nobody) -> datetime | None:
        """When there is something to take, at the earliest."""
        heads = [self._head(tenant) for tenant in tuple(self._queues) if not is_full(tenant)]
        return min((head[0] for head in heads if head is not None), default=None)

    def _head(self, tenant: str) -> tuple[datetime, int, str] | None:
        queue = self._queues[tenant]
        while queue:
            at, arrival, name = queue[0]
            if self._waiting.get(name) == (at, arrival):
                return queue[0]
            heappop(queue)
        del self._queues[tenant]
        return None
