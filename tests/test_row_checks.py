"""A table of cases in one test: every row is checked, and all that are wrong are listed."""

import pytest
from tests.row_checks import for_each


@for_each("number", [2, 3, 4, 5])
def even(number: int) -> None:
    assert number % 2 == 0, "odd"


@for_each(("text", "size"), [("a", 1), ("bc", 2)])
def sized(text: str, size: int, unit: int) -> None:
    assert len(text) == size * unit


def test_a_failure_lists_every_wrong_row_and_no_other():
    with pytest.raises(AssertionError) as failure:
        even()
    message = str(failure.value)
    assert message.startswith("2 of 4 rows are wrong")
    assert [f"({number},)" in message for number in (2, 3, 4, 5)] == [False, True, False, True]
    assert message.count("AssertionError: odd") == 2


def test_rows_of_several_values_share_the_fixtures_of_the_test():
    sized(unit=1)
    with pytest.raises(AssertionError, match="2 of 2 rows are wrong"):
        sized(unit=2)


def test_a_table_without_rows_is_refused():
    with pytest.raises(AssertionError, match="without rows"):
        for_each("number", [])
