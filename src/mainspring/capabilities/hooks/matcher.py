"""Which occasions a hook wants to hear of, by name. In linear time, whatever the pattern."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from typing import Protocol, TypeAlias, cast

import re2  # pyright: ignore[reportMissingTypeStubs] (it has none)

from mainspring.core.errors import InvalidInput

Matcher: TypeAlias = Callable[[Collection[str]], bool]
"""Whether one of these names is meant."""

_LIST = frozenset("ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789_- ,|")


class _Pattern(Protocol):
    def search(self, text: str) -> object | None: ...


class _Re2(Protocol):
    """The part of the untyped package that we rely on."""

    error: type[Exception]

    def compile(self, pattern: str, options: object) -> object: ...


_RE2 = cast("_Re2", re2)


def compile_matcher(matcher: str) -> Matcher:
    """All for an empty one or `*`; a list of exact names; or else an unanchored expression.

    Raises:
        InvalidInput: an expression that RE2 does not know, or a list that names nothing.
    """
    if matcher in ("", "*"):
        return _all
    if _LIST.issuperset(matcher):
        return _list_matcher(matcher)
    pattern = _compile(matcher)
    return lambda names: any(pattern.search(name) is not None for name in names)


def names_with_aliases(name: str, aliases: Mapping[str, str]) -> tuple[str, ...]:
    """A tool's own name, then what others call it; `aliases` leads from theirs to ours."""
    return (name, *(alias for alias, own in aliases.items() if own == name))


def _all(_: Collection[str]) -> bool:
    return True


def _list_matcher(matcher: str) -> Matcher:
    wanted = {name.strip() for name in matcher.replace(",", "|").split("|")} - {""}
    if not wanted:
        raise InvalidInput(f"matcher {matcher!r} names nothing, so its hooks would never run")
    return lambda names: not wanted.isdisjoint(names)


def _compile(matcher: str) -> _Pattern:
    options = re2.Options()
    options.log_errors = False
    try:
        return cast("_Pattern", _RE2.compile(matcher, options))
    except (_RE2.error, UnicodeEncodeError) as error:
        what = f"matcher {matcher!r} is not an expression that RE2 knows: {error}"
        raise InvalidInput(what) from error
