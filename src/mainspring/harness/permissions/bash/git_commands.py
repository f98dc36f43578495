"""Which git subcommands are read-only, with which options, and which files they show, including
old versions from git's objects.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial

from mainspring.harness.permissions.bash.command import Word, word_set
from mainspring.harness.permissions.bash.option_tables import (
    ParsedArguments,
    literal_word,
    option_table,
    parse_arguments,
)

# --ext-diff, --textconv, --output, --open-files-in-pager and --exec run or write: not here.
_DIFF = (
    " -pusRawbzWD -M? -U= -S= -G= -O< -l= -C? -B? --patch --no-patch --stat? --numstat --shortstat"
    " --summary --name-only --name-status --cached --staged --check --color? --no-color"
    " --word-diff? --minimal --patience --histogram --diff-algorithm= --unified= --raw --no-renames"
    " --find-renames? --find-copies? --ignore-all-space --ignore-space-change --ignore-blank-lines"
    " --exit-code --quiet --no-ext-diff --no-textconv --relative? --diff-filter= --text"
    " --full-index --abbrev? --merge-base --function-context --dirstat? --compact-summary"
    " --no-index --color-words? --no-prefix --binary"
)
_LOG = (
    _DIFF + " -# -n= -L= -i -E -F -g -t -m -c --oneline --graph --decorate? --no-decorate --all"
    " --branches? --tags? --remotes? --since= --until= --after= --before= --author= --committer="
    " --grep= --format= --pretty? --abbrev-commit --no-abbrev-commit --max-count= --skip= --reverse"
    " --follow --merges --no-merges --first-parent --date= --left-right --cherry-pick --cherry-mark"
    " --topo-order --date-order --no-walk --simplify-by-decoration --full-history --ancestry-path"
    " --notes? --invert-grep --regexp-ignore-case --extended-regexp --fixed-strings --pickaxe-all"
    " --pickaxe-regex --source --parents --children --boundary --stdin --max-parents="
    " --min-parents= --walk-reflogs --dense --sparse"
)
TABLES: dict[str, str] = {
    "status": "-sbvz -u? --short --branch --porcelain? --long --verbose --show-stash --ignored?"
    " --column? --untracked-files? --ignore-submodules? --ahead-behind --no-ahead-behind --renames"
    " --no-renames",
    "diff": _DIFF,
    "log": _LOG,
    "show": _LOG,
    "shortlog": "-nsec -w? --numbered --summary --email --all --since= --until= --no-merges"
    " --group= --author=",
    "whatchanged": _LOG,
    "rev-parse": "-q --abbrev-ref? --short? --verify --show-toplevel --show-cdup --show-prefix"
    " --git-dir --git-common-dir --is-inside-work-tree --is-inside-git-dir --is-bare-repository"
    " --symbolic --symbolic-full-name --absolute-git-dir --show-superproject-working-tree"
    " --branches? --tags? --remotes? --all --not --revs-only --no-revs --flags --no-flags --quiet",
    "rev-list": "-# -n= --count --all --max-count= --since= --until= --author= --merges --no-merges"
    " --reverse --first-parent --left-right --objects --branches? --tags? --oneline --parents"
    " --ancestry-path",
    "ls-files": "-cdmoiskuztv -x= -X< --cached --deleted --modified --others --ignored --stage"
    " --killed --unmerged --exclude= --exclude-standard --full-name --error-unmatch --abbrev?"
    " --directory --eol",
    "ls-tree": "-drtlz --long --name-only --name-status --full-name --full-tree --abbrev?"
    " --object-only",
    "blame": "-bltfnspewMC -L= -S< --root --porcelain --line-porcelain --show-name --show-number"
    " --show-email --date= --since= --abbrev= --ignore-rev= --ignore-revs-file< --incremental",
    "grep": "-achivwlLnopqEFGPHIrWz0 -e~ -f< -A= -B= -C= -m= --cached --no-index --untracked"
    " --ignore-case --word-regexp --text --invert-match --extended-regexp --fixed-strings"
    " --perl-regexp --line-number --files-with-matches --name-only --files-without-match --count"
    " --color? --no-color --and --or --not --all-match --show-function --function-context"
    " --context= --break --heading --max-depth= --column --only-matching --recurse-submodules"
    " --threads= --quiet",
    "describe": "--all --tags --contains --abbrev= --exact-match --long --match= --exclude="
    " --always --dirty? --broken? --first-parent --candidates= --debug",
    "cat-file": "-t -s -e -p --batch-check? --allow-unknown-type --follow-symlinks",
    "merge-base": "-a --all --octopus --independent --is-ancestor --fork-point",
    "name-rev": "--tags --refs= --all --name-only --always",
    "for-each-ref": "--count= --sort= --format= --contains? --merged? --no-merged? --points-at="
    " --ignore-case",
    "show-ref": "-dqs --head --heads --branches --tags --verify --dereference --hash? --abbrev?"
    " --exists",
    "count-objects": "-vH --verbose --human-readable",
    "check-ignore": "-qvnz --quiet --verbose --non-matching --no-index",
    "check-attr": "-az --all --cached",
    "cherry": "-v --abbrev?",
    "range-diff": _DIFF + " --creation-factor= --left-only --right-only --no-dual-color",
    "diff-tree": _DIFF + " -rtcm --root --pretty? --no-commit-id --format=",
    "version": "--build-options",
    "var": "-l",
}

CONTENT = word_set("blame cat-file diff diff-tree grep log range-diff show whatchanged")
"""Subcommands that show the content of files."""
NAMES_ONLY = word_set(
    """
    -s --no-patch --stat --numstat --shortstat --summary --name-only --name-status --raw --quiet
    --dirstat --compact-summary
    """
)
PATCHES = word_set(
    """
    -p -u -U -c -S -G -L --patch --unified --word-diff --color-words --binary --check
    --function-context -W
    """
)
"""Options that show content, whatever the other options are."""
NO_PATCHES = word_set("diff-tree log whatchanged")
"""Subcommands of `CONTENT` that show content only with an option of `PATCHES`."""
PLAIN = word_set(
    """
    add branch checkout cherry-pick clean commit fetch gc init merge mv pull push rebase remote
    reset restore revert rm stash switch tag
    """
)
"""Subcommands that change things, but run no programs except those the repository configures."""
_SETTING = re.compile(r"[A-Za-z][\w-]*\.[\w.-]+")


def _branch(own: tuple[Word, ...]) -> bool:
    line = parse_arguments(
        own,
        "-arvqil --list --all --remotes --verbose --show-current --merged? --no-merged? --contains?"
        " --no-contains? --sort= --format= --color? --no-color --points-at= --ignore-case"
        " --column?",
    )
    if line is None:
        return False
    lists = word_set("-l --list --contains --merged --no-merged --no-contains --points-at")
    return not line.operands or line.has(*lists)


def _tag(own: tuple[Word, ...]) -> bool:
    line = parse_arguments(
        own,
        "-li -n? --list --sort= --format= --contains? --no-contains? --merged? --no-merged?"
        " --points-at= --column? --color? --ignore-case",
    )
    return line is not None and (not line.operands or line.has("-l", "--list", "-n", "--contains"))


def _remote(own: tuple[Word, ...]) -> bool:
    line = parse_arguments(own, "+ -v --verbose")
    return line is not None and (not line.operands or line.operands[0].value == "get-url")


def _reflog(own: tuple[Word, ...]) -> bool:
    line = parse_arguments(own, _LOG)
    return (line is not None and not line.operands) or _nested(own, {"show": _LOG, "exists": ""})


def _config(own: tuple[Word, ...]) -> bool:
    line = parse_arguments(
        own,
        "-lz --get= --get-all= --get-regexp= --list --show-origin --show-scope --global --local"
        " --system --worktree --name-only --null --includes --type= --bool --int --path",
    )
    asks = ("--get", "--get-all", "--get-regexp", "--list", "-l")
    if line is None:
        return False
    if line.has(*asks):
        return len(line.operands) <= 1
    first, *more = [operand.value or "" for operand in line.operands] or [""]
    if first in {"get", "list"}:
        return len(more) == (first == "get")
    return not more and _SETTING.fullmatch(first) is not None  # two operands would set it


def _symbolic_ref(own: tuple[Word, ...]) -> bool:
    line = parse_arguments(own, "-q --quiet --short --no-recurse")
    # a second operand would set it
    return line is not None and len(line.operands) == 1 and not line.operands[0].many


def _nested(own: tuple[Word, ...], tables: Mapping[str, str]) -> bool:
    table = tables.get(own[0].value or "") if own else None
    return table is not None and parse_arguments(own[1:], table) is not None


SPECIAL: dict[str, Callable[[tuple[Word, ...]], bool]] = {
    "branch": _branch,
    "tag": _tag,
    "remote": _remote,
    "stash": partial(_nested, tables={"list": _LOG, "show": _LOG}),
    "worktree": partial(_nested, tables={"list": "-vz --porcelain --verbose"}),
    "reflog": _reflog,
    "config": _config,
    "notes": partial(_nested, tables={"list": "", "show": ""}),
    "submodule": lambda own: not own or _nested(own, {"status": "-q --quiet --cached --recursive"}),
    "symbolic-ref": _symbolic_ref,
}


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
    """The files of a repository that a git command shows."""

    files: list[Word] = field(default_factory=list[Word])
    trees: list[Word] = field(default_factory=list[Word])
    unlimited: bool = False
    """Anything that was ever committed may be shown."""


@dataclass(frozen=True, slots=True)
class GitCommand:
    name: str
    own: tuple[Word, ...]
    folder: Word | None
    """The value of `-C`."""


def git_command(arguments: Sequence[Word]) -> GitCommand | None:
    """`None` if options before the subcommand may change what git runs (`-c`, `--git-dir`,
    `--exec-path`), or if the subcommand is unknown."""
    line = parse_arguments(arguments, _GLOBALS)
    folders = line.values("-C") if line else []
    if line is None or not line.operands or len(folders) > 1 or line.operands[0].value is None:
        return None
    if any(folder.value is None for folder in folders):
        return None
    first, *own = line.operands
    return GitCommand(first.value or "", tuple(own), folders[0] if folders else None)


def is_git_read_only(arguments: tuple[Word, ...]) -> bool:
    """Whether it only reads in a trusted repository; see `CommandAnalysis.foreign_git`."""
    git = git_command(arguments)
    if git is None:
        return False
    special = SPECIAL.get(git.name)
    if special is not None:
        return special(git.own)
    line = parse_arguments(git.own, TABLES[git.name]) if git.name in TABLES else None
    return line is not None and (git.name != "var" or not line.operands)


def git_may_run_programs(arguments: tuple[Word, ...]) -> bool:
    """Whether it may run something that its words do not name: an alias, a program of an option."""
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
    reads = _plain_reads(name, own) if line is None else _content(name, line)
    return reads if git.folder is None else _in_folder(reads, git.folder)


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
    """The words without commit messages, which are not files."""
    positions = {at + 1 for at, word in enumerate(own) if word.value in _MESSAGES}
    return [word for at, word in enumerate(own) if at not in positions]


def _content(name: str, line: ParsedArguments) -> GitReads:
    reads = GitReads(files=line.values(*option_table(TABLES[name]).files))
    words, before = line.operands, line.operands_before_dashes
    if name == "grep" and not line.has("-e", "-f"):  # the pattern, which may come after `--`
        words, before = words[1:], before and before - 1
    operands, paths = words[:before], [] if before is None else words[before:]
    if line.has("--no-index"):
        reads.trees.extend((*operands, *paths) or (literal_word("."),))
        return reads
    for word in operands:
        _add_object(word, reads)
    if name == "cat-file":
        objects = [operand for operand in operands if operand.value not in _KINDS]
        asks = line.has("-t", "-s", "-e", "--batch-check")
        reads.unlimited = not asks and not all(map(_names_path, objects))
    elif name == "blame":
        reads.files.extend(paths)
    elif not _hides_content(name, line):
        reads.trees.extend(paths)
        is_plain = all(path.value and not _MAGIC.search(path.value) for path in paths)
        limited = bool(paths) and is_plain and not line.has("--follow", "--stdin", "-L")
        only_paths = name == "show" and operands and all(map(_names_path, operands))
        reads.unlimited = reads.unlimited or not (limited or only_paths)
    return reads


def _add_object(word: Word, reads: GitReads) -> None:
    """`HEAD:path` is a committed file, `:path` a staged one; a hash may be that of any file."""
    if word.value is None or _HASH.fullmatch(word.value):
        reads.unlimited = True
    elif ":" in word.value:
        path = re.sub(r"^[^:]*:(?:[0-3]:)?", "", word.value)
        reads.files.append(literal_word(path or "."))
        reads.unlimited = reads.unlimited or not _names_path(word)
    else:
        reads.files.append(word)  # or a commit, which is not a file


def _names_path(word: Word) -> bool:
    revision, colon, path = (word.value or "").partition(":")
    is_revision = not revision or _COMMIT.fullmatch(revision) or _HASH.fullmatch(revision)
    return bool(colon and is_revision and path) and not path.startswith("/")


def _hides_content(name: str, line: ParsedArguments) -> bool:
    """Whether it shows only names and numbers: `--stat`, or a log without patches."""
    if name == "grep" or line.has(*PATCHES):
        return False
    return line.has(*NAMES_ONLY) or name in NO_PATCHES


def _in_folder(reads: GitReads, folder: Word) -> GitReads:
    def inside(word: Word) -> Word:
        return word if word.value is None else literal_word(f"{folder.value}/{word.value}")

    # the path in an object's name begins at the top of the repository
    return replace(
        reads,
        files=[*reads.files, *map(inside, reads.files)],
        trees=[*reads.trees, *map(inside, reads.trees)],
    )
