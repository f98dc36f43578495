"""Parses a shell text into its simple commands, at any depth, twice: by our scanner and by
tree-sitter's grammar. Rejects disguised characters and redefined built-ins.
"""

from __future__ import annotations

import re
import unicodedata
from contextlib import suppress
from functools import cache, lru_cache

import tree_sitter_bash
from msgspec import Struct
from tree_sitter import Language, Node, Parser

from mainspring.harness.permissions.bash.command import Command, Commands, UnclearCommands, word_set
from mainspring.harness.permissions.bash.hazards import changes_meaning, hazard
from mainspring.harness.permissions.bash.lexer import MAX_DEPTH, AmbiguousSyntax
from mainspring.harness.permissions.bash.scanner import MAX_COMMANDS, ScanResult, scan
from mainspring.harness.permissions.bash.wrappers import unwrap

_WORDS = word_set(
    "ansi_c_string arithmetic_expansion brace_expression command_name command_substitution"
    " concatenation expansion number process_substitution raw_string simple_expansion"
    " special_variable_name string variable_assignment variable_name word"
)
_COMMANDS = frozenset({"command", "declaration_command", "unset_command"})
_REDIRECTS = frozenset({"file_redirect", "heredoc_redirect", "herestring_redirect"})


def signatures(text: str, depth: int = 0) -> list[tuple[str, ...]]:
    """The words of every simple command in `text`, as written, in no particular order.

    Raises:
        AmbiguousSyntax: the text does not fit the grammar.
    """
    if depth > MAX_DEPTH:
        raise AmbiguousSyntax("nested too deeply")
    root = _parser().parse(text.encode()).root_node
    if root.has_error:
        raise AmbiguousSyntax("not valid bash")
    command_signatures: list[tuple[str, ...]] = []
    pending: list[Node] = [root]
    while pending:
        node = pending.pop()
        if signature := _signature(node):
            command_signatures.append(signature)
        if node.type == "command_substitution" and _text(node).startswith("`"):
            inner = re.sub(r"\\([`\\$])", r"\1", _text(node)[1:-1])
            command_signatures.extend(signatures(inner, depth + 1))
        else:
            pending.extend(node.children)
    return command_signatures


@cache
def _parser() -> Parser:
    return Parser(Language(tree_sitter_bash.language()))


def _signature(node: Node) -> tuple[str, ...] | None:
    kind, parent = node.type, node.parent
    if kind in _COMMANDS:
        return tuple([*_words(node), *_trailing(node)])
    if kind == "test_command":
        return None if _text(node).startswith("((") else (_text(node),)
    if kind == "variable_assignments":
        return tuple(_words(node))
    if kind == "variable_assignment":
        is_part = parent is not None and parent.type in _COMMANDS | {"variable_assignments"}
        return None if is_part else tuple([_text(node), *_trailing(node)])
    return None


def _words(node: Node) -> list[str]:
    words: list[str] = []
    for child in node.children:
        if child.type in _WORDS or not child.is_named:
            words.append(_text(child))
        elif child.type in _REDIRECTS:
            words.extend(_extra(child))
        else:
            raise AmbiguousSyntax(f"the grammar sees `{child.type}` among a command's words")
    return words


def _trailing(node: Node) -> list[str]:
    """Words after a redirection, which the grammar attaches to the redirection."""
    statement = node.parent
    if statement is None or statement.type != "redirected_statement":
        return []
    return [word for child in statement.children for word in _extra(child)]


def _extra(redirect: Node) -> list[str]:
    if redirect.type == "heredoc_redirect":
        own = redirect.children_by_field_name("argument")
        nested = [word for child in redirect.children for word in _extra(child)]
        return [*map(_text, own), *nested]
    if redirect.type == "file_redirect":
        return [_text(item) for item in redirect.children_by_field_name("destination")[1:]]
    return []


def _text(node: Node) -> str:
    return (node.text or b"").decode()


MAX_TEXT_CHARS = 10_000  # of a command; longer ones are asked about

# Letters and marks that are invisible but not in the categories below.
_BLANK_LETTERS = frozenset("\u115f\u1160\u17b4\u17b5\u2800\u3164\uffa0\u034f")
# Control, format (bidi, zero width), surrogate, private, unassigned, and separators.
_HIDDEN = frozenset({"Cc", "Cf", "Cs", "Co", "Cn", "Zs", "Zl", "Zp"})


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


_MAX_WRAPPERS = 8  # such as `sudo env nice` around one command
_MAX_TEXTS = 64  # of commands within commands


def parse_commands(text: str) -> Commands | UnclearCommands:
    """Everything that bash could run for `text`, at any depth, or why that is unclear.

    Never raises, whatever the text.
    """
    if len(text) > MAX_TEXT_CHARS:
        return UnclearCommands(f"longer than {MAX_TEXT_CHARS:,} characters")
    for char in text:
        if not " " <= char <= "~" and char not in "\n\t" and _is_hidden_character(char):
            code = f"U+{ord(char):04X}"
            return UnclearCommands(f"contains the invisible character {code}")
    return _parse_commands(text)


@lru_cache(maxsize=64)
def _parse_commands(text: str) -> Commands | UnclearCommands:
    """Cached, since one decision needs it many times for the same text."""
    collector = _Collector()
    try:
        collector.collect(text, _MAX_WRAPPERS)
    except AmbiguousSyntax as error:
        return UnclearCommands(str(error), tuple(collector.commands))
    if collector.exhausted:
        return UnclearCommands("too many nested commands", tuple(collector.commands))
    return Commands(tuple(collector.commands))


class _Collector(Struct):
    commands: list[Command] = []
    _texts_left: int = _MAX_TEXTS

    @property
    def exhausted(self) -> bool:
        return self._texts_left < 0 or len(self.commands) > MAX_COMMANDS

    def collect(self, text: str, wrappers_left: int) -> None:
        """Raises:
        AmbiguousSyntax: `commands` contains the commands up to there.
        """
        self._texts_left -= 1
        if self.exhausted or wrappers_left < 0:
            raise AmbiguousSyntax("too many nested commands")
        scan = ScanResult()
        problem = _read_twice(text, scan)
        for command in scan.commands:
            problem = problem or hazard(command)
        for command in scan.commands:
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
            raise AmbiguousSyntax("too many nested commands")
        problem = wrapped.unclear
        for inner in wrapped.commands:
            problem = problem or hazard(inner)
            self._unwrap(inner, wrappers_left - 1)
        for text in wrapped.texts:
            self.collect(text, wrappers_left - 1)
        for text in wrapped.guesses:
            with suppress(AmbiguousSyntax):  # a guess need not be a command; keep those in it
                self.collect(text, wrappers_left - 1)
        if problem:
            raise AmbiguousSyntax(problem)


def _read_twice(text: str, result: ScanResult) -> str | None:
    """Parse a text twice; returns why the results cannot be trusted, if so."""
    try:
        scan(text, result)
        by_grammar = signatures(text)
    except AmbiguousSyntax as error:
        return str(error)
    if sorted(by_grammar) != sorted(result.signatures):
        return "the text can be read in two ways"
    if any(name in BUILTIN_NAMES or not name.isidentifier() for name in result.functions):
        return "a function replaces a command"
    if any(map(changes_meaning, result.variables)):
        return "a loop sets a variable that changes what commands do"
    return None
