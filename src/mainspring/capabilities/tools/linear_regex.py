"""Regular expressions of models, in linear time whatever they are (RE2)."""

from __future__ import annotations

from typing import Protocol, cast

import re2  # pyright: ignore[reportMissingTypeStubs]

from mainspring.core.errors import InvalidInput

_MAX_CHARS = 5000


class LinearPattern(Protocol):
    def search(self, text: bytes, /) -> object | None: ...


class _Re2(Protocol):
    error: type[Exception]

    def compile(self, pattern: bytes, options: object, /) -> LinearPattern: ...


_RE2 = cast("_Re2", re2)


def compile_regex(expression: str, *, ignore_case: bool = False) -> LinearPattern:
    """Raises InvalidInput: it is not an expression, or too long for one."""
    if not expression or len(expression) > _MAX_CHARS:
        raise InvalidInput(f"an expression has 1 to {_MAX_CHARS:,} characters")
    options = re2.Options()
    options.log_errors = False
    options.case_sensitive = not ignore_case
    try:
        return _RE2.compile(expression.encode("utf-8", "replace"), options)
    except _RE2.error as error:
        [why] = cast("tuple[bytes]", error.args)
        raise InvalidInput(
            f"not a regular expression: {why.decode('utf-8', 'replace')}. The syntax is RE2's: no"
            " look-around, no back-references; a backslash makes a character mean itself."
        ) from error
