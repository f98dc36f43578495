"""git's subcommands that only look, with the options that keep them so."""

from __future__ import annotations

import re
from collections.abc import Callable

from mainspring.harness.permissions.bash.command import Word, word_set
from mainspring.harness.permissions.bash.option_tables import parse_arguments

# --ext-diff, --textconv, --output, --open-files-in-pager and --exec run or write: not here.
_DIFF = (
    " -pusRawbzWD -M? -U= -S= -G= -O< -l= -C? -B? --patch --no-patch --stat? --numstat --shortstat"
    " --summary --name-only --name-status --cached --staged --check --color? --no-color"
    " --word-diff?"
    " --minimal --patience --histogram --diff-algorithm= --unified= --raw --no-renames"
    " --find-renames?"
    " --find-copies? --ignore-all-space --ignore-space-change --ignore-blank-lines --exit-code"
    " --quiet"
    " --no-ext-diff --no-textconv --relative? --diff-filter= --text --full-index --abbrev?"
    " --merge-base"
    " --function-context --dirstat? --compact-summary --no-index --color-words? --no-prefix"
    " --binary"
)
_LOG = (
    _DIFF + " -# -n= -L= -i -E -F -g -t -m -c --oneline --graph --decorate? --no-decorate --all"
    " --branches? --tags? --remotes? --since= --until= --after= --before= --author= --committer="
    " --grep= --format="
    " --pretty? --abbrev-commit --no-abbrev-commit --max-count= --skip= --reverse --follow --merges"
    " --no-merges --first-parent --date= --left-right --cherry-pick --cherry-mark --topo-order"
    " --date-order"
    " --no-walk --simplify-by-decoration --full-history --ancestry-path --notes? --invert-grep"
    " --regexp-ignore-case --extended-regexp --fixed-strings --pickaxe-all --pickaxe-regex"
    " --source --parents"
    " --children --boundary --stdin --max-parents= --min-parents= --walk-reflogs --dense --sparse"
)
TABLES: dict[str, str] = {
    "status": "-sbvz -u? --short --branch --porcelain? --long --verbose --show-stash --ignored?"
    " --column?"
    " --untracked-files? --ignore-submodules? --ahead-behind --no-ahead-behind --renames"
    " --no-renames",
    "diff": _DIFF,
    "log": _LOG,
    "show": _LOG,
    "shortlog": "-nsec -w? --numbered --summary --email --all --since= --until="
    " --no-merges --group="
    " --author=",
    "whatchanged": _LOG,
    "rev-parse": "-q --abbrev-ref? --short? --verify --show-toplevel --show-cdup"
    " --show-prefix --git-dir"
    ""
    " --git-common-dir --is-inside-work-tree --is-inside-git-dir --is-bare-repository --symbolic"
    " --symbolic-full-name --absolute-git-dir --show-superproject-working-tree --branches? --tags?"
    " --remotes? --all --not --revs-only --no-revs --flags --no-flags --quiet",
    "rev-list": "-# -n= --count --all --max-count= --since= --until= --author= --merges --no-merges"
    " --reverse"
    " --first-parent --left-right --objects --branches? --tags? --oneline --parents"
    " --ancestry-path",
    "ls-files": "-cdmoiskuztv -x= -X< --cached --deleted --modified --others --ignored --stage"
    " --killed"
    " --unmerged --exclude= --exclude-standard --full-name --error-unmatch --abbrev?"
    " --directory --eol",
    "ls-tree": "-drtlz --long --name-only --name-status --full-name --full-tree --abbrev?"
    " --object-only"
    "",
    "blame": "-bltfnspewMC -L= -S< --root --porcelain --line-porcelain --show-name --show-number"
    " --show-email"
    " --date= --since= --abbrev= --ignore-rev= --ignore-revs-file< --incremental",
    "grep": "-achivwlLnopqEFGPHIrWz0 -e~ -f< -A= -B= -C= -m= --cached --no-index --untracked"
    " --ignore-case"
    " --word-regexp --text --invert-match --extended-regexp --fixed-strings --perl-regexp"
    " --line-number"
    " --files-with-matches --name-only --files-without-match --count --color? --no-color"
    " --and --or --not"
    " --all-match --show-function --function-context --context= --break --heading --max-depth="
    " --column"
    " --only-matching --recurse-submodules --threads= --quiet",
    "describe": "--all --tags --contains --abbrev= --exact-match --long --match="
    " --exclude= --always"
    " --dirty?"
    " --broken? --first-parent --candidates= --debug",
    "cat-file": "-t -s -e -p --batch-check? --allow-unknown-type --follow-symlinks",
    "merge-base": "-a --all --octopus --independent --is-ancestor --fork-point",
    "name-rev": "--tags --refs= --all --name-only --always",
    "for-each-ref": "--count= --sort= --format= --contains? --merged? --no-merged?"
    " --points-at= --ignore-case"
    "",
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
"""They show what is in files."""
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
"""Options by which they do so, whatever else is asked for."""
NO_PATCHES = word_set("diff-tree log whatchanged")
"""Those that do not without one of `PATCHES`."""
PLAIN = word_set(
    """
    add branch checkout cherry-pick clean commit fetch gc init merge mv pull push rebase remote
    reset restore revert rm stash switch tag
    """
)
"""They change things, and show and run nothing but what the repository itself is set up for."""
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
    lists = (
        "-l",
        "--list",
        "--contains",
        "--merged",
        "--no-merged",
        "--no-contains",
        "--points-at",
    )
    return not line.operands or line.has(*lists)


def _tag(own: tuple[Word, ...]) -> bool:
    line = parse_arguments(
        own,
        "-li -n? --list --sort= --format= --contains? --no-contains? --merged? --no-merged?"
        " --points-at="
        " --column? --color? --ignore-case",
    )
    return line is not None and (not line.operands or line.has("-l", "--list", "-n", "--contains"))


def _remote(own: tuple[Word, ...]) -> bool:
    line = parse_arguments(own, "+ -v --verbose")
    return line is not None and (not line.operands or line.operands[0].value == "get-url")


def _stash(own: tuple[Word, ...]) -> bool:
    return _nested(own, {"list": _LOG, "show": _LOG})


def _worktree(own: tuple[Word, ...]) -> bool:
    return _nested(own, {"list": "-vz --porcelain --verbose"})


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
    return not more and _SETTING.fullmatch(first) is not None  # two would set it


def _submodule(own: tuple[Word, ...]) -> bool:
    return not own or _nested(own, {"status": "-q --quiet --cached --recursive"})


def _symbolic_ref(own: tuple[Word, ...]) -> bool:
    line = parse_arguments(own, "-q --quiet --short --no-recurse")
    # two would set it
    return line is not None and len(line.operands) == 1 and not line.operands[0].many


def _notes(own: tuple[Word, ...]) -> bool:
    return _nested(own, {"list": "", "show": ""})


def _nested(own: tuple[Word, ...], tables: dict[str, str]) -> bool:
    return (
        bool(own)
        and own[0].value in tables
        and (parse_arguments(own[1:], tables[own[0].value]) is not None)
    )


SPECIAL: dict[str, Callable[[tuple[Word, ...]], bool]] = {
    "branch": _branch,
    "tag": _tag,
    "remote": _remote,
    "stash": _stash,
    "worktree": _worktree,
    "reflog": _reflog,
    "config": _config,
    "notes": _notes,
    "submodule": _submodule,
    "symbolic-ref": _symbolic_ref,
}
