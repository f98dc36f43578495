"""Commands that only look: the list, and for each the options that keep it so.

What is not in a table is not read-only; dynamic words count as any option they may turn out to be.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import TypeAlias

from mainspring.harness.permissions.bash.command import Command, Word
from mainspring.harness.permissions.bash.git import git_only_looks
from mainspring.harness.permissions.bash.hazards import is_harmless, is_own, sets_little
from mainspring.harness.permissions.bash.names import names
from mainspring.harness.permissions.bash.options import Line, understood
from mainspring.harness.permissions.bash.scripts import awk_only_looks, sed_only_looks
from mainspring.harness.permissions.bash.wrappers import XARGS

Looks: TypeAlias = Callable[[tuple[Word, ...]], bool]

# None of their options writes, runs or loads anything.
_WHATEVER = names(
    """
    : [ [[ arch b2sum basename break cat cd cksum cmp comm continue cut df diff dirname du
    echo egrep exit expand expr factor false fgrep fold free getconf grep groups head
    hexdump id join jq locale logname ls lscpu md5sum nl nproc od paste pgrep printenv
    printf ps pwd readlink realpath return rev seq set sha1sum sha224sum sha256sum sha384sum
    sha512sum shift sleep stat strings sum tac tail test tr true tty type uname unexpand
    uptime users w wc which who whoami tsort read local
    """
)
# Nothing beyond their tables.
_TABLES: dict[str, str] = {
    "sort": "-bdfghiMnRrVsuzcCm -k= -t= -S= --reverse --numeric-sort --unique --key= --version-sort"
    " --field-separator= --human-numeric-sort --ignore-case --stable --check? --parallel="
    " --random-sort",
    "file": "-bhikLNprs0 -F= -f= -P= --brief --mime --mime-type --mime-encoding --dereference",
    "jobs": "-lnprs",
    "wait": "-nf",
    "base64": "-dDi -w= --decode --wrap= --ignore-garbage",
    "base32": "-di -w= --decode --wrap= --ignore-garbage",
    "tree": "-adfiClsuhgpDqNQrtcUvxFSnAJX -L= -P= -I= --du --dirsfirst --noreport --prune"
    " --filelimit= --gitignore --matchdirs --ignore-case --charset= --inodes --device",
    "rg": "-acFHhILlnNopPqsSuUvVwxi0 -A= -B= -C= -e= -f= -g= -j= -m= -M= -r= -t= -T= -E= -d="
    " --after-context= --before-context= --context= --regexp= --file= --glob= --iglob= --type="
    " --type-not= --max-count= --max-depth= --max-columns= --replace= --encoding= --sort= --sortr="
    " --color= --colors= --count --count-matches --files --files-with-matches --files-without-match"
    " --fixed-strings --hidden --no-hidden --ignore-case --smart-case --case-sensitive"
    " --invert-match --json --line-number --no-line-number --line-regexp --word-regexp --multiline"
    " --multiline-dotall --no-filename --with-filename --no-heading --heading --no-ignore"
    " --no-ignore-vcs --no-messages --null --only-matching --passthru --pcre2 --quiet --stats"
    " --text --trim --type-list --unrestricted --vimgrep --column --no-config --debug --version",
    "fd": "-HIsgFaLpu0 -d= -t= -e= -E= -c= -S= -j= --hidden --no-ignore --glob --extension= --type="
    " --exclude= --max-depth= --min-depth= --max-results= --absolute-path --full-path --color="
    " --changed-within= --changed-before= --size= --case-sensitive --ignore-case --print0 --follow",
    "lsblk": "-abdfilmnoprstJOPST -o= --all --json --output= --fs --paths",
    "hostname": "-fsdiIAy --fqdn --short --domain --ip-address --all-ip-addresses",
    "env": "-0 --null",
    "uniq": "-cdDuiz -f= -s= -w= --count --repeated --unique --ignore-case --zero-terminated",
    "xxd": "-abeEipu -c= -g= -l= -o= -s= -n=",
    "date": "-uR -d= -f= -r= -I? --date= --utc --universal --iso-8601? --rfc-3339= --rfc-email"
    " --reference=",
    "column": "-txen -c= -s= -o= -N= --table --separator= --json",
    "netstat": "-tulpnaersiWeo --tcp --udp --listening --numeric --all --programs --route",
    "lsof": "-nPtaUlR -p= -u= -c= -i? -d=",
}
_OPERANDS: dict[str, Callable[[Line], bool]] = {
    "uniq": lambda line: len(line.operands) <= 1 and _none_many(line),
    "xxd": lambda line: len(line.operands) <= 1 and _none_many(line),
    "hostname": lambda line: not line.operands,
    "env": lambda line: not line.operands,
    "date": lambda line: all((word.value or "").startswith("+") for word in line.operands),
}
_FIND_LOOKS = names(
    """
    -name -iname -path -ipath -wholename -iwholename -regex -iregex -regextype -type -xtype
    -size -mtime -mmin -atime -amin -ctime -cmin -newer -anewer -cnewer -maxdepth -mindepth
    -empty -perm -user -group -uid -gid -nouser -nogroup -links -inum -samefile -lname
    -ilname -readable -writable -executable -print -print0 -printf -ls -prune -quit -depth
    -d -follow -xdev -mount -not -and -or -a -o -true -false -daystart -noleaf -L -H -P
    -fstype -newermt -newerct -newerat -used -warn -nowarn
    """
)
_VERSIONED = names(
    """
    node npm npx yarn pnpm python python3 pip pip3 cargo rustc rustup go java javac ruby gem
    perl php gcc g++ clang make cmake docker kubectl git tsc deno bun uv ruff pytest mypy jq
    rg bash zsh
    """
)
_IP = re.compile(
    r"ip(?: -(?:4|6|br|brief|j|json|o|s|d|c))*(?: (?:a|addr|address|l|link|r|route|n|neigh))"
    r"(?: (?:show|list|ls))?(?: (?:dev )?[a-z0-9]+)?"
)


def only_looks(command: Command) -> bool:
    """Whether `command` leaves everything as it was, its redirections aside."""
    if not command.words:
        return all(is_own(each.name) or is_harmless(each.name) for each in command.assignments)
    if not sets_little(command):
        return False
    name = command.name
    for folder in ("/bin/", "/usr/bin/"):
        name = name.removeprefix(folder)
    arguments = command.words[1:]
    if [each.value for each in arguments] in (["--version"], ["-V"]) and name in _VERSIONED:
        return True
    if name in _WHATEVER:
        return name != "printf" or not (arguments and arguments[0].optionlike)
    if name in _TABLES:
        return _by_table(name, arguments)
    special = _SPECIAL.get(name)
    return special is not None and special(arguments)


def _by_table(name: str, arguments: tuple[Word, ...]) -> bool:
    line = understood(arguments, _TABLES[name])
    if line is None:
        return False
    fits = _OPERANDS.get(name)
    return fits is None or fits(line)


def _none_many(line: Line) -> bool:
    return not any(word.many for word in line.operands)


def _find(arguments: tuple[Word, ...]) -> bool:
    """Anything that begins with `-` is a test or an action; an argument of one may, too."""
    return all(not word.optionlike or _find_looks(word.value) for word in arguments)


def _find_looks(value: str | None) -> bool:
    return value in _FIND_LOOKS or (
        value is not None and bool(re.fullmatch(r"-[0-9]+\w?|-O[0-3]", value))
    )


def _xargs(arguments: tuple[Word, ...]) -> bool:
    """What it runs is judged by itself."""
    return understood(arguments, XARGS) is not None


def _ip(arguments: tuple[Word, ...]) -> bool:
    values = [word.value for word in arguments]
    return None not in values and _IP.fullmatch(" ".join(["ip", *map(str, values)])) is not None


def _command(arguments: tuple[Word, ...]) -> bool:
    return bool(arguments) and arguments[0].value in {"-v", "-V"}


def _bare(arguments: tuple[Word, ...]) -> bool:
    return not arguments


_SPECIAL: dict[str, Looks] = {
    "find": _find,
    "git": git_only_looks,
    "sed": sed_only_looks,
    "awk": awk_only_looks,
    "gawk": awk_only_looks,
    "mawk": awk_only_looks,
    "xargs": _xargs,
    "ip": _ip,
    "command": _command,
    "mount": _bare,
    "times": _bare,
    "umask": _bare,
    "export": _bare,
}
