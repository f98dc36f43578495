"""The effects of commands: which files they name and change, whether they are destructive or use
the network, and removals that a person must approve in every mode.
"""

from __future__ import annotations

import posixpath
import re
from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass, field

from mainspring.harness.permissions.bash.command import Command, Word, word_set
from mainspring.harness.permissions.bash.file_reads import FileReads, file_reads
from mainspring.harness.permissions.bash.option_tables import parse_arguments
from mainspring.harness.permissions.bash.read_only_commands import (
    ReadOnlyScope,
    read_only_scope,
)
from mainspring.harness.permissions.bash.scripts import sed_effects

# The file commands that the mode acceptEdits may allow, with the options that it may allow.
_EDITING: dict[str, str] = {
    "mkdir": "-pv -m= --parents --verbose --mode=",
    "touch": "-acm -d= -t= --no-create --date=",
    "rm": "-rRfvid --recursive --force --verbose --dir",
    "rmdir": "-pv --parents --verbose",
    "mv": "-fnviuT -t= --force --no-clobber --verbose --target-directory= --no-target-directory",
    "cp": "-rRapfnviudLPHT -t= --recursive --archive --force --no-clobber --verbose --update"
    " --preserve? --target-directory= --no-target-directory --no-dereference",
    "tee": "-a --append",
}
_SED_IN_PLACE = "-nErsz -i? -e= --in-place --expression= --regexp-extended --quiet --silent"
_DESTRUCTIVE = word_set(
    """
    rm rmdir unlink shred dd truncate wipefs fdisk sfdisk parted mkswap kill killall pkill
    xkill shutdown reboot halt poweroff init telinit dropdb userdel groupdel crontab srm
    wipe blkdiscard hdparm chmod chown chgrp mv
    """
)
_DESTRUCTIVE_FORMS = re.compile(
    r"""git\ (?:.*\ )?(?:reset\ .*--hard | clean\ .*- | restore\b | rm\b | filter-branch
      | push\ .*(?:-f\b|--force|--delete|--mirror|\ \+|\ :) | checkout\ (?:.*\ )?(?:--|-f|\.)
      | (?:branch|tag)\ .*-[dD] | stash\ (?:drop|clear) | reflog\ (?:expire|delete)
      | update-ref\ -d | gc\ .*--prune | worktree\ remove)
    | (?:docker|podman)\ (?:.*\ )?(?:rm|rmi|prune|kill|down)\b
    | kubectl\ .*delete | terraform\ .*destroy | helm\ .*(?:uninstall|delete)
    | find\ .*-(?:delete|exec|ok) | rsync\ .*--delete | mkfs
    | systemctl\ .*(?:stop|disable|mask|poweroff|reboot)
    | (?:npm|yarn|cargo|gh)\ .*(?:unpublish|yank|delete)
    | (?:psql|mysql|sqlite3)\ .*(?i:drop|delete|truncate)
    | aws\ .*(?:rm|delete|terminate) | apt(?:-get)?\ .*(?:remove|purge)""",
    re.VERBOSE | re.DOTALL,
)
_NETWORK = word_set(
    """
    curl wget ssh scp sftp ftp telnet nc ncat netcat socat rsync ping ping6 traceroute dig
    nslookup host whois gh aws gcloud az kubectl helm docker podman pip pip3 npm npx yarn
    pnpm bun uv cargo gem go apt apt-get yum dnf apk brew terraform ansible http https
    aria2c openssl rclone mosh
    """
)
_GIT_NETWORK = word_set("fetch pull push clone ls-remote submodule remote")
_TURN_BACK = re.compile(r"/+\.\.(?=/|$)")
_MAX_FOLDERS = 8  # that `cd` may lead to; more are unknown


@dataclass(slots=True)
class Effects:
    """The effects of all commands of a text together."""

    reads: list[str] = field(default_factory=list[str])
    writes: list[str] = field(default_factory=list[str])
    trees: list[str] = field(default_factory=list[str])
    """Folders that are read recursively."""
    guesses: list[str] = field(default_factory=list[str])
    """Words that may be files."""
    opaque: bool = False
    """A word whose value only bash knows may be a file."""
    hides_reads: bool = False
    """The same for a command that is known to read."""
    reads_anything: bool = False
    """It is unknown which files one of the programs reads."""
    shows_history: bool = False
    is_lost: bool = False
    """The folder of the shell is unknown."""
    folders: list[str] = field(default_factory=lambda: [""])
    """The folders the shell may be in: each `cd` may affect later commands or not."""

    def add(self, words: Iterable[Word], *, write: bool) -> None:
        for word in words:
            if word.is_process:
                continue
            if not _is_literal(word):
                self.opaque = True
            else:
                places = self.writes if write else self.reads
                places += self.places(word.pathlike, write=write)
            if _is_of_process(word.pathlike):
                self.opaque = self.hides_reads = True

    def places(self, path: str, *, write: bool = False) -> list[str]:
        """The paths that a word names, from any folder the shell may be in. `-` is stdin for
        readers but a file for writers. For `a/../b`, `mkdir -p` also creates `a`."""
        if not path or (path == "-" and not write) or "://" in path:
            return []
        paths = [path]
        if write:
            paths += [path[: turn.start()] for turn in _TURN_BACK.finditer(path) if turn.start()]
        if path.startswith(("/", "~")):
            return paths
        return [posixpath.join(folder, item) for folder in self.folders for item in paths]

    def enter(self, target: Word, *, has_options: bool) -> None:
        if target.value is None or has_options or len(self.folders) > _MAX_FOLDERS:
            self.opaque = self.hides_reads = self.is_lost = True
            return
        self.folders += [posixpath.join(folder, target.value) for folder in self.folders]


def _is_literal(word: Word) -> bool:
    """Whether the text shows the value, as for `~/x`, but not for `~+` and `~user`."""
    path = word.pathlike
    is_home = path == "~" or path.startswith("~/")
    return word.value is not None or (is_home and not word.many and "$" not in path)


def _is_of_process(path: str) -> bool:
    """Whether a path contains links that lead elsewhere for each process."""
    plain = re.sub("^/+", "/", posixpath.normpath(path))
    is_device = path.startswith("/") and "/dev/" in path
    return plain.startswith("/proc/") or (is_device and ".." in path)


def record_effects(command: Command, effects: Effects, scope: ReadOnlyScope) -> None:
    """Add the files that `command` names. `scope`: see `read_only_scope`."""
    for redirect in command.redirects:
        if redirect.access != "none":
            effects.add([redirect.target], write=redirect.access == "write")
            effects.hides_reads |= redirect.access == "read" and not _is_literal(redirect.target)
    if not command.words:
        return
    reads = file_reads(command)
    edited = edited_files(command) if scope == "nowhere" else None
    effects.add(reads.files if edited is None else edited, write=scope == "nowhere")
    _record_reads(reads, effects)
    if (target := command.cd_target) is not None:
        effects.enter(target, has_options=len(command.words) > 2)


def _record_reads(reads: FileReads, effects: Effects) -> None:
    effects.reads_anything |= not reads.is_known
    effects.shows_history |= reads.shows_history
    read_words = [*reads.files, *reads.trees] if reads.is_known else []
    hides = reads.is_dynamic or not all(_is_literal(word) or word.is_process for word in read_words)
    effects.hides_reads |= hides
    effects.opaque |= hides
    for words, places in ((reads.trees, effects.trees), (reads.guesses, effects.guesses)):
        for word in words:
            places.extend(effects.places(word.pathlike) if word.value is not None else ())


def edited_files(command: Command) -> list[Word] | None:
    """The operands of a plain file command; `None` for other commands and options."""
    name, arguments = basename(command), command.words[1:]
    if name == "sed":
        return _sed_in_place_files(arguments)
    line = parse_arguments(arguments, _EDITING[name]) if name in _EDITING else None
    return None if line is None else [*line.operands, *line.values("-t", "--target-directory")]


def _sed_in_place_files(arguments: tuple[Word, ...]) -> list[Word] | None:
    line = parse_arguments(arguments, _SED_IN_PLACE)
    if line is None or not line.has("-i", "--in-place"):
        return None
    if any(sed_effect.value not in {"-i", "--in-place"} for sed_effect in sed_effects(arguments)):
        return None  # its script does more than edit
    if any("/" in item.pathlike or "*" in item.pathlike for item in line.values("-i")):
        return None  # it writes backups elsewhere
    return line.operands[0 if line.values("-e", "--expression") else 1 :]


def basename(command: Command) -> str:
    return command.name.rsplit("/", 1)[-1]


def is_destructive(command: Command) -> bool:
    name = basename(command)
    text = " ".join([name, *(word.pathlike for word in command.words[1:])])
    return name in _DESTRUCTIVE or _DESTRUCTIVE_FORMS.match(text) is not None


def uses_network(command: Command) -> bool:
    name = basename(command)
    if name == "git":
        return any(word.value in _GIT_NETWORK for word in command.words[1:])
    targets = [redirect.target.pathlike for redirect in command.redirects]
    sockets = any("/dev/tcp/" in target or "/dev/udp/" in target for target in targets)
    return name in _NETWORK or sockets


_INTERPRETERS = word_set(
    """
    python python2 python3 pypy3 node nodejs deno bun ruby perl php lua julia Rscript java swift
    bash sh dash zsh ksh fish source . awk gawk mawk make just cmake ninja npm npx pnpm yarn uv uvx
    pip pip3 pytest tox go cargo rustc gcc g++ clang mvn gradle dotnet docker podman git gh cd pushd
    """
)
_VERSION = "0123456789."
_COPIERS = word_set("cp install ln scp rsync")
"""Commands that write to their last word, or into it under the names of the other words."""


def written_words(commands: Sequence[Command]) -> tuple[str, ...]:
    """The words that commands may write to, if literal; the sandbox has to catch the others."""
    return tuple(dict.fromkeys(word for command in commands for word in _written_by(command)))


def _written_by(command: Command) -> Iterator[str]:
    for redirect in command.redirects:
        if redirect.access == "write" and redirect.target.value:
            yield redirect.target.value
    name = basename(command)
    if not command.words or name.rstrip(_VERSION) in _INTERPRETERS or name in _INTERPRETERS:
        return
    if read_only_scope(command) == "anywhere":
        return
    words = [value for word in command.words[1:] for value in _values(word)]
    if name not in _COPIERS or any(word.startswith("-t") for word in words) or len(words) < 2:
        yield from words
        return
    *sources, target = words
    yield target
    yield from (posixpath.join(target, posixpath.basename(word.rstrip("/"))) for word in sources)


def _values(word: Word) -> Iterator[str]:
    """A word, and its part after `=`."""
    if word.value:
        yield word.value
        _, _, after = word.value.partition("=")
        if after:
            yield after


REMOVING = frozenset({"rm", "rmdir", "unlink", "shred", "srm"})
# Critical with everything below them.
_SYSTEM = word_set(
    """
    bin boot dev etc lib lib32 lib64 libx32 proc sbin sys usr System Library Applications
    """
)
# Critical with their direct entries: /home/someone, /var/lib.
_SHARED = word_set("home Users root opt var srv mnt media run Volumes private")
_LEADING_EXPANSION = re.compile(r"^(?:\$\{[^}]*\}|\$\(.*\)|`.*`|\$[A-Za-z_]\w*|\$.)", re.DOTALL)
_HOME = re.compile(r"^(?:\$HOME|\$\{HOME[^}]*\}|~[\w+-]*)(?=/|$)")
_WILD_END = re.compile(r"(?:/?(?:\*+|\.\*|\.?\[[^\]]*\]\*?|\{[^}]*\}|\?+|(?<![^/])\.))+$")


def removes_critical(commands: Sequence[Command], roots: Collection[str]) -> bool:
    """Whether commands remove a critical path. Relative paths start at the last literal `cd`."""
    folder = ""
    for command in commands:
        name = basename(command)
        if (target := command.cd_target) is not None:
            folder = target.pathlike
        elif any(
            is_critical(word, folder, roots) for word in _removal_operands(name, command.words[1:])
        ) or (name in REMOVING and _is_recursive(command.words) and _is_unknown(command.words[1:])):
            return True
    return False


def _removal_operands(name: str, arguments: Sequence[Word]) -> list[Word]:
    if name in REMOVING:
        return [word for word in arguments if not (word.value or "").startswith("-")]
    values = {word.value for word in arguments}
    if name == "find" and values & {"-delete", "-exec", "-execdir"}:
        names = {"~", "..", "$HOME"}
        return [word for word in arguments if "/" in word.pathlike or word.pathlike in names][:1]
    return []


def _is_recursive(words: Sequence[Word]) -> bool:
    return any(
        re.fullmatch(r"-[a-zA-Z]*[rR][a-zA-Z]*|--r[a-z]*", word.value or "") is not None
        for word in words
    )


def _is_unknown(operands: Sequence[Word]) -> bool:
    """Whether an operand begins with something that only bash, or another program, knows."""
    return any(
        word.value is None and (not word.source or _LEADING_EXPANSION.match(word.pathlike))
        for word in operands
    )


def is_critical(word: Word, folder: str, roots: Collection[str]) -> bool:
    path = _HOME.sub("~", word.pathlike)
    if path != word.pathlike and path == "~":
        return True
    if word.value is None and not path.startswith("~"):
        unset = _LEADING_EXPANSION.sub("", path)
        if unset and unset != path:
            path = unset  # if the variable is not set, this remains
    wild = word.value is None
    stem = _WILD_END.sub("", path) if wild else path
    if not stem and path and not path.startswith("/"):
        stem = "."
    return _is_critical_path(posixpath.join(_HOME.sub("~", folder), stem or "/"), roots)


def _is_critical_path(path: str, roots: Collection[str]) -> bool:
    plain = posixpath.normpath(path)
    plain = "/" + plain.lstrip("/") if plain.startswith("/") else plain
    if plain in {"/", "~", "."} or set(plain.split("/")) == {".."}:
        return True
    if any(f"{root}/".startswith(plain.rstrip("/") + "/") for root in roots):
        return True
    parts = plain.split("/")
    if parts[0]:
        return False
    return parts[1] in _SYSTEM or (parts[1] in _SHARED and len(parts) <= 3) or parts[1:] == ["tmp"]


def may_remove_critical(text: str, roots: Collection[str]) -> bool:
    """The same check for a text that cannot be parsed; in doubt, the answer is yes."""
    bare = re.sub(r"\$\{?IFS\}?", " ", re.sub(r"[\\'\"]", "", text))
    tokens = re.split(r"[\s,;&|(){}<>`=]+", bare)
    if not any(token.rsplit("/", 1)[-1] in REMOVING for token in tokens):
        return False
    return any(
        token.startswith(("$", "~", "*"))
        or _is_critical_path(_WILD_END.sub("", token) or "/", roots)
        for token in tokens
        if token
    )
