"""Parses command-line arguments by a table of options; it fails on an option that is not in the
table.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cache

from mainspring.harness.permissions.bash.command import Word

_MARKS = "=<~?*"


@dataclass(frozen=True, slots=True)
class OptionTable:
    """Parsed from a text of tokens. `-abc` are flags. A mark after an option says what it takes:
    `-n=` a plain value, `-n==` two of them, `-f<` a file that is read, `-e~` the program text or
    pattern that is otherwise the first operand, `--long?` an optional attached value. `-r*` is a
    flag that reads folders recursively. `-#` is a number; `+` means that options end at the first
    operand; `any` means that no option of the program does harm, so that a word whose value only
    bash knows may be one. Other words are for the caller and describe the operands.
    """

    flags: frozenset[str]
    valued: frozenset[str]
    pairs: frozenset[str]
    optional: frozenset[str]
    files: frozenset[str]
    scripts: frozenset[str]
    recursive: frozenset[str]
    words: frozenset[str]
    """Tokens that are not options."""


@dataclass(slots=True)
class ParsedArguments:
    """The arguments of a command, parsed by a table."""

    options: list[tuple[str, Word | None]] = field(default_factory=list[tuple[str, Word | None]])
    operands: list[Word] = field(default_factory=list[Word])
    operands_before_dashes: int | None = None
    """The number of operands before `--`, if there is one."""

    def has(self, *names: str) -> bool:
        return any(name in names for name, _ in self.options)

    def values(self, *names: str) -> list[Word]:
        return [value for name, value in self.options if name in names and value is not None]


@cache
def option_table(spec: str) -> OptionTable:
    marked: dict[str, set[str]] = {mark: set() for mark in ("", "=", "==", "<", "~", "?", "*")}
    words: set[str] = set()
    for token in spec.split():
        name = token.rstrip(_MARKS)
        mark = token[len(name) :]
        if not token.startswith("-") or token == "-#":
            words.add(token)
        elif mark or token.startswith("--"):
            marked[mark].add(name)
        else:
            marked[""].update(f"-{letter}" for letter in token[1:])
    return OptionTable(
        flags=frozenset(marked[""] | marked["*"]),
        valued=frozenset(marked["="] | marked["<"] | marked["~"]),
        pairs=frozenset(marked["=="]),
        optional=frozenset(marked["?"]),
        files=frozenset(marked["<"]),
        scripts=frozenset(marked["~"]),
        recursive=frozenset(marked["*"]),
        words=frozenset(words),
    )


def parse_arguments(arguments: Sequence[Word], spec: str) -> ParsedArguments | None:
    """`None` if there is an option outside the table, or a word that may become one.

    An abbreviated long option counts as outside the table, since its meaning depends on all options
    of the installed version.
    """
    options, line = option_table(spec), ParsedArguments()
    pending = list(reversed(arguments))
    while pending:
        word = pending.pop()
        if word.value == "--":
            line.operands_before_dashes = len(line.operands)
            line.operands.extend(reversed(pending))
            return line
        is_option = word.optionlike and word.value != "-"
        if not is_option or (word.value is None and "any" in options.words):
            line.operands.append(word)
            if "+" in options.words:
                line.operands.extend(reversed(pending))
                return line
        elif word.value is None or not _option(word.value, pending, options, line):
            return None
    return line


def _option(value: str, waiting: list[Word], options: OptionTable, line: ParsedArguments) -> bool:
    if "-#" in options.words and re.fullmatch(r"-[0-9]+", value):
        line.options.append(("-#", literal_word(value[1:])))
        return True
    if value.startswith("--"):
        return _long(value, waiting, options, line)
    return _short(value, waiting, options, line)


def _long(value: str, waiting: list[Word], options: OptionTable, line: ParsedArguments) -> bool:
    name, equals, attached = value.partition("=")
    if equals and name in options.valued | options.optional:
        line.options.append((name, literal_word(attached)))
        return True
    if not equals and name in options.flags | options.optional:
        line.options.append((name, None))
        return True
    if not equals and name in options.pairs:
        return _takes_next(name, waiting, line) and _takes_next(name, waiting, line)
    return not equals and name in options.valued and _takes_next(name, waiting, line)


def _short(value: str, waiting: list[Word], options: OptionTable, line: ParsedArguments) -> bool:
    for at, letter in enumerate(value[1:], start=1):
        name, attached = f"-{letter}", value[at + 1 :]
        if name in options.flags:
            if attached and "unbundled" in options.words:
                return False
            line.options.append((name, None))
        elif name in options.optional or (name in options.valued and attached):
            line.options.append((name, literal_word(attached)))
            return True
        else:
            return name in options.valued and _takes_next(name, waiting, line)
    return True


def _takes_next(name: str, waiting: list[Word], line: ParsedArguments) -> bool:
    if not waiting or waiting[-1].many:
        return False
    line.options.append((name, waiting.pop()))
    return True


def literal_word(value: str) -> Word:
    """A word with a known value."""
    is_option = value.startswith("-")
    return Word(source=value, value=value, pathlike=value, optionlike=is_option, many=False)
