"""Moments as whole microseconds: exact both ways."""

from datetime import UTC, datetime, timedelta

from hypothesis import example, given
from hypothesis import strategies as st

from mainspring.core.clock import from_micros, to_micros


@given(st.integers(-(2**55), 2**57))
@example(2**51 - 1)
@example(2**51)
@example(0)
def test_a_moment_is_exact_to_the_microsecond(micros: int):
    moment = from_micros(micros)
    assert to_micros(moment) == micros
    assert moment == datetime(1970, 1, 1, tzinfo=UTC) + timedelta(microseconds=micros)
    assert moment.tzinfo is UTC
