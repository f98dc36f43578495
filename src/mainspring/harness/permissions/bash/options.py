"""Command lines held against a table of options: what is not in the table is not understood."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cache

from mainspring.harness.permissions.bash.command import Word


@dataclass(frozen=True, slots=True)
class Table:
    """`-abc` are flags, `-n=` takes a value, `--long`, `--long=`, `--long?` may take one, `-#` is
    a number; `+` means that options end at the first operand.
    """

    flags: frozenset[str]
    valued: frozenset[str]
    optional: frozenset[str]
    numeric: bool
    ordered: bool


@dataclass(slots=True)
class Line:
    """A command's arguments, understood."""

    options: list[tuple[str, Word | None]] = field(default_factory=list[tuple[str, Word | None]])
    operands: list[Word] = field(default_factory=list[Word])

    def has(self, *names: str) -> bool:
        return any(name in names for name, _ in self.options)

    def values(self, *names: str) -> list[Word]:
        return [value for name, value in self.options if name in names and value is not None]


@cache
def table(spec: str) -> Table:
    flags: set[str] = set()
    valued: set[str] = set()
    optional: set[str] = set()
    for token in spec.split():
        name = token.rstrip("=?")
        if token.endswith("="):
            valued.add(name)
        elif token.endswith("?"):
            optional.add(name)
        elif token.startswith("--"):
            flags.add(name)
        elif token not in {"-#", "+"}:
            flags.update(f"-{letter}" for letter in token[1:])
    return Table(
        frozenset(flags),
        frozenset(valued),
        frozenset(optional),
        numeric="-#" in spec.split(),
        ordered="+" in spec.split(),
    )


def understood(arguments: Sequence[Word], spec: str) -> Line | None:
    """None if there is an option outside the table, or a word that may turn out to be one."""
    known, line = table(spec), Line()
    waiting = list(reversed(arguments))
    while waiting:
        word = waiting.pop()
        if word.value == "--":
            line.operands.extend(reversed(waiting))
            return line
        if not word.optionlike or word.value == "-":
            line.operands.append(word)
            if known.ordered:
                line.operands.extend(reversed(waiting))
                return line
        elif word.value is None or not _option(word.value, waiting, known, line):
            return None
    return line


def _option(value: str, waiting: list[Word], known: Table, line: Line) -> bool:
    if known.numeric and re.fullmatch(r"-[0-9]+", value):
        line.options.append(("-#", literal(value[1:])))
        return True
    if value.startswith("--"):
        return _long(value, waiting, known, line)
    return _short(value, waiting, known, line)


def _long(value: str, waiting: list[Word], known: Table, line: Line) -> bool:
    name, equals, attached = value.partition("=")
    if equals and name in known.valued | known.optional:
        line.options.append((name, literal(attached)))
        return True
    if not equals and name in known.flags | known.optional:
        line.options.append((name, None))
        return True
    return not equals and name in known.valued and _takes_next(name, waiting, line)


def _short(value: str, waiting: list[Word], known: Table, line: Line) -> bool:
    for at, letter in enumerate(value[1:], start=1):
        name, attached = f"-{letter}", value[at + 1 :]
        if name in known.flags:
            line.options.append((name, None))
        elif name in known.optional or (name in known.valued and attached):
            line.options.append((name, literal(attached)))
            return True
        else:
            return name in known.valued and _takes_next(name, waiting, line)
    return True


def _takes_next(name: str, waiting: list[Word], line: Line) -> bool:
    if not waiting or waiting[-1].many:
        return False
    line.options.append((name, waiting.pop()))
    return True


def literal(value: str) -> Word:
    """A word that says what it is."""
    return Word(
        source=value,
        value=value,
        pathlike=value,
        optionlike=value.startswith("-"),
        many=False,
    )
