"""The rule that "always allow" would add."""

from __future__ import annotations

import re

from mainspring.harness.permissions.bash.command import Command, Unclear
from mainspring.harness.permissions.bash.effects import basename, destroys
from mainspring.harness.permissions.bash.judge import looks
from mainspring.harness.permissions.bash.names import names
from mainspring.harness.permissions.bash.rules import covered
from mainspring.harness.permissions.bash.split import split
from mainspring.harness.permissions.bash.wrappers import SHELLS, is_vague

# What they do depends on their arguments alone: no prefix of them is safe.
_NEVER = SHELLS | names(
    """
    rm rmdir unlink shred dd mv kill killall pkill chmod chown chgrp eval exec env xargs
    find trap source . curl wget nc ncat socat scp sftp rsync tee cp ln truncate crontab
    mkfs mount umount systemctl service export declare typeset readonly unset alias vim vi
    nvim emacs ed awk gawk mawk sed perl ruby php lua osascript tclsh gdb iptables ip sysctl
    useradd usermod userdel passwd visudo at
    """
)
_INTERPRETERS = names("python python3 node deno bun ts-node tsx pypy pypy3")
# Their second word may take a third with it.
_PAIRS = frozenset(
    {(tool, "run") for tool in names("npm pnpm yarn bun uv poetry pipenv cargo gh")}
    | {("gh", each) for each in names("pr issue repo")}
    | {("docker", "compose"), ("bundle", "exec"), ("npx", "-y"), ("aws", "s3")}
)
_BOTH_WAYS = names("push reset checkout clean branch stash restore rebase config remote")
# Harmless and harmful forms of the same subcommand: only the very text is suggested.
_EXACT = frozenset(
    {("git", each) for each in _BOTH_WAYS}
    | {(tool, each) for tool in ("docker", "podman") for each in names("run exec system volume")}
    | {("kubectl", each) for each in names("exec apply delete run")}
)
_SUBCOMMAND = re.compile(r"[a-z][a-z0-9:_-]*")


def suggest(text: str) -> str | None:
    """The narrowest rule content that allows `text` and its like; None if none would be safe.

    A text of several commands has a suggestion only if all but one of them are read-only.
    """
    found = split(text)
    if isinstance(found, Unclear):
        return None
    suggested = {_rule(each) for each in found.commands if not looks(each)}
    if len(suggested) != 1:
        return None
    rule = suggested.pop()
    return rule if rule is not None and covered([rule], text) else None


def _rule(command: Command) -> str | None:
    values = [word.value for word in command.words]
    if not values or command.assignments or is_vague(command) or destroys(command):
        return None
    name = basename(command)
    if name in _NEVER or any(value is not None and "*" in value for value in values[:3]):
        return None
    if name in _INTERPRETERS:
        return _script(values)
    known = [value or "" for value in values[:3]]
    if tuple(known[:2]) in _EXACT:
        return None if None in values else command.text
    return f"{' '.join(known[: _kept(known)])} *"


def _kept(words: list[str]) -> int:
    if tuple(words[:2]) in _PAIRS and len(words) > 2 and re.fullmatch(r"[\w:.-]+", words[2]):
        return 3
    return 2 if len(words) > 1 and _SUBCOMMAND.fullmatch(words[1]) else 1


def _script(values: list[str | None]) -> str | None:
    """`python tool.py` and `python -m pytest`; never code on the command line."""
    if len(values) > 2 and values[1] == "-m" and values[2]:
        return f"{values[0]} -m {values[2]} *"
    script = values[1] if len(values) > 1 else None
    return None if script is None or script.startswith("-") else f"{values[0]} {script} *"
