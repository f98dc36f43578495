"""The values of this package: words, commands and redirections of a shell text, or why it is
unclear.
"""

from __future__ import annotations

import shlex
from dataclasses import dataclass
from typing import Literal


@dataclass(frozen=True, slots=True)
class Word:
    source: str
    """As written; empty for what another program will add, as xargs does."""
    value: str | None
    """What the command receives, quotes removed; None if only bash can tell (expansion, glob)."""
    pathlike: str
    """The value; or for a dynamic word the source without its quotes, for rules and people."""
    optionlike: bool
    """It is, or may turn out to be, an option: begins with `-`, or with something unknown."""
    many: bool
    """May turn out as any number of words: an unquoted expansion, a glob, `"$@"`."""

    @property
    def is_process(self) -> bool:
        """Stands for a pipe to or from a command, which is listed by itself."""
        return self.source.startswith(("<(", ">(")) and self.value is None

    @property
    def text(self) -> str:
        """Spelled one way only, whatever the quoting: for rules to be held against."""
        if self.value is None:
            return self.source
        return self.value if self.value and _is_bare(self.value) else shlex.quote(self.value)


HOME = Word(source="~", value=None, pathlike="~", optionlike=False, many=False)


@dataclass(frozen=True, slots=True)
class Assignment:
    name: str
    value: Word
    """For an array, a dynamic word."""


@dataclass(frozen=True, slots=True)
class Redirect:
    operator: str
    """`<`, `>`, `>>`, `>|`, `<>`, `&>`, `&>>`, `<&`, `>&`, `<<`, `<<<`."""
    target: Word
    """A file, a descriptor, or the text of a here-string; a here-document's delimiter."""

    @property
    def access(self) -> Literal["read", "write", "none"]:
        """What it does to a file. `none`: descriptors, /dev/null and here-documents."""
        if self.operator in {"<<", "<<-", "<<<"} or self.target.value == "/dev/null":
            return "none"
        if self.target.is_process:
            return "none"
        if self.operator in {"<&", ">&"} and _is_descriptor(self.target.value):
            return "none"
        return "read" if self.operator == "<" else "write"


@dataclass(frozen=True, slots=True)
class Command:
    """One simple command: what bash would look up and run, or a bare assignment or redirection."""

    words: tuple[Word, ...]
    assignments: tuple[Assignment, ...] = ()
    """`VAR=x` before the command, or the whole of it."""
    redirects: tuple[Redirect, ...] = ()
    wrappers: tuple[str, ...] = ()
    """What was taken off in front, outermost first: `("timeout 5", "nice")`."""

    @property
    def name(self) -> str:
        """What is run; empty for a bare assignment or redirection."""
        return self.words[0].value or "" if self.words else ""

    @property
    def cd_target(self) -> Word | None:
        """Where `cd` or `pushd` goes, `HOME` if it does not say; None for any other command."""
        if self.name not in {"cd", "pushd"}:
            return None
        operands = (word for word in self.words[1:] if not (word.value or "").startswith("-"))
        return next(operands, HOME)

    @property
    def text(self) -> str:
        """Assignments and words, spelled one way; redirections left out."""
        parts = [f"{assignment.name}={assignment.value.text}" for assignment in self.assignments]
        return " ".join([*parts, *(word.text for word in self.words if word.source)])


@dataclass(frozen=True, slots=True)
class Commands:
    commands: tuple[Command, ...]
    """Everything that may run, at any depth. A wrapper that is not transparent is listed itself,
    and so is what it wraps."""


@dataclass(frozen=True, slots=True)
class UnclearCommands:
    """Never to be allowed by a rule, nor taken for read-only: ask or deny."""

    reason: str
    commands: tuple[Command, ...] = ()
    """Those that were found all the same: enough to deny by, not enough to allow by."""


def _is_bare(value: str) -> bool:
    return not any(char.isspace() or char in "\"'\\" for char in value)


def _is_descriptor(value: str | None) -> bool:
    return value is not None and (value == "-" or value.rstrip("-").isdigit())


def word_set(text: str) -> frozenset[str]:
    return frozenset(text.split())
