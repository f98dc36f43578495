"""Which files a command reads, from the program tables."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import TypeAlias

from mainspring.harness.permissions.bash.command import Command, Word, word_set
from mainspring.harness.permissions.bash.git_commands import (
    git_reads,
    is_git_read_only,
    without_messages,
)
from mainspring.harness.permissions.bash.option_tables import (
    ParsedArguments,
    literal_word,
    option_table,
    parse_arguments,
)
from mainspring.harness.permissions.bash.program_tables import (
    AWK,
    COPYING,
    FIND_FILES,
    PROGRAMS,
    SED,
    SHORT_VERSIONS,
    SILENT,
    SUBCOMMANDS,
    VERSIONED,
    XARGS,
)
from mainspring.harness.permissions.bash.scripts import (
    is_awk_program_pure,
    is_jq_program_pure,
    is_sed_script_pure,
    program_texts,
)

_FOLDERS = ("/bin/", "/usr/bin/")
_MAX_GUESSES = 200  # paths that an expansion may mean
_FOLLOWING: dict[str, tuple[str, ...]] = {
    "diff": ("-r", "--recursive"),
    "du": ("-L", "--dereference"),
    "egrep": ("-R", "--dereference-recursive"),
    "fd": ("-L", "--follow"),
    "fgrep": ("-R", "--dereference-recursive"),
    "grep": ("-R", "--dereference-recursive"),
    "rg": ("-L",),
    "tree": ("-l",),
}
"""Options that follow links in folders, wherever they lead."""
_EXPANDING = word_set("c++filt lsof nm objdump readelf size strings unzip xmllint zipinfo")
_WITH_SUBCOMMANDS = frozenset(first for first, *_ in SUBCOMMANDS)
_FILE_TESTS = re.compile(r"-[bcdefgGhkLNOprsSuwx]")
_FILE_COMPARISONS = word_set("-nt -ot -ef")
_RECURSIVE = re.compile(r"-[a-zA-Z]*[rRa][a-zA-Z]*|--(?:recursive|archive)")
_TAR = re.compile(r"-?[tvzjJ]*t[tvzjJ]*f")
_NAMES = re.compile(r"[\w./~-]+")
ReadsAnalyzer: TypeAlias = "Callable[[tuple[Word, ...]], FileReads | None]"


@dataclass(slots=True)
class FileReads:
    files: list[Word] = field(default_factory=list[Word])
    """The files that it names; for unknown options, words that look like paths."""
    trees: list[Word] = field(default_factory=list[Word])
    """Folders that it reads recursively."""
    guesses: list[Word] = field(default_factory=list[Word])
    """Words of an unknown program or unknown options that may be files."""
    is_known: bool = True
    """Whether it certainly reads nothing else."""
    shows_history: bool = False
    """Whether it shows unknown files from git's objects."""
    is_dynamic: bool = False
    """Whether a word whose value only bash knows may be a file or an option that names one; or an
    unknown option of a reading program may take names of files from a file."""


def system_program(command: Command) -> str:
    """The name of the program; for one outside the system's folders, its path."""
    name = command.name
    return name.removeprefix("/usr").removeprefix("/bin/") if name.startswith(_FOLDERS) else name


def find_table(command: Command) -> tuple[str, tuple[Word, ...]] | None:
    """The table for a command, and the arguments that it covers."""
    name, arguments = system_program(command), command.words[1:]
    if name in _EXPANDING and any(_is_expanded(name, argument.pathlike) for argument in arguments):
        return None
    generic = name.removesuffix("3")
    if generic in _WITH_SUBCOMMANDS:
        values = (generic, *(argument.value or "" for argument in arguments[:3]))
        for length in (1, 2, 3, 4):
            if values[:length] in SUBCOMMANDS:
                return SUBCOMMANDS[values[:length]], arguments[length - 1 :]
    return (PROGRAMS[name], arguments) if name in PROGRAMS else None


def asks_version(name: str, arguments: tuple[Word, ...]) -> bool:
    """Whether a known program only prints its version or help; `./x --version` runs x."""
    option = arguments[0].value if len(arguments) == 1 else None
    if option in {"--version", "--help"}:
        return name in VERSIONED
    return name in SHORT_VERSIONS.get(option or "", frozenset())


def _is_expanded(name: str, text: str) -> bool:
    """Whether the program itself expands an argument: `strings @file` reads arguments from a file,
    unzip expands globs, and `lsof -i@host` looks up the host."""
    if name in {"unzip", "zipinfo"}:
        return any(item in text for item in "*?[")
    if name == "xmllint":
        return re.match(r"[A-Za-z][A-Za-z0-9+.-]*:", text) is not None  # it fetches URLs
    return "@" in text


def file_reads(command: Command) -> FileReads:
    name, arguments = system_program(command), command.words[1:]
    if name in SILENT or asks_version(name, arguments):
        return FileReads()
    special = _SPECIAL.get(name)
    reads = special(arguments) if special else _by_table(command)
    if reads is not None:
        return reads
    if name in COPYING:
        return _copied_files(name, arguments)
    texts = [redirect.target for redirect in command.redirects if redirect.operator == "<<<"]
    reads = _unknown_program((*arguments, *texts))
    reads.is_dynamic = name in PROGRAMS or name in _SCRIPTED
    return reads


def _by_table(command: Command) -> FileReads | None:
    table = find_table(command)
    if table is None:
        return None
    spec, arguments = table
    kinds = option_table(spec).words
    if "free" in kinds:
        return FileReads()
    line = parse_arguments(arguments, spec)
    if line is None:
        return None
    reads = _by_kind(spec, line)
    reads.is_dynamic |= line.has(*_FOLLOWING.get(system_program(command), ()))
    return reads


def _by_kind(spec: str, line: ParsedArguments) -> FileReads:
    options = option_table(spec)
    operands = line.operands
    if "pattern" in options.words and not line.has(*options.scripts, *_pattern_files(spec)):
        operands = operands[1:]
    files = [] if options.words & {"text", "none"} else operands
    reads = FileReads(files=[*files, *line.values(*options.files)])
    reads.is_dynamic = "text" not in options.words and any(map(_may_expand, line.operands))
    is_recursive = "tree" in options.words or line.has(*options.recursive)
    if is_recursive and not line.has("--files", "--type-list", "--version"):
        reads.trees = operands or [literal_word(".")]
    return reads


def _pattern_files(spec: str) -> set[str]:
    """Options such as `-f patterns`, with which no operand is a pattern."""
    return {"-f", "--file"} & option_table(spec).files


def _may_expand(word: Word) -> bool:
    """Whether a word may become several words, or an option."""
    return word.value is None and (word.many or word.optionlike) and not word.is_process


def _copied_files(name: str, arguments: Sequence[Word]) -> FileReads:
    operands = [argument for argument in arguments if not (argument.value or "").startswith("-")]
    values = [_after_equals(word) for word in arguments if (word.value or "").startswith("--")]
    reads = FileReads(files=[*operands, *(value for value in values if value)])
    reads.is_dynamic = any(map(_may_expand, arguments))
    if name == "mv" or (
        name == "cp" and any(_RECURSIVE.fullmatch(argument.value or "-r") for argument in arguments)
    ):
        reads.trees = operands
    return reads


def _after_equals(word: Word) -> Word | None:
    value = (word.value or "").partition("=")[2]
    return literal_word(value) if value else None


def _unknown_program(arguments: Sequence[Word]) -> FileReads:
    """The reads of an unknown program: words that look like paths, and names that may be files."""
    reads = FileReads(is_known=False)
    reads.files = [word for word in arguments if word.value is None and not word.is_process]
    guesses: dict[str, None] = {}
    for value in dict.fromkeys(part for word in arguments for part in _values(word.value or "")):
        is_path = "/" in value or value.startswith(("~", "."))
        if is_path:
            reads.files.append(literal_word(value))
        else:
            guesses[value] = None
        guesses.update(dict.fromkeys(_NAMES.findall(value)))
    reads.guesses = [literal_word(guess) for guess in list(guesses)[:_MAX_GUESSES]]
    return reads


def _values(word: str) -> Iterator[str]:
    """A word, and the values that it may contain as an option: `-fX`, `--file=X`, `if=X`."""
    if word.startswith("-") and not word.startswith("--"):
        yield from (word[at:] for at in range(2, min(len(word), 32)))
    elif word and not word.startswith("-"):
        yield word
    _, equals, value = word.partition("=")
    if equals and value:
        yield value


def _find(arguments: tuple[Word, ...]) -> FileReads:
    reads = FileReads()
    roots = True
    for at, word in enumerate(arguments):
        value = word.value or ""
        if roots and re.fullmatch(r"-[HLP]|-O[0-3]", value):
            continue
        if value.startswith(("-", "(", ")", "!", ",")):
            roots = False
        if roots:
            reads.files.append(word)
        elif value in FIND_FILES:
            reads.files.extend(arguments[at + 1 : at + 2])
    lists = any(word.value in {"-files0-from", "-L", "-follow"} for word in arguments)
    reads.is_dynamic = lists or any(map(_may_expand, reads.files))
    return reads


def _test(arguments: tuple[Word, ...]) -> FileReads:
    reads = FileReads()
    for at, word in enumerate(arguments):
        if _FILE_TESTS.fullmatch(word.value or ""):
            reads.files.extend(arguments[at + 1 : at + 2])
        elif word.value in _FILE_COMPARISONS:
            reads.files.extend((*arguments[max(0, at - 1) : at], *arguments[at + 1 : at + 2]))
    return reads


def _git(arguments: tuple[Word, ...]) -> FileReads:
    reads = git_reads(arguments)
    result = FileReads(files=reads.files, trees=reads.trees, shows_history=reads.unlimited)
    if reads.unlimited or not is_git_read_only(arguments):
        guessed = _unknown_program(without_messages(arguments))
        result.files.extend(guessed.files)
        result.guesses = guessed.guesses
    return result


def _tar(arguments: tuple[Word, ...]) -> FileReads | None:
    return FileReads(files=[arguments[1]]) if lists_archive(arguments) else None


def lists_archive(arguments: Sequence[Word]) -> bool:
    """Whether this is `tar tf file`. A name with a colon is a file on another machine."""
    if len(arguments) < 2 or not _TAR.fullmatch(arguments[0].value or ""):
        return False
    archive = arguments[1].value or ":"
    return ":" not in archive and not any(argument.optionlike for argument in arguments[1:])


def _table_reader(
    spec: str, is_harmless: Callable[[str | None], bool] | None = None
) -> ReadsAnalyzer:
    """An analyzer by a table; if the program text may have effects, names in it may be files."""

    def read(arguments: tuple[Word, ...]) -> FileReads | None:
        line = parse_arguments(arguments, spec)
        if line is None:
            return None
        reads = _by_kind(spec, line)
        scripts = program_texts(spec, line) if is_harmless else []
        for script in scripts:
            if is_harmless and not is_harmless(script.value):
                reads.is_dynamic = True
                reads.guesses.extend(map(literal_word, _NAMES.findall(script.value or "")))
        return reads

    return read


_SCRIPTED = word_set("awk gawk mawk sed")
_SPECIAL: dict[str, ReadsAnalyzer] = {
    "[": _test,
    "[[": _test,
    "awk": _table_reader(AWK, is_awk_program_pure),
    "find": _find,
    "gawk": _table_reader(AWK, is_awk_program_pure),
    "git": _git,
    "jq": _table_reader(PROGRAMS["jq"], is_jq_program_pure),
    "mawk": _table_reader(AWK, is_awk_program_pure),
    "yq": _table_reader(PROGRAMS["yq"], is_jq_program_pure),
    "sed": _table_reader(f"{SED} -i? --in-place?", is_sed_script_pure),
    "tar": _tar,
    "test": _test,
    "xargs": _table_reader(XARGS),
}
