"""Reading one bash word: quotes, expansions, and the commands substituted inside it.

Refuses (`Confusing`) what bash would evaluate in ways that cannot be seen in the text.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Generator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import TypeAlias

from mainspring.harness.permissions.bash.ansi_c import decode_ansi_c
from mainspring.harness.permissions.bash.command import Word

MAX_DEPTH = 24

BLANK = " \t"
META = " \t\n;&|<>()"

# Characters that mean themselves, whatever is around them.
_PLAIN = re.compile(r"[A-Za-z0-9_./=:,@%+-]+")
_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_PARAMETER = re.compile(r"(?:[A-Za-z_][A-Za-z0-9_]*|[0-9]+|[@*#?$!-])(?:\[(?:[0-9]+|@|\*)\])?")
# Where a part of a value begins and ends is arithmetic: numbers only, and nothing after them.
_OPERATOR = re.compile(
    r":?[-=+?]|##?|%%?|//?|\^\^?|,,?|:(?:[0-9]+| +-?[0-9]+)(?:: *-?[0-9]+)?(?=\})"
)
# Names are left out: bash evaluates a variable's value, so `$((x))` runs what is in x.
_ARITHMETIC = re.compile(r"[0-9 \t+*/%()<>=!&|^~?:,-]*\)\)")
# A brace that stands alone, or as `{}`, is itself.
_NO_BRACES = re.compile(r"\}?(?:[\s;&|<>()]|$)")
# `[` and `[[` are commands.
_NO_BRACKETS = re.compile(r"\[?(?:[\s;&|<>()]|$)")
_BACKTICKS = re.compile(r"`((?:[^`\\]|\\.)*)`", re.DOTALL)
_ANSI_C = re.compile(r"\$'((?:[^'\\]|\\.)*)'", re.DOTALL)
_HISTORY = re.compile(r"![^\s=(\"']")


class AmbiguousSyntax(Exception):
    """Not to be read with certainty; why."""


@dataclass(slots=True)
class WordBuilder:
    """A word being read."""

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
        """`several`: more than one word even within quotes, as `$@` is."""
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
    """A place in a text. `nested` reads commands from there to past the `)` that ends them."""

    def __init__(self, text: str, read_nested: ReadNested, depth: int = 0) -> None:
        if depth > MAX_DEPTH:
            raise AmbiguousSyntax("nested too deep")
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
        """The word that begins here, or None if none does."""
        piece = WordBuilder(self.at)
        if self.peek(2) in {"<(", ">("}:
            self._process_substitution(piece)
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
        return self._finished(piece)

    def _finished(self, word_builder: WordBuilder) -> Word:
        text = "".join(word_builder.value)
        return Word(
            source=self.text[word_builder.source_start : self.at],
            value=None if word_builder.dynamic else text,
            pathlike=text,
            optionlike=word_builder.optionlike,
            many=word_builder.many,
        )

    def _unquoted(self, char: str, word_builder: WordBuilder) -> None:
        match char:
            case "'":
                word_builder.literal(self._until("'"))
            case '"':
                self.at += 1
                word_builder.literal("")
                self.double_quoted(word_builder, '"')
            case "\\":
                self._escaped(word_builder)
            case "$":
                self._dollar(word_builder, quoted=False)
            case "`":
                self._backticks(word_builder, quoted=False)
            case _:
                self._plain(char, word_builder)

    def _plain(self, char: str, word_builder: WordBuilder) -> None:
        self._refuse_history()
        self.at += 1
        is_word = {"[": _NO_BRACKETS, "{": _NO_BRACES}.get(char)
        if char in "*?" or (is_word and not is_word.match(self.text, self.at)):
            word_builder.globs(char)
        else:
            word_builder.literal(char)

    def _until(self, quote: str) -> str:
        end = self.text.find(quote, self.at + 1)
        if end < 0:
            raise AmbiguousSyntax("a quote is not closed")
        inner = self.text[self.at + 1 : end]
        self.at = end + 1
        return inner

    def _escaped(self, word_builder: WordBuilder) -> None:
        escaped = self.text[self.at + 1 : self.at + 2]
        if escaped in {"", "\n"}:
            raise AmbiguousSyntax("a line is continued inside a word")
        word_builder.literal(escaped)
        self.at += 2

    def _refuse_history(self) -> None:
        before = self.text[self.at - 1 : self.at]
        if _HISTORY.match(self.text, self.at) and before not in {"[", "$"}:
            raise AmbiguousSyntax("`!` may be a history expansion")

    def double_quoted(self, word_builder: WordBuilder, end: str) -> None:
        """Read to past `end`; for a here-document's body, whose end is the text's: `end` is ''."""
        while char := self.peek():
            if char == end:
                self.at += 1
                return
            match char:
                case "\\":
                    self._escaped_in_quotes(word_builder)
                case "$":
                    self._dollar(word_builder, quoted=True)
                case "`":
                    self._backticks(word_builder, quoted=True)
                case _:
                    if end:
                        self._refuse_history()
                    self.at += 1
                    word_builder.literal(char)
        if end:
            raise AmbiguousSyntax("a quote is not closed")

    def _escaped_in_quotes(self, word_builder: WordBuilder) -> None:
        escaped = self.text[self.at + 1 : self.at + 2]
        self.at += 2
        if escaped == "\n":
            return
        word_builder.literal(escaped if escaped and escaped in '$`"\\' else "\\" + escaped)

    def _backticks(self, word_builder: WordBuilder, *, quoted: bool) -> None:
        closed = _BACKTICKS.match(self.text, self.at)
        if closed is None:
            raise AmbiguousSyntax("a backtick is not closed")
        inner = closed[1]
        if re.search(r"\\[^`\\$]", inner) or (quoted and "\\" in inner):
            raise AmbiguousSyntax("a backslash inside backticks")
        self.at = closed.end()
        self.inside(re.sub(r"\\([`\\$])", r"\1", inner))
        word_builder.expands(closed[0], quoted=quoted)

    def document(self) -> None:
        """A here-document's body: the commands substituted in it."""
        self.double_quoted(WordBuilder(0), "")

    def inside(self, text: str) -> None:
        """Commands of a text of its own."""
        inner = Lexer(text + "\n)", self.read_nested, self.depth + 1)
        self.read_nested(inner)
        if inner.at != len(inner.text):
            raise AmbiguousSyntax("parentheses do not match")

    @contextmanager
    def deeper(self) -> Generator[None]:
        self.depth += 1
        if self.depth > MAX_DEPTH:
            raise AmbiguousSyntax("nested too deep")
        yield
        self.depth -= 1

    def _substitution(self) -> None:
        """Commands up to past the `)`; the opening has been read."""
        with self.deeper():
            self.read_nested(self)

    def _process_substitution(self, word_builder: WordBuilder) -> None:
        start = self.at
        self.at += 2
        self._substitution()
        word_builder.expands(self.text[start : self.at], quoted=True)
        word_builder.optionlike = False  # /dev/fd/63

    def _dollar(self, word_builder: WordBuilder, *, quoted: bool) -> None:
        start, following = self.at, self.text[self.at + 1 : self.at + 2]
        if not quoted and following in {"'", '"'}:
            self._dollar_quoted(following, word_builder)
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
            self._simple()
        source = self.text[start : self.at]
        if source == "$":
            word_builder.literal(source)
            return
        several = source == "$@" or "[@]" in source or source.startswith("${@")
        word_builder.expands(source, quoted=quoted, several=several)

    def _dollar_quoted(self, quote: str, word_builder: WordBuilder) -> None:
        if quote == '"':
            raise AmbiguousSyntax("a translated string")
        closed = _ANSI_C.match(self.text, self.at)
        decoded = decode_ansi_c(closed[1]) if closed else None
        if closed is None or decoded is None:
            raise AmbiguousSyntax("an ANSI-C string with unusual escapes")
        self.at = closed.end()
        word_builder.literal(decoded)

    def _parenthesised(self) -> None:
        if self.peek(3) != "$((":
            self.at += 2
            self._substitution()
            return
        numbers = _ARITHMETIC.match(self.text, self.at + 3)
        if numbers is None or numbers[0].count("(") != numbers[0].count(")") - 2:
            raise AmbiguousSyntax("arithmetic on more than numbers can run commands")
        self.at = numbers.end()

    def _simple(self) -> None:
        """`$name`, `$1`, `$@`; or a lone `$`."""
        self.at += 1
        named = _NAME.match(self.text, self.at)
        if named:
            self.at = named.end()
        elif self.peek() and self.peek() in "0123456789@*#?$!-":
            self.at += 1

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
        """The rest of `${x:-...}`. Quotes mean different things there by where it stands."""
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
