"""Time and chance as the router sees them: handed in, so that a test neither waits nor varies."""

from __future__ import annotations

import random
import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field

import anyio


@dataclass(frozen=True, slots=True, kw_only=True)
class Timing:
    clock: Callable[[], float] = time.monotonic
    """Seconds that only ever grow."""
    sleep: Callable[[float], Awaitable[None]] = anyio.sleep
    random: random.Random = field(default_factory=random.Random)
