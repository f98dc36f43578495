"""Parses a shell text into its simple commands, at any depth; rejects disguised characters and
redefined built-ins.
"""

from __future__ import annotations

import unicodedata
from contextlib import suppress
from functools import lru_cache

from mainspring.harness.permissions.bash.command import Command, Commands, UnclearCommands, word_set
from mainspring.harness.permissions.bash.hazards import changes_meaning, hazard
from mainspring.harness.permissions.bash.lexer import AmbiguousSyntax
from mainspring.harness.permissions.bash.scanner import MAX_COMMANDS, ScanResult, scan
from mainspring.harness.permissions.bash.tree_sitter_grammar import signatures
from mainspring.harness.permissions.bash.wrappers import unwrap

MAX_TEXT_CHARS = 10_000

# Letters and marks without a shape of their own; the categories below do not have them.
_BLANK_LETTERS = frozenset("\u115f\u1160\u17b4\u17b5\u2800\u3164\uffa0\u034f")
# Control, format (bidi, zero width), surrogate, private, unassigned, and separators.
_HIDDEN = frozenset({"Cc", "Cf", "Cs", "Co", "Cn", "Zs", "Zl", "Zp"})


def disguise_reason(text: str) -> str | None:
    """Why `text` may not be what it looks like, or None."""
    if len(text) > MAX_TEXT_CHARS:
        return f"longer than {MAX_TEXT_CHARS:,} characters"
    for char in text:
        if not " " <= char <= "~" and char not in "\n\t" and _is_hidden_character(char):
            return f"contains the character U+{ord(char):04X}, which is not seen"
    return None


def _is_hidden_character(char: str) -> bool:
    return char in _BLANK_LETTERS or unicodedata.category(char) in _HIDDEN


BUILTIN_NAMES = word_set(
    """
    . : [ alias bg bind break builtin caller cd command compgen complete compopt continue
    declare dirs disown echo enable eval exec exit export false fc fg getopts hash help
    history jobs kill let local logout mapfile popd printf pushd pwd read readarray readonly
    return set shift shopt source suspend test times trap true type typeset ulimit umask
    unalias unset wait time awk base64 basename bash cargo cat chmod chown cmake comm cp
    curl cut date dd df diff dirname docker du env expr fd file find gcc gh git go grep head
    id jq kubectl less ln ls make man mkdir mv nice node nohup npm npx od perl pip pip3 pnpm
    podman ps pytest python python3 readlink realpath rg rm rmdir rsync ruby scp sed seq sh
    sleep sort ssh stat stdbuf su sudo tail tar tee timeout touch tr tree uname uniq uv wc
    wget which xargs yarn zsh
    """
)


_MAX_WRAPPERS = 8
_MAX_TEXTS = 64


def parse_commands(text: str) -> Commands | UnclearCommands:
    """Everything that bash could run for `text`, at any depth, or why that cannot be told.

    Never raises, whatever the text.
    """
    if reason := disguise_reason(text):
        return UnclearCommands(reason)
    return _parse_commands(text)


@lru_cache(maxsize=64)
def _parse_commands(text: str) -> Commands | UnclearCommands:
    """Kept for a moment, as one decision asks many questions about one text."""
    collector = _Collector()
    try:
        collector.collect(text, _MAX_WRAPPERS)
    except AmbiguousSyntax as error:
        return UnclearCommands(str(error), tuple(collector.commands))
    if collector.exhausted:
        return UnclearCommands("too many commands in one another", tuple(collector.commands))
    return Commands(tuple(collector.commands))


class _Collector:
    def __init__(self) -> None:
        self.commands: list[Command] = []
        self._texts_left = _MAX_TEXTS

    @property
    def exhausted(self) -> bool:
        return self._texts_left < 0 or len(self.commands) > MAX_COMMANDS

    def collect(self, text: str, wrappers_left: int) -> None:
        """Raises:
        Confusing: `commands` has what was found up to there.
        """
        self._texts_left -= 1
        if self.exhausted or wrappers_left < 0:
            raise AmbiguousSyntax("too many commands in one another")
        found = ScanResult()
        problem = _read_twice(text, found)
        for command in found.commands:
            problem = problem or hazard(command)
        for command in found.commands:
            try:
                self._unwrap(command, wrappers_left)
            except AmbiguousSyntax as error:
                problem = problem or str(error)
        if problem:
            raise AmbiguousSyntax(problem)

    def _unwrap(self, command: Command, wrappers_left: int) -> None:
        wrapped = unwrap(command)
        if not wrapped.transparent:
            self.commands.append(command)
        if self.exhausted or wrappers_left < 0:
            raise AmbiguousSyntax("too many commands in one another")
        problem = wrapped.unclear
        for inner in wrapped.commands:
            problem = problem or hazard(inner)
            self._unwrap(inner, wrappers_left - 1)
        for text in wrapped.texts:
            self.collect(text, wrappers_left - 1)
        for text in wrapped.guesses:
            with suppress(AmbiguousSyntax):  # a guess may be anything; what was found in it counts
                self.collect(text, wrappers_left - 1)
        if problem:
            raise AmbiguousSyntax(problem)


def _read_twice(text: str, scan_result: ScanResult) -> str | None:
    """Both readings; why they cannot be trusted, if so."""
    try:
        scan(text, scan_result)
        by_grammar = signatures(text)
    except AmbiguousSyntax as error:
        return str(error)
    if sorted(by_grammar) != sorted(scan_result.signatures):
        return "the text can be read in two ways"
    if any(name in BUILTIN_NAMES or not name.isidentifier() for name in scan_result.functions):
        return "a function takes the place of a command"
    if any(map(changes_meaning, scan_result.variables)):
        return "a loop sets a variable that changes what commands do"
    return None
