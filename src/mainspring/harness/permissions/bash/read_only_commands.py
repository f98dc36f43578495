"""Which commands are read-only: those in the program tables, and a few that need their own
check.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Literal, TypeAlias

from mainspring.harness.permissions.bash.command import Command, Word
from mainspring.harness.permissions.bash.file_reads import (
    asks_version,
    find_table,
    lists_archive,
    system_program,
)
from mainspring.harness.permissions.bash.git_commands import is_git_read_only
from mainspring.harness.permissions.bash.hazards import (
    has_harmless_assignments,
    is_harmless,
    is_script_variable,
)
from mainspring.harness.permissions.bash.option_tables import (
    ParsedArguments,
    option_table,
    parse_arguments,
)
from mainspring.harness.permissions.bash.program_tables import (
    FIND_TESTS,
    LOADING,
    SANDBOX_ONLY,
    XARGS,
)
from mainspring.harness.permissions.bash.scripts import is_awk_read_only, is_sed_read_only

ReadOnlyScope: TypeAlias = Literal["anywhere", "in a sandbox", "nowhere"]
ReadOnlyCheck: TypeAlias = Callable[[tuple[Word, ...]], bool]

_TEXT_FILES = re.compile(
    r".*\.(?:c|cc|cfg|cpp|cs|css|csv|go|h|hpp|html|ini|java|js|json|jsx|log|md|py|rb|rs|rst|sh"
    r"|sql|tex|toml|ts|tsx|txt|xml|yaml|yml)"
)
# Checks of operands. Some of these programs are shell scripts that may misread unusual file names.
_OPERANDS: dict[str, Callable[[Word], bool]] = {
    "date": lambda word: (word.value or "").startswith("+"),
    # LESSOPEN decides what it does with other kinds of files
    "less": lambda word: (
        _TEXT_FILES.fullmatch(word.value or "") is not None and not word.pathlike.startswith("+")
    ),
    "man": lambda word: _PLAIN_NAME.fullmatch(word.value or "") is not None,
    "zcmp": lambda word: _PLAIN_PATH.fullmatch(word.value or "") is not None,
    "zgrep": lambda word: _PLAIN_PATH.fullmatch(word.value or "") is not None,
    "zdiff": lambda word: _PLAIN_PATH.fullmatch(word.value or "") is not None,
}
_PLAIN_NAME = re.compile(r"\w[\w.+-]*", re.ASCII)
_PLAIN_PATH = re.compile(r"\w[\w./-]*", re.ASCII)
_IP = re.compile(
    r"ip(?: -(?:4|6|br|brief|j|json|o|s|d|c))*(?: (?:a|addr|address|l|link|r|route|n|neigh))"
    r"(?: (?:show|list|ls))?(?: (?:dev )?[a-z0-9]+)?"
)


def read_only_scope(command: Command) -> ReadOnlyScope:
    """Where `command` changes nothing, apart from its redirections: only in a sandbox if files of
    the workspace influence what it runs."""
    if not command.words:
        sets = all(
            is_script_variable(assignment.name) or is_harmless(assignment)
            for assignment in command.assignments
        )
        return "anywhere" if sets else "nowhere"
    if not has_harmless_assignments(command):
        return "nowhere"
    name, arguments = system_program(command), command.words[1:]
    if asks_version(name, arguments):
        return "in a sandbox" if name in SANDBOX_ONLY else "anywhere"
    special = _SPECIAL.get(name)
    if not (special(arguments) if special else _by_table(command)):
        return "nowhere"
    return "in a sandbox" if name in LOADING else "anywhere"


def loads_modules(command: Command) -> bool:
    """Whether it is `python -m`, which first looks for modules in the current folder."""
    first = command.words[1].value if len(command.words) > 1 else None
    return system_program(command) in {"python", "python3"} and first == "-m"


def _by_table(command: Command) -> bool:
    table = find_table(command)
    if table is None:
        return False
    spec, arguments = table
    name, kinds = system_program(command), option_table(spec).words
    if "free" in kinds:
        return name != "printf" or not (arguments and arguments[0].optionlike)
    line = parse_arguments(arguments, spec)
    if line is None or not _fits(kinds, line):
        return False
    fits = _OPERANDS.get(name)
    return fits is None or all(map(fits, line.operands[1 if "pattern" in kinds else 0 :]))


def _fits(kinds: frozenset[str], line: ParsedArguments) -> bool:
    """Whether the number of operands is allowed."""
    if "none" in kinds:
        return not line.operands
    is_one = len(line.operands) <= 1 and not any(word.many for word in line.operands)
    return is_one or "one" not in kinds


def _find(arguments: tuple[Word, ...]) -> bool:
    """Every word that begins with `-` must be a harmless test, even if it is an argument of one."""
    return all(not word.optionlike or _is_find_read_only(word.value) for word in arguments)


def _is_find_read_only(value: str | None) -> bool:
    return value in FIND_TESTS or bool(re.fullmatch(r"-[0-9]+\w?|-O[0-3]", value or ""))


def _xargs(arguments: tuple[Word, ...]) -> bool:
    """The command that it runs is analyzed separately."""
    return parse_arguments(arguments, XARGS) is not None


def _ip(arguments: tuple[Word, ...]) -> bool:
    values = [word.value for word in arguments]
    return None not in values and _IP.fullmatch(" ".join(["ip", *map(str, values)])) is not None


def _command(arguments: tuple[Word, ...]) -> bool:
    return bool(arguments) and arguments[0].value in {"-v", "-V"}


def _always(_: tuple[Word, ...]) -> bool:
    return True


_SPECIAL: dict[str, ReadOnlyCheck] = {
    "[": _always,
    "[[": _always,
    "awk": is_awk_read_only,
    "command": _command,
    "find": _find,
    "gawk": is_awk_read_only,
    "git": is_git_read_only,
    "ip": _ip,
    "mawk": is_awk_read_only,
    "sed": is_sed_read_only,
    "tar": lists_archive,
    "test": _always,
    "xargs": _xargs,
}
