"""A breaker lets one call probe, and listens to nobody who went out before it opened."""

from dataclasses import dataclass

import pytest

from mainspring.capabilities.providers.circuit_breaker import (
    BreakerPermit,
    BreakerSettings,
    CircuitBreaker,
)
from mainspring.core.errors import ProviderFailed

DOWN = ProviderFailed("fake", "server", "it is down")


@dataclass
class Clock:
    now: float = 0.0


def admit_call(breaker: CircuitBreaker) -> BreakerPermit:
    admission = breaker.admit()
    assert admission is not None
    return admission


def half_open_with_a_late_call() -> tuple[CircuitBreaker, BreakerPermit]:
    clock = Clock()
    breaker = CircuitBreaker(BreakerSettings(failures=1, cooldown_seconds=30), lambda: clock.now)
    late, first = admit_call(breaker), admit_call(breaker)
    first.fail(DOWN)
    clock.now = 30
    assert breaker.state == "half_open"
    return breaker, late


@pytest.mark.parametrize("ending", ["succeed", "fail", "release"])
def test_a_late_call_does_not_admit_a_second_probe(ending: str):
    breaker, late = half_open_with_a_late_call()
    probe = admit_call(breaker)
    if ending == "fail":
        late.fail(DOWN)
    else:
        getattr(late, ending)()
    assert breaker.admit() is None
    assert breaker.state == "half_open"
    probe.succeed()
    assert breaker.state == "closed"


def test_a_failed_probe_opens_the_breaker_for_longer():
    breaker, _ = half_open_with_a_late_call()
    probe = admit_call(breaker)
    probe.fail(DOWN)
    probe.release()
    probe.succeed()
    assert (breaker.state, breaker.seconds_left) == ("open", 60)


def test_a_released_probe_admits_another():
    breaker, _ = half_open_with_a_late_call()
    first = admit_call(breaker)
    first.release()
    second = admit_call(breaker)
    first.release()
    assert breaker.admit() is None
    second.succeed()
    assert breaker.is_admitting


def test_calls_of_a_closed_breaker_do_not_affect_each_other():
    breaker = CircuitBreaker(BreakerSettings(failures=2), lambda: 0.0)
    calls = [admit_call(breaker) for _ in range(3)]
    calls[0].fail(DOWN)
    calls[1].succeed()
    calls[2].fail(DOWN)
    assert breaker.state == "closed"
