"""What commands do beyond looking: change files, destroy, reach out. And which paths they name."""

from __future__ import annotations

import posixpath
import re
from collections.abc import Iterable
from dataclasses import dataclass, field

from mainspring.harness.permissions.bash.command import Command, Word
from mainspring.harness.permissions.bash.names import names
from mainspring.harness.permissions.bash.options import understood
from mainspring.harness.permissions.bash.scripts import sed_effects

# The file commands that the mode acceptEdits may pass, with the options it may pass them with.
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
_DESTROYING = names(
    """
    rm rmdir unlink shred dd truncate wipefs fdisk sfdisk parted mkswap kill killall pkill
    xkill shutdown reboot halt poweroff init telinit dropdb userdel groupdel crontab srm
    wipe blkdiscard hdparm chmod chown chgrp mv
    """
)
_DESTROYING_FORMS = re.compile(
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
_NETWORK = names(
    """
    curl wget ssh scp sftp ftp telnet nc ncat netcat socat rsync ping ping6 traceroute dig
    nslookup host whois gh aws gcloud az kubectl helm docker podman pip pip3 npm npx yarn
    pnpm bun uv cargo gem go apt apt-get yum dnf apk brew terraform ansible http https
    aria2c openssl rclone mosh
    """
)
_GIT_NETWORK = names("fetch pull push clone ls-remote submodule remote")
# The first operand is a pattern, a script or a text, not a file.
_PATTERN_FIRST = names("grep egrep fgrep rg sed awk gawk mawk jq fd")
_NO_FILES = names(
    """
    echo printf true false : seq expr sleep test [[ uname id whoami date pgrep ps kill tr
    exit return break continue set shift wait read local type which command export
    """
)
_FILES_ONLY = names(
    """
    cat head tail wc ls stat file du df cd nl tac rev cut sort uniq diff cmp comm join paste
    md5sum sha1sum sha256sum sha512sum cksum od xxd hexdump strings readlink realpath
    basename dirname tree find less more source . chmod chown ln truncate shred unlink dd
    tar zip unzip gzip gunzip install
    """
)
_MAX_FOLDERS = 8
_EMBEDDED_PATH = re.compile(r"(?:~|\.{1,2})?/.*|~.*")


@dataclass(slots=True)
class Effects:
    """Of all commands of a text together."""

    reads: list[str] = field(default_factory=list[str])
    writes: list[str] = field(default_factory=list[str])
    opaque: bool = False
    folders: list[str] = field(default_factory=lambda: [""])
    """Where the shell may stand: each `cd` may count for what follows it, or not."""

    def add(self, words: Iterable[Word], *, write: bool) -> None:
        for word in words:
            path = word.pathlike
            if word.is_process:
                continue
            if word.value is None and (word.many or not path.startswith("~") or "$" in path):
                self.opaque = True
            elif path and path != "-" and "://" not in path:
                relative = not path.startswith(("/", "~"))
                places = (
                    [posixpath.join(each, path) for each in self.folders] if relative else [path]
                )
                (self.writes if write else self.reads).extend(places)

    def enter(self, arguments: tuple[Word, ...]) -> None:
        target = arguments[0].value if len(arguments) == 1 else None
        if target is None or target.startswith("-") or len(self.folders) > _MAX_FOLDERS:
            self.opaque = True
            return
        self.folders.extend([posixpath.join(each, target) for each in self.folders])


def note(command: Command, effects: Effects) -> None:
    """Add the files that `command` names."""
    for redirect in command.redirects:
        if redirect.access != "none":
            effects.add([redirect.target], write=redirect.access == "write")
    if not command.words:
        return
    edited = edited_files(command)
    if edited is not None:
        effects.add(edited, write=True)
    else:
        effects.add(_named_files(command), write=not _is_looker(command))
    if command.name == "cd":
        effects.enter(command.words[1:])


def edited_files(command: Command) -> list[Word] | None:
    """The operands of a plain file command; None if it is none, or has other options."""
    name, arguments = basename(command), command.words[1:]
    if name == "sed":
        return _edited_in_place(arguments)
    line = understood(arguments, _EDITING[name]) if name in _EDITING else None
    return None if line is None else [*line.operands, *line.values("-t", "--target-directory")]


def _edited_in_place(arguments: tuple[Word, ...]) -> list[Word] | None:
    line = understood(arguments, _SED_IN_PLACE)
    if line is None or not line.has("-i", "--in-place"):
        return None
    if any(each.value not in {"-i", "--in-place"} for each in sed_effects(arguments)):
        return None  # its script does more
    if any("/" in each.pathlike or "*" in each.pathlike for each in line.values("-i")):
        return None  # the copies it keeps go elsewhere
    return line.operands[0 if line.values("-e", "--expression") else 1 :]


def basename(command: Command) -> str:
    return command.name.rsplit("/", 1)[-1]


def destroys(command: Command) -> bool:
    name = basename(command)
    spelled = " ".join([name, *(word.pathlike for word in command.words[1:])])
    return name in _DESTROYING or _DESTROYING_FORMS.match(spelled) is not None


def reaches_out(command: Command) -> bool:
    name = basename(command)
    if name == "git":
        return any(word.value in _GIT_NETWORK for word in command.words[1:])
    sockets = any(
        "/dev/tcp/" in r.target.pathlike or "/dev/udp/" in r.target.pathlike
        for r in command.redirects
    )
    return name in _NETWORK or sockets


def _is_looker(command: Command) -> bool:
    name = basename(command)
    return (
        name in _PATTERN_FIRST
        or name in _NO_FILES
        or name in _FILES_ONLY - {"dd", "truncate", "shred"}
    )


def _named_files(command: Command) -> list[Word]:
    """As far as the text tells: of unknown commands, what looks like a path."""
    name, arguments = basename(command), list(command.words[1:])
    if name in _NO_FILES:
        return []
    operands = [word for word in arguments if not (word.value or "").startswith("-")]
    embedded = [_embedded(word) for word in arguments if (word.value or "").startswith("-")]
    inside = [word for word in embedded if word is not None]
    if name in _PATTERN_FIRST:
        given = any(
            (word.value or "").startswith(("-e", "-f", "--regexp", "--file")) for word in arguments
        )
        return [*operands[0 if given else 1 :], *inside]
    if name not in _FILES_ONLY:
        operands = [word for word in operands if _looks_like_path(word)]
    return [*operands, *inside]


def _embedded(word: Word) -> Word | None:
    """The path in `--file=/etc/passwd` or `-f../x`."""
    value = word.value or ""
    after = value.partition("=")[2]
    found = _EMBEDDED_PATH.search(after or value)
    if found is None:
        return None
    return Word(found[0], found[0], found[0], optionlike=False, many=False)


def _looks_like_path(word: Word) -> bool:
    return word.value is None or "/" in word.value or word.value.startswith(("~", "."))
