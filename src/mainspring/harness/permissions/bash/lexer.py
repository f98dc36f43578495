"""Reads one bash word: quotes, expansions, and the commands substituted inside it.

Rejects (`AmbiguousSyntax`) text that bash would evaluate in ways that the text does not show.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Generator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import TypeAlias

from mainspring.harness.permissions.bash.command import Word

_LETTERS = {
    "a": "\a",
    "b": "\b",
    "e": "\x1b",
    "E": "\x1b",
    "f": "\f",
    "n": "\n",
    "r": "\r",
    "t": "\t",
    "v": "\v",
    "\\": "\\",
    "'": "'",
    '"': '"',
    "?": "?",
}
_ESCAPE = re.compile(
    r"\\(?:([0-7]{1,3})|x([0-9A-Fa-f]{1,2})|u([0-9A-Fa-f]{1,4})|U([0-9A-Fa-f]{1,8})|(.))", re.DOTALL
)


def decode_ansi_c(inner: str) -> str | None:
    """The decoded text; `None` if it is not plain ASCII, or if bash would truncate it."""
    decoded: list[str] = []
    at = 0
    for escape in _ESCAPE.finditer(inner):
        decoded.append(inner[at : escape.start()])
        at = escape.end()
        char = _char(escape)
        if char is None:
            return None
        decoded.append(char)
    return "".join([*decoded, inner[at:]])


def _char(escape: re.Match[str]) -> str | None:
    octal, hexadecimal, short, long, letter = escape.groups()
    if letter is not None:
        return _LETTERS.get(letter)
    code = int(octal, 8) if octal else int(hexadecimal or short or long, 16)
    return chr(code) if 0 < code < 128 else None


MAX_DEPTH = 24  # of nested substitutions

BLANK = " \t"
META = " \t\n;&|<>()"

# Characters that are always literal.
_PLAIN = re.compile(r"[A-Za-z0-9_./=:,@%+-]+")
_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_PARAMETER = re.compile(r"(?:[A-Za-z_][A-Za-z0-9_]*|[0-9]+|[@*#?$!-])(?:\[(?:[0-9]+|@|\*)\])?")
# The offsets of a substring are arithmetic: allow numbers only, with nothing after them.
_OPERATOR = re.compile(
    r":?[-=+?]|##?|%%?|//?|\^\^?|,,?|:(?:[0-9]+| +-?[0-9]+)(?:: *-?[0-9]+)?(?=\})"
)
# Names are excluded: bash evaluates a variable's value, so `$((x))` runs commands in x.
_ARITHMETIC = re.compile(r"[0-9 \t+*/%()<>=!&|^~?:,-]*\)\)")
# A single brace, or `{}`, is literal.
_NO_BRACES = re.compile(r"\}?(?:[\s;&|<>()]|$)")
# `[` and `[[` are commands.
_NO_BRACKETS = re.compile(r"\[?(?:[\s;&|<>()]|$)")
_BACKTICKS = re.compile(r"`((?:[^`\\]|\\.)*)`", re.DOTALL)
_ANSI_C = re.compile(r"\$'((?:[^'\\]|\\.)*)'", re.DOTALL)
_HISTORY = re.compile(r"![^\s=(\"']")


class AmbiguousSyntax(Exception):
    """The text cannot be parsed with certainty; the message says why."""


@dataclass(slots=True)
class WordBuilder:
    """A word while it is read."""

    source_start: int
    value: list[str] = field(default_factory=list[str])
    dynamic: bool = False
    optionlike: bool = False
    many: bool = False
    begun: bool = False

    def literal(self, text: str) -> None:
        if not self.begun and text:
            self.optionlike, self.begun = text.startswith("-"), True
        self.value.append(text)

    def expands(self, source: str, *, quoted: bool, several: bool = False) -> None:
        """Add an expansion. `several`: it is more than one word even in quotes, such as `$@`."""
        if not self.begun or several or not quoted:
            self.optionlike = True
        self.begun = self.dynamic = True
        self.many = self.many or several or not quoted
        self.value.append(source)

    def globs(self, char: str) -> None:
        if not self.begun:
            self.optionlike = True
        self.begun = self.dynamic = self.many = True
        self.value.append(char)


ReadNested: TypeAlias = "Callable[[Lexer], None]"


class Lexer:
    """A position in a text. `read_nested` reads commands from there to after their closing `)`."""

    def __init__(self, text: str, read_nested: ReadNested, depth: int = 0) -> None:
        if depth > MAX_DEPTH:
            raise AmbiguousSyntax("nested too deeply")
        self.text = text
        self.at = 0
        self.read_nested = read_nested
        self.depth = depth

    def peek(self, count: int = 1) -> str:
        return self.text[self.at : self.at + count]

    def take(self, expected: str) -> bool:
        if not self.text.startswith(expected, self.at):
            return False
        self.at += len(expected)
        return True

    def word(self) -> Word | None:
        """The word that begins here; `None` if there is none."""
        piece = WordBuilder(self.at)
        if self.peek(2) in {"<(", ">("}:
            start = self.at
            self.at += 2
            self._substitution()
            piece.expands(self.text[start : self.at], quoted=True)
            piece.optionlike = False  # /dev/fd/63
        elif self.peek() == "~":
            self.at += 1
            piece.value.append("~")
            piece.dynamic = piece.begun = True
        while (char := self.peek()) and char not in META:
            if plain := _PLAIN.match(self.text, self.at):
                piece.literal(plain[0])
                self.at = plain.end()
            else:
                self._unquoted(char, piece)
        if self.at == piece.source_start:
            return None
        if self.peek(2) in {"<(", ">("}:
            raise AmbiguousSyntax("a process substitution inside a word")
        text = "".join(piece.value)
        return Word(
            source=self.text[piece.source_start : self.at],
            value=None if piece.dynamic else text,
            pathlike=text,
            optionlike=piece.optionlike,
            many=piece.many,
        )

    def _unquoted(self, char: str, builder: WordBuilder) -> None:
        match char:
            case "'":
                builder.literal(self._until("'"))
            case '"':
                self.at += 1
                builder.literal("")
                self.double_quoted(builder, '"')
            case "\\":
                escaped = self.text[self.at + 1 : self.at + 2]
                if escaped in {"", "\n"}:
                    raise AmbiguousSyntax("a line is continued inside a word")
                builder.literal(escaped)
                self.at += 2
            case "$":
                self._dollar(builder, quoted=False)
            case "`":
                self._backticks(builder, quoted=False)
            case _:
                self._plain(char, builder)

    def _plain(self, char: str, builder: WordBuilder) -> None:
        self._refuse_history()
        self.at += 1
        is_word = {"[": _NO_BRACKETS, "{": _NO_BRACES}.get(char)
        if char in "*?" or (is_word and not is_word.match(self.text, self.at)):
            builder.globs(char)
        else:
            builder.literal(char)

    def _until(self, quote: str) -> str:
        end = self.text.find(quote, self.at + 1)
        if end < 0:
            raise AmbiguousSyntax("a quote is not closed")
        inner = self.text[self.at + 1 : end]
        self.at = end + 1
        return inner

    def _refuse_history(self) -> None:
        before = self.text[self.at - 1 : self.at]
        if _HISTORY.match(self.text, self.at) and before not in {"[", "$"}:
            raise AmbiguousSyntax("`!` may be a history expansion")

    def double_quoted(self, builder: WordBuilder, end: str) -> None:
        """Read until after `end`, or to the end of the text if `end` is '' (a here-document)."""
        while char := self.peek():
            if char == end:
                self.at += 1
                return
            match char:
                case "\\":
                    self._escaped_in_quotes(builder)
                case "$":
                    self._dollar(builder, quoted=True)
                case "`":
                    self._backticks(builder, quoted=True)
                case _:
                    if end:
                        self._refuse_history()
                    self.at += 1
                    builder.literal(char)
        if end:
            raise AmbiguousSyntax("a quote is not closed")

    def _escaped_in_quotes(self, builder: WordBuilder) -> None:
        escaped = self.text[self.at + 1 : self.at + 2]
        self.at += 2
        if escaped == "\n":
            return
        builder.literal(escaped if escaped and escaped in '$`"\\' else "\\" + escaped)

    def _backticks(self, builder: WordBuilder, *, quoted: bool) -> None:
        closed = _BACKTICKS.match(self.text, self.at)
        if closed is None:
            raise AmbiguousSyntax("a backtick is not closed")
        inner = closed[1]
        if re.search(r"\\[^`\\$]", inner) or (quoted and "\\" in inner):
            raise AmbiguousSyntax("a backslash inside backticks")
        self.at = closed.end()
        self.inside(re.sub(r"\\([`\\$])", r"\1", inner))
        builder.expands(closed[0], quoted=quoted)

    def document(self) -> None:
        """Read the body of a here-document, for the commands substituted in it."""
        self.double_quoted(WordBuilder(0), "")

    def inside(self, text: str) -> None:
        """Read the commands of a separate text."""
        inner = Lexer(text + "\n)", self.read_nested, self.depth + 1)
        self.read_nested(inner)
        if inner.at != len(inner.text):
            raise AmbiguousSyntax("parentheses do not match")

    @contextmanager
    def deeper(self) -> Generator[None]:
        self.depth += 1
        if self.depth > MAX_DEPTH:
            raise AmbiguousSyntax("nested too deeply")
        yield
        self.depth -= 1

    def _substitution(self) -> None:
        """Read commands until after the `)`; the opening has been read."""
        with self.deeper():
            self.read_nested(self)

    def _dollar(self, builder: WordBuilder, *, quoted: bool) -> None:
        start, following = self.at, self.text[self.at + 1 : self.at + 2]
        if not quoted and following in {"'", '"'}:
            self._dollar_quoted(following, builder)
            return
        if following == "(":
            self._parenthesised()
        elif following == "{":
            self.at += 2
            with self.deeper():
                self._braced(quoted=quoted)
        elif following == "[":
            raise AmbiguousSyntax("an arithmetic expansion of the old kind")
        else:
            # `$name`, `$1`, `$@`; or a lone `$`.
            self.at += 1
            name = _NAME.match(self.text, self.at)
            if name:
                self.at = name.end()
            elif self.peek() and self.peek() in "0123456789@*#?$!-":
                self.at += 1
        source = self.text[start : self.at]
        if source == "$":
            builder.literal(source)
            return
        several = source == "$@" or "[@]" in source or source.startswith("${@")
        builder.expands(source, quoted=quoted, several=several)

    def _dollar_quoted(self, quote: str, builder: WordBuilder) -> None:
        if quote == '"':
            raise AmbiguousSyntax("a translated string")
        closed = _ANSI_C.match(self.text, self.at)
        decoded = decode_ansi_c(closed[1]) if closed else None
        if closed is None or decoded is None:
            raise AmbiguousSyntax("an ANSI-C string with unusual escapes")
        self.at = closed.end()
        builder.literal(decoded)

    def _parenthesised(self) -> None:
        if self.peek(3) != "$((":
            self.at += 2
            self._substitution()
            return
        numbers = _ARITHMETIC.match(self.text, self.at + 3)
        if numbers is None or numbers[0].count("(") != numbers[0].count(")") - 2:
            raise AmbiguousSyntax("arithmetic on more than numbers can run commands")
        self.at = numbers.end()

    def _braced(self, *, quoted: bool) -> None:
        if self.peek(2) != "#}":
            self.take("#")
        parameter = _PARAMETER.match(self.text, self.at)
        if parameter is None:
            raise AmbiguousSyntax("an unusual parameter expansion")
        self.at = parameter.end()
        if self.take("}"):
            return
        operator = _OPERATOR.match(self.text, self.at)
        if operator is None:
            raise AmbiguousSyntax("an unusual parameter expansion")
        if "=" in operator[0]:
            raise AmbiguousSyntax("an expansion that assigns")
        self.at = operator.end()
        self._operand(quoted=quoted)

    def _operand(self, *, quoted: bool) -> None:
        """Read the rest of `${x:-...}`. The meaning of quotes in it depends on the context."""
        unread = WordBuilder(self.at)
        while char := self.peek():
            if char == "}":
                self.at += 1
                return
            if char == "$":
                self._dollar(unread, quoted=True)
            elif char == '"' and not quoted:
                self.at += 1
                self.double_quoted(unread, '"')
            elif char in "'\"\\`{<>()&;|\n":
                raise AmbiguousSyntax("quotes or operators inside a parameter expansion")
            else:
                self._refuse_history()
                self.at += 1
        raise AmbiguousSyntax("a parameter expansion is not closed")
