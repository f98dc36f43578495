"""One test for a table of small cases; its failure lists every row that is wrong.

A row costs what its check costs, not what pytest takes to collect, schedule and report a test.
"""

import functools
import inspect
from collections.abc import Callable, Iterable, Sequence
from typing import cast

import pytest


def for_each(
    names: str | tuple[str, ...], rows: Iterable[object]
) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """As `pytest.mark.parametrize`, in one test, with one set of fixtures for all rows."""
    keys = (names,) if isinstance(names, str) else names
    table = [(row,) if isinstance(names, str) else cast("Sequence[object]", row) for row in rows]
    assert table, "a table without rows checks nothing"

    def decorate(check: Callable[..., None]) -> Callable[..., None]:
        signature = inspect.signature(check)
        others = [item for key, item in signature.parameters.items() if key not in keys]

        @functools.wraps(check)
        def test(**fixtures: object) -> None:
            failures: list[str] = []
            for row in table:
                try:
                    check(**dict(zip(keys, row, strict=True)), **fixtures)
                except (Exception, pytest.fail.Exception) as problem:  # noqa: BLE001 (reported below)
                    failures.append(f"{row!r}\n{type(problem).__name__}: {problem}")
            if failures:
                heading = f"{len(failures)} of {len(table)} rows are wrong"
                raise AssertionError("\n\n".join([heading, *failures]))

        vars(test)["__signature__"] = signature.replace(parameters=others)
        return test

    return decorate
