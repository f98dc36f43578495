"""Suggests the narrow Bash rule that "always allow" adds."""

from __future__ import annotations

import re

from mainspring.harness.permissions.bash.command import Command, UnclearCommands, word_set
from mainspring.harness.permissions.bash.command_analysis import is_read_only
from mainspring.harness.permissions.bash.command_parser import parse_commands
from mainspring.harness.permissions.bash.effects import basename, is_destructive
from mainspring.harness.permissions.bash.rule_matching import is_covered
from mainspring.harness.permissions.bash.wrappers import SHELLS, is_opaque_wrapper

# What they do depends on their arguments alone: no prefix of them is safe.
_NEVER = SHELLS | word_set(
    """
    rm rmdir unlink shred dd mv kill killall pkill chmod chown chgrp eval exec env xargs
    find trap source . curl wget nc ncat socat scp sftp rsync tee cp ln truncate crontab
    mkfs mount umount systemctl service export declare typeset readonly unset alias vim vi
    nvim emacs ed awk gawk mawk sed perl ruby php lua osascript tclsh gdb iptables ip sysctl
    useradd usermod userdel passwd visudo at
    """
)
_INTERPRETERS = word_set("python python3 node deno bun ts-node tsx pypy pypy3")
# Their second word may take a third with it.
_PAIRS = frozenset(
    {(tool, "run") for tool in word_set("npm pnpm yarn bun uv poetry pipenv cargo gh")}
    | {("gh", item) for item in word_set("pr issue repo")}
    | {("docker", "compose"), ("bundle", "exec"), ("npx", "-y"), ("aws", "s3")}
)
_EXACT_GIT_COMMANDS = word_set(
    "push reset checkout clean branch stash restore rebase config remote"
)
# Harmless and harmful forms of the same subcommand: only the very text is suggested.
_EXACT = frozenset(
    {("git", item) for item in _EXACT_GIT_COMMANDS}
    | {(tool, item) for tool in ("docker", "podman") for item in word_set("run exec system volume")}
    | {("kubectl", item) for item in word_set("exec apply delete run")}
)
_SUBCOMMAND = re.compile(r"[a-z][a-z0-9:_-]*")


def suggest_rule(text: str) -> str | None:
    """The narrowest rule content that allows `text` and its like; None if none would be safe.

    A text of several commands has a suggestion only if all but one of them are read-only.
    """
    found = parse_commands(text)
    if isinstance(found, UnclearCommands):
        return None
    suggested = {_rule(command) for command in found.commands if not is_read_only(command)}
    if len(suggested) != 1:
        return None
    rule = suggested.pop()
    return rule if rule is not None and is_covered([rule], text) else None


def _rule(command: Command) -> str | None:
    values = [word.value for word in command.words]
    if not values or command.assignments or is_opaque_wrapper(command) or is_destructive(command):
        return None
    name = basename(command)
    if name in _NEVER or any(value is not None and "*" in value for value in values[:3]):
        return None
    if name in _INTERPRETERS:
        return _script(values)
    known = [value or "" for value in values[:3]]
    if tuple(known[:2]) in _EXACT:
        return None if None in values else command.text
    return f"{' '.join(known[: _prefix_length(known)])} *"


def _prefix_length(words: list[str]) -> int:
    if tuple(words[:2]) in _PAIRS and len(words) > 2 and re.fullmatch(r"[\w:.-]+", words[2]):
        return 3
    return 2 if len(words) > 1 and _SUBCOMMAND.fullmatch(words[1]) else 1


def _script(values: list[str | None]) -> str | None:
    """`python tool.py` and `python -m pytest`; never code on the command line."""
    if len(values) > 2 and values[1] == "-m" and values[2]:
        return f"{values[0]} -m {values[2]} *"
    script = values[1] if len(values) > 1 else None
    return None if script is None or script.startswith("-") else f"{values[0]} {script} *"
