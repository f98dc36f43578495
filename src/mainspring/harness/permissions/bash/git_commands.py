"""Which git subcommands are read-only and whose files they show, including old versions from
git's objects.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, field, replace

from mainspring.harness.permissions.bash.command import Word
from mainspring.harness.permissions.bash.git_tables import (
    CONTENT,
    NAMES_ONLY,
    NO_PATCHES,
    PATCHES,
    PLAIN,
    SPECIAL,
    TABLES,
)
from mainspring.harness.permissions.bash.option_tables import (
    ParsedArguments,
    literal_word,
    option_table,
    parse_arguments,
)

_GLOBALS = "+ -C= --no-pager --no-optional-locks --literal-pathspecs"
_COMMIT = re.compile(r"(?:HEAD|@|[A-Za-z][\w./-]*)(?:[~^][0-9]*|@\{[0-9]+\})*")
_HASH = re.compile(r"[0-9a-fA-F]{4,64}(?:[~^].*)?")
_KINDS = frozenset(("blob", "tree", "commit", "tag"))
_MESSAGES = frozenset(("-m", "-am", "--message"))
_MAGIC = re.compile(r"^:|[*?\[]")
_CONTENTS = re.compile(r"%\(\*?(?:raw|contents)")
_VERBOSE = re.compile(r"^(?:-[a-z]*v|--verbose)")
_SHOWING = re.compile(
    rf"^(?:-[a-zA-Z]*[pvie]|--(?:patch|verbose|interactive|edit|show-current-patch))"
    rf"|{_CONTENTS.pattern}"
)


@dataclass(slots=True)
class GitReads:
    """What of a repository's files a git command shows."""

    files: list[Word] = field(default_factory=list[Word])
    trees: list[Word] = field(default_factory=list[Word])
    unlimited: bool = False
    """Anything that was ever committed may be shown."""


@dataclass(frozen=True, slots=True)
class GitCommand:
    name: str
    own: tuple[Word, ...]
    folder: Word | None
    """Given by `-C`."""


def git_command(arguments: Sequence[Word]) -> GitCommand | None:
    """None if its own options choose what git runs (`-c`, `--git-dir`, `--exec-path`), or if its
    subcommand is not known."""
    line = parse_arguments(arguments, _GLOBALS)
    folders = line.values("-C") if line else []
    if line is None or not line.operands or len(folders) > 1 or line.operands[0].value is None:
        return None
    if any(folder.value is None for folder in folders):
        return None
    first, *own = line.operands
    return GitCommand(first.value or "", tuple(own), folders[0] if folders else None)


def is_git_read_only(arguments: tuple[Word, ...]) -> bool:
    """In a repository that is trusted; see `Verdict.git_folders` for which it is."""
    git = git_command(arguments)
    if git is None:
        return False
    special = SPECIAL.get(git.name)
    if special is not None:
        return special(git.own)
    line = parse_arguments(git.own, TABLES[git.name]) if git.name in TABLES else None
    return line is not None and (git.name != "var" or not line.operands)


def git_may_run_programs(arguments: tuple[Word, ...]) -> bool:
    """Whether it may run what its words do not tell: an alias, a program named by an option."""
    git = git_command(arguments)
    if git is None:
        return True
    return git.name not in PLAIN and not is_git_read_only(arguments)


def git_reads(arguments: tuple[Word, ...]) -> GitReads:
    git = git_command(arguments)
    if git is None or not (git.name in PLAIN or is_git_read_only(arguments)):
        return GitReads(unlimited=True)
    name, own = _equivalent_log(git)
    line = parse_arguments(own, TABLES[name]) if name in CONTENT else None
    found = _plain_reads(name, own) if line is None else _content(name, line)
    return found if git.folder is None else _in_folder(found, git.folder)


def _equivalent_log(git: GitCommand) -> tuple[str, tuple[Word, ...]]:
    """`git stash show -p` and `git reflog -p` are logs, as far as files are concerned."""
    first = git.own[0].value if git.own else None
    if git.name in {"stash", "reflog"} and first in {"list", "show"}:
        return ("log", git.own[1:])
    return ("log", git.own) if git.name == "reflog" and first != "exists" else (git.name, git.own)


def _plain_reads(name: str, own: Sequence[Word]) -> GitReads:
    own = without_messages(own)
    options = [item.value or "-p" for item in own if item.optionlike]
    shows = _VERBOSE if name == "status" else _SHOWING if name in PLAIN else _CONTENTS
    unlimited = any(shows.search(option) for option in options)
    return GitReads(unlimited=unlimited, files=[item for item in own if not item.optionlike])


def without_messages(own: Sequence[Word]) -> list[Word]:
    """What a commit is told to say is no file."""
    said = {at + 1 for at, each in enumerate(own) if each.value in _MESSAGES}
    return [each for at, each in enumerate(own) if at not in said]


def _content(name: str, parsed_arguments: ParsedArguments) -> GitReads:
    found = GitReads(files=parsed_arguments.values(*option_table(TABLES[name]).files))
    words, before = parsed_arguments.operands, parsed_arguments.operands_before_dashes
    if name == "grep" and not parsed_arguments.has(
        "-e", "-f"
    ):  # the pattern, which may stand behind the `--`
        words, before = words[1:], before and before - 1
    operands, paths = words[:before], [] if before is None else words[before:]
    if parsed_arguments.has("--no-index"):
        found.trees.extend((*operands, *paths) or (literal_word("."),))
        return found
    for word in operands:
        _add_object(word, found)
    if name == "cat-file":
        shown = [operand for operand in operands if operand.value not in _KINDS]
        asks = parsed_arguments.has("-t", "-s", "-e", "--batch-check")
        found.unlimited = not asks and not all(map(_names_path, shown))
    elif name == "blame":
        found.files.extend(paths)
    elif not _hides_content(name, parsed_arguments):
        found.trees.extend(paths)
        is_plain = all(path.value and not _MAGIC.search(path.value) for path in paths)
        limited = bool(paths) and is_plain and not parsed_arguments.has("--follow", "--stdin", "-L")
        only_paths = name == "show" and operands and all(map(_names_path, operands))
        found.unlimited = found.unlimited or not (limited or only_paths)
    return found


def _add_object(word: Word, found: GitReads) -> None:
    """`HEAD:path` is a file as it was, `:path` as it is staged; a hash may be that of any."""
    if word.value is None or _HASH.fullmatch(word.value):
        found.unlimited = True
    elif ":" in word.value:
        path = re.sub(r"^[^:]*:(?:[0-3]:)?", "", word.value)
        found.files.append(literal_word(path or "."))
        found.unlimited = found.unlimited or not _names_path(word)
    else:
        found.files.append(word)  # or a commit, which is no file


def _names_path(word: Word) -> bool:
    revision, colon, path = (word.value or "").partition(":")
    is_revision = not revision or _COMMIT.fullmatch(revision) or _HASH.fullmatch(revision)
    return bool(colon and is_revision and path) and not path.startswith("/")


def _hides_content(name: str, parsed_arguments: ParsedArguments) -> bool:
    """Names and numbers only: `--stat`, or a log without patches."""
    if name == "grep" or parsed_arguments.has(*PATCHES):
        return False
    return parsed_arguments.has(*NAMES_ONLY) or name in NO_PATCHES


def _in_folder(found: GitReads, folder: Word) -> GitReads:
    def inside(word: Word) -> Word:
        return word if word.value is None else literal_word(f"{folder.value}/{word.value}")

    # the path in an object's name begins at the top of the repository
    return replace(
        found,
        files=[*found.files, *map(inside, found.files)],
        trees=[*found.trees, *map(inside, found.trees)],
    )
