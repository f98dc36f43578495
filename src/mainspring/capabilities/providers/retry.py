"""When asking the same model again makes sense, how long to wait before it, and the clock and
randomness that a test can replace.
"""

from __future__ import annotations

import random
import time
from collections.abc import Awaitable, Callable

import anyio
from msgspec import Struct, field

from mainspring.core.errors import ProviderFailed, ProviderFailure

REQUEST_AT_FAULT = frozenset[ProviderFailure](
    ("prompt_too_long", "media_too_large", "invalid_request", "exhausted")
)
"""No model will take it: the caller has to change the request."""

ACCESS_LOST = frozenset[ProviderFailure](("unauthorized", "forbidden", "billing", "not_found"))
"""This model will not answer until a person does something; another one may."""

_SLOW = frozenset[ProviderFailure](("timeout", "stalled"))


class RetryPolicy(Struct, frozen=True, kw_only=True):
    attempts: int = 3
    """How often one model is asked within one call."""
    first_seconds: float = 1.0
    max_seconds: float = 20.0
    max_retry_after_seconds: float = 30.0
    """A provider that asks for a longer pause is left for another one, if there is another."""
    max_lone_wait_seconds: float = 120.0
    """The longest pause that is waited out when there is no other."""


def retry_delay(
    failure: ProviderFailed,
    attempt: int,
    *,
    retry_policy: RetryPolicy,
    rng: random.Random,
    is_alone: bool,
) -> float | None:
    """Seconds to wait before asking the same model again; None: do not.

    `attempt` is the number of the one that failed, from 1. Waits have full jitter, so that
    sessions that failed together do not come back together. What took long to fail is not
    repeated while another model is at hand.
    """
    if not failure.retryable or attempt >= retry_policy.attempts:
        return None
    if failure.kind in _SLOW and not is_alone:
        return None
    ceiling = min(retry_policy.max_seconds, retry_policy.first_seconds * 2 ** (attempt - 1))
    jittered = rng.uniform(0, ceiling)
    asked = failure.retry_after_seconds
    if asked is None:
        return jittered
    longest = (
        retry_policy.max_lone_wait_seconds if is_alone else retry_policy.max_retry_after_seconds
    )
    # The jitter comes on top: everybody was told the same number.
    return asked + jittered if asked <= longest else None


class Timing(Struct, frozen=True, kw_only=True):
    clock: Callable[[], float] = time.monotonic
    """Seconds that only ever grow."""
    sleep: Callable[[float], Awaitable[None]] = anyio.sleep
    random: random.Random = field(default_factory=random.Random)
