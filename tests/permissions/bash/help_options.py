"""Which options programs have, by their own `--help`.

`python -m tests.permissions.bash.help_options` writes what the fuzzing uses anew, from the programs
that are installed where it is run; programs that are not keep the options they had.
"""

import json
import re
import subprocess
from pathlib import Path


def words(text: str) -> tuple[str, ...]:
    return tuple(text.split())


OPTIONS_FILE = Path(__file__).parents[2] / "fixtures/commands/options.json"
PROGRAMS = words("""
    apt apt-cache arch awk b2sum base32 base64 basename basenc bc bzcat bzip2 cal cat chmod
    cksum cmp col colrm column comm cp csplit curl cut date dd df diff diff3 diffstat dir
    dirname docker dpkg du egrep env expand expr factor fdfind fgrep file findmnt flock fmt fold
    free gawk getconf getent gpg grep groups gzip head hexdump hostname iconv id infocmp install
    ionice ip join journalctl jq kubectl last less ln locale look ls lsattr lsblk lscpu lsipc
    lsmod lsns lsof make man mawk md5sum mkdir more mountpoint mv namei ncal nice nl nm node
    nohup npm nproc numfmt objdump od openssl paste patch pathchk pgrep pidof pip3 pmap pr
    printenv ps pstree ptx pwdx python3 readelf readlink realpath rev rg rm rmdir sdiff sed seq
    setsid sha1sum sha224sum sha256sum sha384sum sha512sum shellcheck shuf size sleep sort split
    sqlite3 ss stat stdbuf strings sum systemctl tac tail tar tee timedatectl timeout tmux top
    touch tr tree truncate tsort tty ul uname unexpand uniq unzip uptime users vdir vmstat w wc
    wget whatis whereis which who whoami xargs xmllint xxd xz xzcat yes yq zcat zcmp zdiff zgrep
    zip zipinfo zstd zstdcat
""")
GIT_COMMANDS = words("""
    annotate archive bisect blame branch bundle cat-file check-attr check-ignore check-mailmap
    check-ref-format checkout cherry column commit config count-objects describe diff diff-files
    diff-index diff-tree fast-export fetch for-each-ref format-patch fsck gc grep help
    interpret-trailers log ls-files ls-remote ls-tree merge-base merge-file merge-tree mktree
    name-rev notes pack-refs patch-id range-diff reflog remote rerere rev-list rev-parse shortlog
    show show-branch show-index show-ref stash status stripspace submodule symbolic-ref tag
    unpack-file update-index update-ref var verify-commit verify-pack verify-tag version
    whatchanged worktree write-tree
""")
_OPTION = re.compile(
    r"(?<![\w-])(--?(?:\[no-\])?[A-Za-z0-9?@#][\w-]*)(\[=|\[|=|[ ](?=[<A-Z]{1}[A-Za-z<>_|-]*\b))?"
)
_MAX_HELP_SECONDS = 20


def parsed(text: str) -> list[str]:
    """`-a`, `--all`, `-w=`, `--color?`: what takes a value ends in `=`, what may, in `?`."""
    found: dict[str, str] = {}
    for line in text.splitlines():
        if not re.match(r"\s*(?:or: )?\[?-", line):
            continue
        head = re.split(r"\s{2,}(?=[A-Za-z(])", line.strip())[0]
        matches = _OPTION.findall(head)
        marks = [_mark(after) for _, after in matches]
        mark = next((item for item in marks if item), "")
        for name, _ in matches:
            plain = name.replace("[no-]", "")
            if plain not in ("-", "--"):
                found.setdefault(plain, mark)
            if "[no-]" in name:
                found.setdefault(plain.replace("--", "--no-", 1), "")
    return [name + mark for name, mark in sorted(found.items())]


def _mark(after: str) -> str:
    return "?" if after.startswith("[") else "=" if after else ""


def asked(*words: str) -> str:
    try:
        done = subprocess.run(
            words,
            capture_output=True,
            text=True,
            errors="replace",
            stdin=subprocess.DEVNULL,
            timeout=_MAX_HELP_SECONDS,
            check=False,
        )
    except (OSError, subprocess.TimeoutExpired):
        return ""
    return done.stdout + "\n" + done.stderr


def collected() -> dict[str, list[str]]:
    known: dict[str, list[str]] = {}
    if OPTIONS_FILE.exists():
        known = json.loads(OPTIONS_FILE.read_text())
    for name in PROGRAMS:
        if options := parsed(asked(name, "--help")):
            known[name] = options
    for name in GIT_COMMANDS:
        if options := parsed(asked("git", name, "-h")):
            known[f"git {name}"] = options
    return dict(sorted(known.items()))


if __name__ == "__main__":
    lines = [f"{json.dumps(name)}: {json.dumps(each)}" for name, each in collected().items()]
    OPTIONS_FILE.write_text("{\n" + ",\n".join(lines) + "\n}\n")
