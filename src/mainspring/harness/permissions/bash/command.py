"""The values of this package: words, commands and redirections of a shell text, or the reason why
it is unclear.
"""

from __future__ import annotations

import shlex
from dataclasses import dataclass
from typing import Literal


@dataclass(frozen=True, slots=True)
class Word:
    source: str
    """The word as written; empty for words that another program, such as xargs, will add."""
    value: str | None
    """What the command receives, quotes removed; `None` if only bash knows (expansion, glob)."""
    pathlike: str
    """The value or, for a dynamic word, the source without its quotes; for rules and people."""
    optionlike: bool
    """It is or may become an option: it begins with `-`, or with something unknown."""
    many: bool
    """It may become any number of words: an unquoted expansion, a glob, `"$@"`."""

    @property
    def is_process(self) -> bool:
        """Whether it is a pipe to or from a command, which is listed separately."""
        return self.source.startswith(("<(", ">(")) and self.value is None

    @property
    def text(self) -> str:
        """The word in one canonical quoting, to match rules against."""
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
    """The wrappers that were removed, outermost first: `("timeout 5", "nice")`."""

    @property
    def name(self) -> str:
        """The program to run; empty for a bare assignment or redirection."""
        return self.words[0].value or "" if self.words else ""

    @property
    def cd_target(self) -> Word | None:
        """The target of `cd` or `pushd`, `HOME` by default; `None` for any other command."""
        if self.name not in {"cd", "pushd"}:
            return None
        operands = (word for word in self.words[1:] if not (word.value or "").startswith("-"))
        return next(operands, HOME)

    @property
    def text(self) -> str:
        """Assignments and words in canonical quoting, without redirections."""
        parts = [f"{assignment.name}={assignment.value.text}" for assignment in self.assignments]
        return " ".join([*parts, *(word.text for word in self.words if word.source)])


@dataclass(frozen=True, slots=True)
class Commands:
    commands: tuple[Command, ...]
    """Everything that may run, at any depth. A wrapper that is not transparent is listed, too,
    besides the commands that it wraps."""


@dataclass(frozen=True, slots=True)
class UnclearCommands:
    """A text that no rule may allow and that never counts as read-only: ask or deny."""

    reason: str
    commands: tuple[Command, ...] = ()
    """The commands that were recognized: enough to deny, not enough to allow."""


def _is_bare(value: str) -> bool:
    return not any(char.isspace() or char in "\"'\\" for char in value)


def _is_descriptor(value: str | None) -> bool:
    return value is not None and (value == "-" or value.rstrip("-").isdigit())


def word_set(text: str) -> frozenset[str]:
    return frozenset(text.split())
