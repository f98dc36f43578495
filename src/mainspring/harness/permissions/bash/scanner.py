"""Our own scanner for bash: simple commands, keywords, here-documents. `command_parser`
has the second, independent reading by tree-sitter.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field

from mainspring.harness.permissions.bash.command import Assignment, Command, Redirect, Word
from mainspring.harness.permissions.bash.lexer import BLANK, AmbiguousSyntax, Lexer

MAX_COMMANDS = 500  # of one text

_REDIRECTION = re.compile(r"(?:[0-9]*(?=[<>]))?(<<<|<<-|<<|<&|<>|<(?!\()|>>|>&|>\||>(?!\()|&>>|&>)")
_ASSIGNMENT = re.compile(r"([A-Za-z_][A-Za-z0-9_]*)(?:\[[0-9]+\])?\+?=")
_SUBSCRIPTED = re.compile(r"[A-Za-z_][A-Za-z0-9_]*\[(?![0-9]+\]\+?=)")
_UNQUOTED = re.compile(r"[^\s;&|<>()\"'\\$`]+(?=[\s;&|<>()]|$)")
_DELIMITER = re.compile(r"""(['"]?)\\?([A-Za-z0-9_.+-]+)\1""")
_NUMBERS = re.compile(r"\(\([0-9 \t+*/%<>=!&|^~?:,-]*\)\)")
_CONTINUED = re.compile(r"\\\n(?=[ \tA-Za-z0-9_./\"'$-])")

# A command may follow directly after each of these.
_OPENERS = frozenset({"if", "then", "elif", "else", "while", "until", "do", "{", "!"})
_ENDERS = frozenset({"fi", "done", "}"})
_DECLARATIONS = frozenset({"declare", "export", "local", "readonly", "typeset"})


@dataclass(slots=True)
class ScanResult:
    commands: list[Command] = field(default_factory=list[Command])
    signatures: list[tuple[str, ...]] = field(default_factory=list[tuple[str, ...]])
    """The words of each command as written, to compare the two readings."""
    functions: list[str] = field(default_factory=list[str])
    variables: list[str] = field(default_factory=list[str])
    """Variables that `for` and `select` set."""


@dataclass(slots=True)
class CommandDraft:
    start: int
    end: int = 0
    words: list[Word] = field(default_factory=list[Word])
    assignments: list[Assignment] = field(default_factory=list[Assignment])
    redirects: list[Redirect] = field(default_factory=list[Redirect])
    sources: list[str] = field(default_factory=list[str])

    def add(self, word: Word, end: int) -> None:
        self.end = end
        self.sources.append(word.source)
        assigned = None if self.words else _ASSIGNMENT.match(word.source)
        if assigned is None:
            self.words.append(word)
            return
        is_array = word.source.startswith("(", assigned.end())
        value = word if is_array else _value(word.source[assigned.end() :])
        self.assignments.append(Assignment(assigned[1], value))

    @property
    def empty(self) -> bool:
        return not (self.sources or self.redirects)


@dataclass(frozen=True, slots=True)
class PendingHeredoc:
    """A here-document whose body begins on the next line."""

    delimiter: str
    literal: bool
    columns: bool


def scan(text: str, result: ScanResult) -> None:
    """Fill `result`; if this raises, it contains the part before the problem.

    Raises:
        AmbiguousSyntax: the text does not show what bash would do.
    """
    if text.startswith("^"):
        raise AmbiguousSyntax("`^` may be a history expansion")
    Lexer("", _Scanner(result).nested).inside(text)


@dataclass(slots=True)
class _Scanner:
    scan_result: ScanResult
    _heredocs: list[PendingHeredoc] = field(default_factory=list[PendingHeredoc])

    def nested(self, lexer: Lexer) -> None:
        """Read commands until after a closing parenthesis."""
        outer, self._heredocs = self._heredocs, []
        start = lexer.at
        self._list(lexer)
        if not lexer.take(")"):
            raise AmbiguousSyntax("parentheses do not match")
        if self._heredocs or (outer and "\n" in lexer.text[start : lexer.at]):
            raise AmbiguousSyntax("a here-document crosses a substitution")
        self._heredocs = outer

    def _list(self, lexer: Lexer) -> None:
        """Read commands until something ends the list: `)`, `;;`, `esac` or the end."""
        while True:
            self._skip(lexer, newlines=True)
            if not lexer.peek() or lexer.peek() == ")" or lexer.peek(2) in {";;", ";&"}:
                return
            if _keyword(lexer) == "esac":
                return
            if lexer.peek() in ";&|" and lexer.peek(2) != "&>":
                lexer.at += 1
                continue
            self._command(lexer)

    def _skip(self, lexer: Lexer, *, newlines: bool = False) -> None:
        """Skip blanks, continued lines and comments; with `newlines`, also line ends and the
        here-documents after them."""
        while char := lexer.peek():
            if char in BLANK:
                lexer.at += 1
            elif char == "\\" and lexer.peek(2) == "\\\n":
                _continue(lexer)
            elif char == "#":
                end = lexer.text.find("\n", lexer.at)
                lexer.at = len(lexer.text) if end < 0 else end
            elif char == "\n" and newlines:
                lexer.at += 1
                self._bodies(lexer)
            else:
                return

    def _bodies(self, lexer: Lexer) -> None:
        heredocs, self._heredocs = self._heredocs, []
        for item in heredocs:
            body = _body(lexer, item)
            if not item.literal:
                if "\\\n" in body:
                    raise AmbiguousSyntax("a line is continued inside a here-document")
                inner = Lexer(body, self.nested, lexer.depth + 1)
                inner.document()

    def _command(self, lexer: Lexer) -> None:
        if lexer.peek(2) == "((":
            numbers = _NUMBERS.match(lexer.text, lexer.at)
            if numbers is None:
                raise AmbiguousSyntax("arithmetic on more than numbers can run commands")
            lexer.at = numbers.end()
            self._rest(lexer)
        elif lexer.take("("):
            with lexer.deeper():
                self.nested(lexer)
            self._rest(lexer)
        else:
            self._worded(lexer, _keyword(lexer))

    def _worded(self, lexer: Lexer, keyword: str) -> None:
        if keyword in _OPENERS:
            lexer.at += len(keyword)
        elif keyword in _ENDERS:
            lexer.at += len(keyword)
            self._rest(lexer)
        elif keyword in {"for", "select"}:
            self._for(lexer)
        elif keyword == "case":
            with lexer.deeper():
                self._case(lexer)
        elif keyword == "function":
            self._function(lexer)
        elif keyword == "[[":
            self._conditional(lexer)
        elif keyword == "coproc":
            raise AmbiguousSyntax("a coprocess")
        else:
            self._simple(lexer)

    def _rest(self, lexer: Lexer) -> None:
        """Read the redirections of a compound command: `} > file`."""
        draft = CommandDraft(lexer.at)
        while self._redirection(lexer, draft):
            pass
        self._skip(lexer)
        if (
            lexer.peek()
            and lexer.peek() not in ";&|)\n"
            and _keyword(lexer) not in (_OPENERS | _ENDERS | {"esac"})
        ):
            raise AmbiguousSyntax("something follows the end of a compound command")
        self._add_command(lexer, draft)

    def _for(self, lexer: Lexer) -> None:
        self._word(lexer)
        name = self._word(lexer)
        if name is None or name.value is None or not name.value.isidentifier():
            raise AmbiguousSyntax("an unusual loop")
        self.scan_result.variables.append(name.value)
        self._skip(lexer, newlines=True)
        if _keyword(lexer) == "in":
            lexer.at += 2
            while self._word(lexer) is not None:
                pass
        self._skip(lexer)
        if lexer.peek() not in {";", "\n"} and _keyword(lexer) != "do":
            raise AmbiguousSyntax("an unusual loop")

    def _case(self, lexer: Lexer) -> None:
        self._word(lexer)
        subject = self._word(lexer)
        self._skip(lexer, newlines=True)
        if subject is None or _keyword(lexer) != "in":
            raise AmbiguousSyntax("an unusual `case`")
        lexer.at += 2
        self._skip(lexer, newlines=True)
        while _keyword(lexer) != "esac":
            self._case_item(lexer)
            self._skip(lexer, newlines=True)
        lexer.at += 4
        self._rest(lexer)

    def _case_item(self, lexer: Lexer) -> None:
        lexer.take("(")
        while self._word(lexer) is not None:
            self._skip(lexer)
            if not lexer.take("|"):
                break
        if not lexer.take(")"):
            raise AmbiguousSyntax("an unusual `case`")
        self._list(lexer)
        ended = lexer.take(";;&") or lexer.take(";;") or lexer.take(";&")
        if not ended and _keyword(lexer) != "esac":
            raise AmbiguousSyntax("an unusual `case`")

    def _function(self, lexer: Lexer) -> None:
        self._word(lexer)
        name = self._word(lexer)
        if name is None:
            raise AmbiguousSyntax("an unusual function")
        self._parentheses(lexer)
        self._define(lexer, name)

    def _parentheses(self, lexer: Lexer) -> bool:
        self._skip(lexer)
        if not lexer.take("("):
            return False
        self._skip(lexer)
        if not lexer.take(")"):
            raise AmbiguousSyntax("a parenthesis after a word")
        return True

    def _define(self, lexer: Lexer, name: Word) -> None:
        self.scan_result.functions.append(name.source)
        self._skip(lexer, newlines=True)
        if _keyword(lexer) != "{":
            raise AmbiguousSyntax("a function whose body is not in braces")

    def _conditional(self, lexer: Lexer) -> None:
        draft = CommandDraft(lexer.at)
        while True:
            self._skip(lexer, newlines=True)
            word = lexer.word()
            if word is None:
                if not lexer.peek() or lexer.peek() in "();" or lexer.peek() == "\n":
                    raise AmbiguousSyntax("an unusual `[[`")
                lexer.at += 1
                continue
            draft.words.append(word)
            if word.source == "]]":
                break
        draft.end = lexer.at
        draft.sources.append(lexer.text[draft.start : draft.end])
        self._add_command(lexer, draft)
        self._rest(lexer)

    def _simple(self, lexer: Lexer) -> None:
        draft = CommandDraft(lexer.at)
        while self._redirection(lexer, draft) or self._argument(lexer, draft):
            pass
        if lexer.peek() == "(" and len(draft.words) == 1 and len(draft.sources) == 1:
            self._parentheses(lexer)
            self._define(lexer, draft.words[0])
            return
        if lexer.peek() == "(" or draft.empty:
            raise AmbiguousSyntax("a parenthesis after a word")
        if len(draft.words) > 1 and draft.sources[0] == "time":
            _refuse_timed(draft.words[1].source)
        self._add_command(lexer, draft)

    def _argument(self, lexer: Lexer, draft: CommandDraft) -> bool:
        self._skip(lexer)
        start = lexer.at
        declares = bool(draft.words) and draft.words[0].value in _DECLARATIONS
        if _SUBSCRIPTED.match(lexer.text, start) and (declares or not draft.words):
            raise AmbiguousSyntax("a subscript can run commands")
        word = lexer.word()
        if word is None:
            return False
        assigned = _ASSIGNMENT.match(word.source)
        if assigned and lexer.peek() == "(" and assigned.end() == len(word.source):
            if draft.words and not declares:
                raise AmbiguousSyntax("a parenthesis after a word")
            word = self._array(lexer, start)
        draft.add(word, lexer.at)
        return True

    def _array(self, lexer: Lexer, start: int) -> Word:
        lexer.at += 1
        while True:
            self._skip(lexer, newlines=True)
            if lexer.take(")"):
                break
            if lexer.peek() == "[" or lexer.word() is None:
                raise AmbiguousSyntax("an unusual array")
        source = lexer.text[start : lexer.at]
        return Word(source=source, value=None, pathlike=source, optionlike=False, many=True)

    def _word(self, lexer: Lexer) -> Word | None:
        self._skip(lexer)
        return lexer.word()

    def _redirection(self, lexer: Lexer, draft: CommandDraft) -> bool:
        self._skip(lexer)
        operator = _REDIRECTION.match(lexer.text, lexer.at)
        if operator is None:
            return False
        lexer.at = operator.end()
        target = self._word(lexer)
        if target is None:
            raise AmbiguousSyntax("a redirection to nowhere")
        if operator[1] in {"<<", "<<-"}:
            delimiter = _DELIMITER.fullmatch(target.source)
            if delimiter is None:
                raise AmbiguousSyntax("an unusual here-document")
            literal = delimiter[2] != target.source
            self._heredocs.append(PendingHeredoc(delimiter[2], literal, (operator[1] == "<<-")))
        draft.redirects.append(Redirect(operator[1], target))
        return True

    def _add_command(self, lexer: Lexer, draft: CommandDraft) -> None:
        if draft.empty:
            return
        command = Command(tuple(draft.words), tuple(draft.assignments), tuple(draft.redirects))
        self.scan_result.commands.append(command)
        if len(self.scan_result.commands) > MAX_COMMANDS:
            raise AmbiguousSyntax("too many commands")
        if command.words and command.words[0].source == "[":
            self.scan_result.signatures.append((lexer.text[draft.start : draft.end],))
        elif draft.sources:
            self.scan_result.signatures.append(tuple(draft.sources))


def _keyword(lexer: Lexer) -> str:
    """The word that begins here, if no part of it is quoted."""
    match = _UNQUOTED.match(lexer.text, lexer.at)
    return match[0] if match else ""


def _refuse_timed(following: str) -> None:
    """`time` is a keyword: bash parses the next word as if it came first."""
    keywords = _OPENERS | {"for", "select", "case", "function", "[[", "coproc", "time", "--"}
    if following in keywords or _ASSIGNMENT.match(following):
        raise AmbiguousSyntax("`time` before more than a simple command")


def _continue(lexer: Lexer) -> None:
    """Skip a line continuation, which is harmless between words but can also join two halves."""
    before = lexer.text[lexer.at - 1 : lexer.at]
    if before in {" ", "\t", "\n", ""} or _CONTINUED.match(lexer.text, lexer.at):
        lexer.at += 2
        return
    raise AmbiguousSyntax("a line is continued inside a word")


def _body(lexer: Lexer, heredoc: PendingHeredoc) -> str:
    lines: list[str] = []
    while lexer.at < len(lexer.text):
        end = lexer.text.find("\n", lexer.at)
        end = len(lexer.text) if end < 0 else end
        line = lexer.text[lexer.at : end]
        lexer.at = min(end + 1, len(lexer.text))
        if (line.lstrip("\t") if heredoc.columns else line) == heredoc.delimiter:
            return "\n".join(lines)
        lines.append(line)
    raise AmbiguousSyntax("a here-document is not closed")


def _value(source: str) -> Word:
    """The word after the `=` of an assignment; the commands in it are already recorded."""
    if not source:
        return Word(source="", value="", pathlike="", optionlike=False, many=False)
    lexer = Lexer(source, _Scanner(ScanResult()).nested)
    word = lexer.word()
    if word is None or lexer.at != len(source):
        raise AmbiguousSyntax("an unusual assignment")
    return word
