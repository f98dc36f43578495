"""Options that let an ordinary program run other programs, load code or write files. A rule with
a wildcard does not cover them unless it names them.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from itertools import pairwise

from mainspring.harness.permissions.bash.command import Command, Word, word_set
from mainspring.harness.permissions.bash.effects import basename
from mainspring.harness.permissions.bash.scripts import is_awk_read_only, sed_effects
from mainspring.harness.permissions.bash.wrappers import STDIN_WORD

# A long option also matches by any prefix; a short one also inside a bundle.
_EDITOR = "-c -S -u -s -q -w -W -l --cmd --eval -f --load --startuptime"
_OPTIONS: dict[str, str] = {
    "git": "--config-env --config --exec-path --git-dir --work-tree --output --ext-diff --textconv"
    " --open-files-in-pager --upload-pack --receive-pack --exec --template --edit-description"
    " --show-signature --paginate",
    "sort": "-o --output --compress-program -T --temporary-directory",
    "find": "-exec -execdir -ok -okdir -delete -fprint -fprint0 -fprintf -fls -files0-from",
    "fd": "-x -X --exec --exec-batch",
    "rg": "--pre --hostname-bin -z --search-zip",
    "tree": "-o -R",
    "tar": "--to-command --checkpoint-action --use-compress-program -I --info-script -F"
    " --rsh-command --new-volume-script --rmt-command --remove-files --absolute-names -P",
    "rsync": "-e --rsh --rsync-path --delete --delete-before --delete-after --delete-during"
    " --delete-excluded --remove-source-files --files-from --daemon --config --log-file"
    " --write-batch",
    "scp": "-o -S -F -D",
    "sftp": "-o -S -F -b -D",
    "man": "-P --pager -H --html -C --config-file -X --gxditview -T",
    "less": "-o -O --log-file --LOG-FILE -k --lesskey-file --lesskey-src -t --tag",
    "vim": _EDITOR,
    "vi": _EDITOR,
    "nvim": _EDITOR,
    "view": _EDITOR,
    "ex": _EDITOR,
    "emacs": _EDITOR,
    "python": "-c -",
    "python3": "-c -",
    "node": "-e -p --eval --print -r --require --import --loader --experimental-loader -",
    "deno": "-A --allow-all --allow-run",
    "perl": "-e -E -M -I -i -x -",
    "ruby": "-e -r -I -i -x -",
    "php": "-r -B -R -d -",
    "lua": "-e -l -",
    "curl": "-o -O -J -K -T -c -D -F --output --output-dir --remote-name --remote-name-all --config"
    " --upload-file --cookie-jar --dump-header --trace --trace-ascii --stderr --libcurl --etag-save"
    " --hsts --alt-svc --form --engine --remote-header-name",
    "wget": "-O -o -a -P -i -e --output-document --output-file --append-output --directory-prefix"
    " --post-file --body-file --execute --use-askpass --config --input-file --save-cookies"
    " --warc-file",
    "npm": "--script-shell --node-options --prefix -C --userconfig --globalconfig --init-module"
    " --shell",
    "yarn": "--cwd --use-yarnrc --script-shell",
    "pnpm": "-C --dir --script-shell --config.script-shell",
    "make": "--eval -f --file --makefile -C --directory -I --include-dir -E",
    "cargo": "--config -Z --manifest-path -C",
    "go": "-exec -toolexec -vettool -overlay -modfile -o -C",
    "gcc": "-wrapper -B -fplugin -specs -o",
    "date": "-s --set",
    "hostname": "-F --file -b",
    "file": "-C --compile -m --magic-file",
    "xxd": "-r -revert",
    "split": "--filter",
    "ss": "-K --kill -D --diag",
    "dmesg": "-C -c --clear --read-clear -n -D -E",
    "journalctl": "--vacuum-size --vacuum-time --vacuum-files --rotate --flush --relinquish-var"
    " --setup-keys",
    "sysctl": "-w --write -p --load --system",
    "tcpdump": "-z -w -r",
    "ip": "-b -batch -n -netns",
    "zip": "-T -TT --unzip-command -m",
    "base64": "-o",
    "env": "-S --split-string",
    "dig": "-f",
    "gh": "--body-file",
    "docker": "--privileged -v --volume --mount --pid --cap-add --device -H --host --config",
    "pytest": "-c --rootdir --confcutdir --pyargs",
    "crontab": "-r -e",
    "unzip": "-o -d",
}
_IP_CHANGES = word_set(
    """
    set add del delete flush change replace append exec attach prepend
    """
)
_WORDS: dict[str, Callable[[str], bool]] = {
    "ip": lambda value: value in _IP_CHANGES,
    "less": lambda value: value.startswith("+"),
    "more": lambda value: value.startswith("+"),
    "man": lambda value: value.startswith("+"),
    "vim": lambda value: value.startswith("+"),
    "vi": lambda value: value.startswith("+"),
    "nvim": lambda value: value.startswith("+"),
    "view": lambda value: value.startswith("+"),
    "make": lambda value: re.match(r"[A-Z_]+\s*[:+?!]*=", value) is not None,
    "sysctl": lambda value: "=" in value,
    "git": lambda value: value in {"foreach", "run"} or "::" in value,
    "sqlite3": lambda value: value.startswith(".") or "load_extension" in value or "\n." in value,
    "psql": lambda value: "\\" in value or "program" in value.lower(),
    "gcc": lambda value: value.startswith("@"),
}
_AWKS = frozenset({"awk", "gawk", "mawk"})
_GIT_LETTERS = {"clone": "cu", "ls-remote": "u", "grep": "O", "rebase": "x"}
_MESSAGE_COMMANDS = frozenset({"commit", "tag", "merge", "notes", "stash"})
_MESSAGES = frozenset({"-m", "-am", "--message", "--title", "--body"})
_INTERPRETERS = word_set("python python3 node deno perl ruby php lua")
_SINGLE_DASH = frozenset({"find", "go", "gcc", "ip", "xxd", "vim"})
# They write to an operand: `uniq in out`, `date 01020304`, `hostname name`.
_MAX_OPERANDS = {"uniq": 1, "xxd": 1, "hostname": 0}


def risky_words(command: Command) -> Iterator[Word]:
    """The words that make, or may make, `command` do more than it normally does."""
    name, arguments = basename(command), command.words[1:]
    if name == "sed":
        yield from sed_effects(arguments)
    elif name in _AWKS:
        yield from () if is_awk_read_only(arguments) else arguments
    elif name in _INTERPRETERS and _runs_file(arguments):
        return  # the other words are arguments of the script
    elif name in _OPTIONS or name in _WORDS:
        letters = _letters(name, arguments)
        messages = _messages(name, arguments)
        for word in arguments:
            if word not in messages and _is_escape(name, word, letters):
                yield word
    yield from _written_operands(name, arguments)


def _runs_file(arguments: tuple[Word, ...]) -> bool:
    return bool(arguments) and (not arguments[0].optionlike or arguments[0].value == "-m")


def _messages(name: str, arguments: tuple[Word, ...]) -> list[Word]:
    """Messages such as `git commit -m "$(cat <<E ...)"`: one word, never an option."""
    first = (arguments or (STDIN_WORD,))[0].value
    has_message = name == "gh" or (name == "git" and first in _MESSAGE_COMMANDS)
    if not has_message:
        return []
    pairs = pairwise(arguments)
    return [word for before, word in pairs if before.value in _MESSAGES and not word.many]


def _letters(name: str, arguments: tuple[Word, ...]) -> frozenset[str]:
    """Short options to look for. git's own come before the subcommand, which has others."""
    if name == "git":
        first = (arguments or (STDIN_WORD,))[0].value or "-"
        return frozenset("cC" if first.startswith("-") else _GIT_LETTERS.get(first, ""))
    risky = _OPTIONS.get(name, "").split()
    return frozenset(item[1] for item in risky if len(item) == 2)


def _is_escape(name: str, word: Word, letters: frozenset[str]) -> bool:
    value = word.value
    if value is None:
        only_globs = word.source != "" and not any(char in word.source for char in "$`{")
        return word.optionlike and not (only_globs and name in {"git", "npm", "docker", "gh"})
    if name in _WORDS and _WORDS[name](value):
        return True
    return value.startswith("-") and _is_risky(name, value, letters)


def _is_risky(name: str, value: str, letters: frozenset[str]) -> bool:
    risky = _OPTIONS.get(name, "").split()
    option = value.partition("=")[0]
    if option in risky:
        return True
    if option.startswith("--"):
        return len(option) > 2 and any(item.startswith(option) for item in risky)
    return name not in _SINGLE_DASH and not letters.isdisjoint(_bundle(value))


def _bundle(value: str) -> str:
    """The letters of a bundle: `-lo` is two options; in `-ofile`, the others may be a value."""
    letters = re.match(r"-([A-Za-z]*)", value)
    return letters[1] if letters else ""


def _written_operands(name: str, arguments: tuple[Word, ...]) -> Iterator[Word]:
    operands = [word for word in arguments if not word.optionlike]
    if name == "tar":
        yield from (word for word in arguments[:1] if set("IFP") & set(word.value or "I"))
    elif name in _INTERPRETERS and not arguments:
        yield STDIN_WORD  # it reads its code from standard input
    elif name == "date":
        yield from (word for word in operands if not (word.value or "").startswith("+"))
    elif name in _MAX_OPERANDS:
        yield from operands[_MAX_OPERANDS[name] :]
