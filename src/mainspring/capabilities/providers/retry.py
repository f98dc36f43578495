"""Decides whether and when to retry a call to the same model; clock and randomness can be replaced
by tests."""

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
"""No model will accept the request: the caller must change it."""

ACCESS_LOST = frozenset[ProviderFailure](("unauthorized", "forbidden", "billing", "not_found"))
"""This model will not answer until a person acts; another one may."""

_SLOW = frozenset[ProviderFailure](("timeout", "stalled"))


class RetryPolicy(Struct, frozen=True, kw_only=True):
    attempts: int = 3
    """How many times one model is tried within one call."""
    first_seconds: float = 1.0
    max_seconds: float = 20.0
    max_retry_after_seconds: float = 30.0
    """If a provider asks for a longer pause, the next model is used, if there is one."""
    max_lone_wait_seconds: float = 120.0
    """The longest pause to wait for when there is no other model."""


def retry_delay(
    failure: ProviderFailed,
    attempt: int,
    *,
    retry_policy: RetryPolicy,
    rng: random.Random,
    is_alone: bool,
) -> float | None:
    """Seconds to wait before the same model is retried; None: do not retry.

    `attempt` is the number of the failed one, from 1. Waits have full jitter, so that sessions that
    failed together do not retry together. Slow failures are not retried while another model is
    available.
    """
    if not failure.retryable or attempt >= retry_policy.attempts:
        return None
    if failure.kind in _SLOW and not is_alone:
        return None
    ceiling = min(retry_policy.max_seconds, retry_policy.first_seconds * 2 ** (attempt - 1))
    jitter = rng.uniform(0, ceiling)
    requested = failure.retry_after_seconds
    if requested is None:
        return jitter
    longest = (
        retry_policy.max_lone_wait_seconds if is_alone else retry_policy.max_retry_after_seconds
    )
    # Jitter is added: every client got the same number.
    return requested + jitter if requested <= longest else None


class Timing(Struct, frozen=True, kw_only=True):
    clock: Callable[[], float] = time.monotonic
    """A monotonic clock, in seconds."""
    sleep: Callable[[float], Awaitable[None]] = anyio.sleep
    random: random.Random = field(default_factory=random.Random)
