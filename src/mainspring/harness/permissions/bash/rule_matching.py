"""Matches the content of a Bash rule, such as `npm test *`, against a shell text, and suggests
the narrow rule that "always allow" adds.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterator, Sequence
from typing import Literal, TypeAlias

from mainspring.harness.permissions.bash.command import Command, UnclearCommands, Word, word_set
from mainspring.harness.permissions.bash.command_analysis import (
    is_read_only,
    opens_connection,
    runs_git_elsewhere,
)
from mainspring.harness.permissions.bash.command_parser import parse_commands
from mainspring.harness.permissions.bash.effects import basename, is_destructive
from mainspring.harness.permissions.bash.hazards import is_harmless
from mainspring.harness.permissions.bash.lexer import decode_ansi_c
from mainspring.harness.permissions.bash.risky_options import risky_words
from mainspring.harness.permissions.bash.wrappers import SHELLS, is_opaque_wrapper
from mainspring.retrieval.globs import matches_parts

Behavior: TypeAlias = Literal["allow", "ask", "deny"]

_ANSI_C = re.compile(r"\$'((?:[^'\\]|\\.)*)'", re.DOTALL)
_EXPANSION = re.compile(r"[$`*?\[{~]")
_MAX_SKIPPED = 8  # options before the word that a rule names


def rule_matches(pattern: str, text: str, *, behavior: Behavior) -> bool:
    """Whether a rule covers `text`.

    allow: every command in it matches `pattern` (`is_covered` combines rules). ask, deny: any of
    them does, whatever quoting, wrapper, `VAR=` prefix or path hides it; a text that cannot be
    parsed is searched for the words of the rule.
    """
    parsed = parse_commands(text)
    if behavior != "allow":
        by_command = any(_matches_any_spelling(pattern, command) for command in parsed.commands)
        return by_command or (isinstance(parsed, UnclearCommands) and _mentions(pattern, text))
    if isinstance(parsed, UnclearCommands):
        return False
    if _is_same(pattern, text):
        return True
    commands = [item for item in parsed.commands if item.words or not is_read_only(item)]
    return bool(commands) and all(_allows(pattern, command) for command in commands)


def is_covered(patterns: Sequence[str], text: str, *, foreign_git: bool | None = None) -> bool:
    """Whether every command of `text` is allowed by one of `patterns`, or is read-only.

    `foreign_git`: see `CommandAnalysis`; `None`: decide by the text alone.
    """
    parsed = parse_commands(text)
    if isinstance(parsed, UnclearCommands):
        return False
    if any(_is_same(pattern, text) for pattern in patterns):
        return True
    is_foreign = runs_git_elsewhere(parsed.commands) if foreign_git is None else foreign_git
    return all(
        any(
            _allows(pattern, command)
            for pattern in _applicable_patterns(patterns, command, is_foreign)
        )
        for command in parsed.commands
        if not is_read_only(command) or (is_foreign and basename(command) == "git")
    )


def _applicable_patterns(
    patterns: Sequence[str], command: Command, is_foreign: bool
) -> Sequence[str]:
    """Elsewhere than in the trusted repository, only git rules without a wildcard apply."""
    if not (is_foreign and basename(command) == "git"):
        return patterns
    return [pattern for pattern in patterns if "*" not in pattern]


def might_match(pattern: str, text: str) -> bool:
    """Whether a rule may cover `text` once bash has expanded its words."""
    return any(_might_be(pattern, command) for command in parse_commands(text).commands)


def _might_be(pattern: str, command: Command) -> bool:
    prefix = pattern.removesuffix(":*").partition("*")[0].split()
    words = list(command.words)
    if not any(word.value is None for word in words):
        return False
    if not prefix:
        return True
    if prefix[0] not in {basename(command), command.name}:
        return False
    has_options = len(words) > 1 and (words[1].value or "-").startswith("-")
    ends = range(1, min(len(words), _MAX_SKIPPED) + 1 if has_options else 2)
    return any(_might_follow(prefix[1:], words[at:]) for at in ends)


def _might_follow(prefix: Sequence[str], words: Sequence[Word]) -> bool:
    """Whether words may match the prefix, and only if bash expands one of them to it."""
    for expected, word in zip(prefix, words, strict=False):
        if word.value is None and word.many and _could_be(word, expected):
            return True
        if not _could_be(word, expected):
            return False
    return len(words) >= len(prefix) and any(item.value is None for item in words[: len(prefix)])


def _could_be(word: Word, expected: str) -> bool:
    if word.value is not None:
        return word.value == expected
    return expected.startswith(_EXPANSION.split(word.pathlike, maxsplit=1)[0])


def _is_same(pattern: str, text: str) -> bool:
    """Whether the rule is exactly this text: without a wildcard there is nothing to interpret."""
    return "*" not in pattern and pattern.strip() == text.strip()


def _allows(pattern: str, command: Command) -> bool:
    if any(
        redirect.access == "write" or opens_connection(redirect) for redirect in command.redirects
    ):
        return False
    if not any(
        _matches_allowed_text(pattern, text)
        for text in (_text_for_allow(command), _source_text(command))
    ):
        return False
    if "*" not in pattern:
        return True
    return not is_opaque_wrapper(command) and all(
        _is_named(word.value or word.source, pattern) for word in risky_words(command)
    )


def _matches_allowed_text(pattern: str, text: str) -> bool:
    """Whether a text matches; in `* --version`, `*` is one command name, not several words."""
    if pattern.startswith("* "):
        return _fits(pattern[2:], text.partition(" ")[2])
    return _fits(pattern, text)


def _text_for_allow(command: Command) -> str:
    """The text of a command, without harmless assignments."""
    if all(is_harmless(assignment) for assignment in command.assignments):
        return Command(command.words).text
    return command.text


def _source_text(command: Command) -> str:
    if command.assignments:
        return command.text
    return " ".join(word.source for word in command.words if word.source)


def _is_named(word: str, pattern: str) -> bool:
    names = {item.partition("=")[0] for item in pattern.split() if "*" not in item}
    return word.partition("=")[0] in names


def _fits(pattern: str, text: str) -> bool:
    """`*` is any text; ` *` or `:*` at the end is nothing or further words."""
    if pattern.endswith(":*"):
        pattern = pattern[:-2] + " *"
    is_prefix = pattern.endswith(" *") and pattern != " *"
    return matches_parts(pattern.split("*"), text) or (
        is_prefix and matches_parts(pattern[:-2].split("*"), text)
    )


def _matches_any_spelling(pattern: str, command: Command) -> bool:
    return any(_fits(pattern, spelling) for spelling in _spellings(command))


def _spellings(command: Command) -> Iterator[str]:
    """Every spelling that a deny or ask rule treats as the same command."""
    yield command.text
    yield " ".join([*command.wrappers, command.text])
    redirected = [f"{item.operator} {item.target.pathlike}" for item in command.redirects]
    bare = Command(command.words)
    yield " ".join([bare.text, *redirected])
    if not command.words:
        return
    for name in dict.fromkeys((command.words[0].pathlike, basename(command))):
        words = [word.pathlike for word in command.words[1:]]
        yield " ".join([name, *(word.text for word in command.words[1:] if word.source)])
        yield " ".join([name, *(word.source for word in command.words[1:] if word.source)])
        yield " ".join([name, *words])
        # `git -C elsewhere push` is a push.
        if words and words[0].startswith("-"):
            for skipped in range(1, min(len(words), _MAX_SKIPPED)):
                yield " ".join([name, *words[skipped:]])


def _mentions(pattern: str, text: str) -> bool:
    """Whether a text, without its disguises, contains all words of the rule in order."""
    plain = unicodedata.normalize("NFKC", text)
    plain = "".join(char for char in plain if unicodedata.category(char) != "Cf")
    plain = _ANSI_C.sub(lambda quoted: decode_ansi_c(quoted[1]) or "", plain)
    plain = re.sub(r"\\\n|[\\'\"]", "", plain)
    plain = re.sub(r"\$\{?IFS\}?|\$\{[\w@*#?!]+:?[-=+]|[,{}]", " ", plain)
    at = 0
    for word in re.split(r"[*\s]+", pattern.removesuffix(":*")):
        match = re.compile(rf"(?<![\w-]){re.escape(word)}(?![\w-])").search(plain, at)
        if word and match is None:
            return False
        at = match.end() if word and match else at
    return True


# Their effect depends on their arguments alone, so no prefix is safe.
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
# The prefix of these has three words.
_PAIRS = frozenset(
    {(tool, "run") for tool in word_set("npm pnpm yarn bun uv poetry pipenv cargo gh")}
    | {("gh", item) for item in word_set("pr issue repo")}
    | {("docker", "compose"), ("bundle", "exec"), ("npx", "-y"), ("aws", "s3")}
)
_EXACT_GIT = word_set("push reset checkout clean branch stash restore rebase config remote")
# Subcommands with harmless and harmful forms: only the exact text is suggested.
_EXACT = frozenset(
    {("git", item) for item in _EXACT_GIT}
    | {(tool, item) for tool in ("docker", "podman") for item in word_set("run exec system volume")}
    | {("kubectl", item) for item in word_set("exec apply delete run")}
)
_SUBCOMMAND = re.compile(r"[a-z][a-z0-9:_-]*")


def suggest_rule(text: str) -> str | None:
    """The narrowest rule content that allows `text` and similar ones; `None` if none is safe.

    A text of several commands has a suggestion only if all but one of them are read-only.
    """
    parsed = parse_commands(text)
    if isinstance(parsed, UnclearCommands):
        return None
    suggested = {_rule(command) for command in parsed.commands if not is_read_only(command)}
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
        # `python tool.py` and `python -m pytest`; never code on the command line.
        if len(values) > 2 and values[1] == "-m" and values[2]:
            return f"{values[0]} -m {values[2]} *"
        script = values[1] if len(values) > 1 else None
        return None if script is None or script.startswith("-") else f"{values[0]} {script} *"
    first_words = [value or "" for value in values[:3]]
    if tuple(first_words[:2]) in _EXACT:
        return None if None in values else command.text
    return f"{' '.join(first_words[: _prefix_length(first_words)])} *"


def _prefix_length(words: list[str]) -> int:
    if tuple(words[:2]) in _PAIRS and len(words) > 2 and re.fullmatch(r"[\w:.-]+", words[2]):
        return 3
    return 2 if len(words) > 1 and _SUBCOMMAND.fullmatch(words[1]) else 1
