"""Token buckets: never more than a burst and what grows back."""

from hypothesis import given
from hypothesis import strategies as st
from tests.service.fixed_clock import Time

from mainspring.service.access.rate_limits import Rate, TokenBuckets


def test_a_burst_is_admitted_and_then_one_request_per_refill():
    time = Time()
    buckets = TokenBuckets(monotonic=time.monotonic)
    rate = Rate(60)  # ten at once, one a second
    standings = [buckets.take(("a", rate))[0] for _ in range(11)]
    assert [standing.wait_seconds > 0 for standing in standings] == [False] * 10 + [True]
    assert [standing.remaining for standing in standings] == [*range(9, -1, -1), 0]
    assert 0.99 < standings[-1].wait_seconds <= 1
    time.pass_(1)
    assert not buckets.take(("a", rate))[0].wait_seconds
    assert buckets.take(("a", rate))[0].wait_seconds
    assert not buckets.take(("b", rate))[0].wait_seconds


def test_if_one_of_two_buckets_is_empty_nothing_is_taken_from_the_other():
    buckets = TokenBuckets(monotonic=lambda: 5.0)
    for _ in range(5):
        buckets.take(("tenant", Rate(1)))
    asked = [buckets.take(("key", Rate(60)), ("tenant", Rate(1))) for _ in range(20)]
    assert all(not key.wait_seconds and tenant.wait_seconds for key, tenant in asked)
    assert asked[-1][0].remaining == 10


def test_the_number_of_buckets_is_bounded():
    buckets = TokenBuckets(most=3, monotonic=lambda: 5.0)
    for number in range(100):
        buckets.take((f"address {number}", Rate(1)))
    assert len(buckets) == 3


@given(per_minute=st.integers(1, 600), gaps=st.lists(st.floats(0, 30), min_size=1, max_size=200))
def test_never_more_than_the_burst_and_the_refill_are_admitted(per_minute: int, gaps: list[float]):
    time = Time()
    buckets = TokenBuckets(monotonic=time.monotonic)
    rate = Rate(per_minute)
    let_in = 0
    for gap in gaps:
        time.pass_(gap)
        wait = buckets.wait_seconds("a", rate)
        [standing] = buckets.take(("a", rate))
        assert (standing.wait_seconds > 0) == (wait > 0)
        let_in += not standing.wait_seconds
        assert let_in <= rate.burst + time.passed / rate.interval + 1e-3
        assert 0 <= standing.remaining <= rate.burst


@given(per_minute=st.integers(1, 600), refused=st.integers(0, 50))
def test_waiting_the_reported_time_admits_the_next_request(per_minute: int, refused: int):
    time = Time()
    buckets = TokenBuckets(monotonic=time.monotonic)
    rate = Rate(per_minute)
    while not (standing := buckets.take(("a", rate))[0]).wait_seconds:
        pass
    for _ in range(refused):
        buckets.take(("a", rate))
    time.pass_(standing.wait_seconds)
    assert not buckets.take(("a", rate))[0].wait_seconds
