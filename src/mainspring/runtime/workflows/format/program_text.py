"""Programs of bash and script nodes with references to values. A reference becomes a variable of
the environment, quoted for its place in the program; a value never becomes part of the program."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import cache
from typing import Literal, TypeAlias

import tree_sitter_bash
from msgspec import Struct
from tree_sitter import Language, Parser
from tree_sitter import Node as SyntaxNode

from mainspring.core.errors import InvalidInput
from mainspring.runtime.workflows.format.references import Reference, find_references, value_text

MAX_VARIABLE_BYTES = 100_000
"""Linux limits one variable to 128 KiB; longer values are read from a file."""
_PREFIX = "MS_VALUE_"
_INTEGER = re.compile(r"[+-]?\d+")
_ARITHMETIC = frozenset(
    ("arithmetic_expansion", "c_style_for_statement", "subscript", "unset_command")
)
_NUMERIC_TEST = re.compile(r"\[\[.*\s-(?:eq|ne|lt|le|gt|ge)\s", re.DOTALL)
_NAME_TEST = re.compile(r"\s-[vR]\s")
_EVALUATORS = frozenset(
    (
        *("let", "eval", "declare", "typeset", "local", "export", "readonly", "printf", "trap"),
        *("source", ".", "read", "unset", "mapfile", "readarray", "alias", "getopts", "wait"),
        *("sed", "awk", "gawk", "mawk", "ssh", "su", "parallel", "watch"),
    )
)
"""Commands that read their words as code, as numbers or as names."""
_SHELLS = re.compile(
    r"(?:.*/)?(?:(?:ba|z|da|k)?sh|python[0-9.]*|perl|ruby|node|bun|env|xargs|find|sudo|timeout|nohup"
    r"|nice|exec|command|builtin|setsid|stdbuf)"
)
_WRAPPERS = frozenset(
    ("exec", "command", "builtin", "nohup", "setsid", "sudo", "xargs", "env", "nice", "stdbuf")
)
"""Commands whose first argument is a program."""
_CODE_OPTION = re.compile(r"\s-[a-zA-Z]{0,2}[ce]\b|\s(?:ba|da)?sh\s|-exec")
_INTERPRETER = re.compile(r"(?:.*/)?(?:(?:ba|z|da|k)?sh|python[0-9.]*|perl|ruby|node|bun)")
_REDIRECTS = frozenset(("file_redirect", "herestring_redirect", "heredoc_redirect", "heredoc_body"))
Place: TypeAlias = Literal["bare", "double", "single", "heredoc", "literal", "comment", "number"]

_PLACES: Mapping[str, Place] = {
    "raw_string": "single",
    "ansi_c_string": "literal",
    "string": "double",
    "command_substitution": "bare",
    "process_substitution": "bare",
}
"""What a word is in, by the kind of the innermost node of bash's grammar."""


class ProgramText(Struct, frozen=True, kw_only=True):
    text: str
    variables: dict[str, str]


def bash_program(text: str, value_of: Callable[[Reference], object]) -> ProgramText:
    """A bash program whose references are variables.

    Raises: InvalidInput: a reference is where bash would read a value as code.
    """
    marked, references = _mark(text)
    places = _bash_places(marked, references)
    pieces: list[str] = []
    variables: dict[str, str] = {}
    position = 0
    for index, (start, end, reference) in enumerate(references):
        name = f"{_PREFIX}{index}"
        place = places.get(_marker(index), "bare")
        pieces.append(text[position:start])
        position = end
        if place == "comment":
            pieces.append(text[start:end])
            continue
        if reference.name is not None:  # exported under its own name
            pieces.append(text[start:end])
            if place != "number":
                continue
        if place == "literal":
            raise InvalidInput(
                f"{text[start:end]} is in a here-document with a quoted delimiter, where bash reads"
                " no variables: assign it to a variable before, and do not quote the delimiter"
            )
        value = value_text(value_of(reference)).replace("\0", "")
        if place == "number" and value and not _INTEGER.fullmatch(value.strip()):
            raise InvalidInput(
                f"{text[start:end]} is used where bash evaluates it, and is not a whole number"
            )
        if reference.name is None:
            variables[name] = value
            pieces.append(_quoted(name, place))
    return ProgramText(text="".join((*pieces, text[position:])), variables=variables)


def script_program(
    text: str, value_of: Callable[[Reference], object], runtime: Literal["bun", "uv"]
) -> ProgramText:
    """A TypeScript or Python program whose references are expressions that read a variable."""
    pieces: list[str] = []
    variables: dict[str, str] = {}
    position = 0
    contexts = _script_contexts(text, is_python=runtime == "uv")
    for index, (start, end, reference) in enumerate(find_references(text)):
        context = contexts[start]
        if reference.name is not None or context == "comment":
            continue  # a script reads the run's variables from its environment
        name = f"{_PREFIX}{index}"
        value = value_text(value_of(reference)).replace("\0", "")
        variables[name] = value
        pieces += (text[position:start], _expression(name, context, runtime))
        position = end
    return ProgramText(text="".join((*pieces, text[position:])), variables=variables)


def _expression(name: str, context: str, runtime: str) -> str:
    if runtime == "uv":
        read = f"__import__('os').environ['{name}']"
        return f"__import__('json').loads({read})" if not context else f"{context}+{read}+{context}"
    read = f"process.env.{name}"
    if context == "`":
        return f"${{{read}}}"
    return f"JSON.parse({read})" if not context else f"{context}+{read}+{context}"


def _script_contexts(text: str, *, is_python: bool) -> list[str]:
    """For each character, the quotes that it is in: empty for code, or `comment`."""
    quotes = ("'''", '"""', "'", '"') if is_python else ("'", '"', "`")
    comments = (("#", "\n"),) if is_python else (("//", "\n"), ("/*", "*/"))
    contexts: list[str] = []
    context, end, position = "", "", 0
    while position < len(text):
        step = 1
        if context:
            if context != "comment" and text[position] == "\\":
                step = 2
            elif text.startswith(end, position):
                step, context = len(end), ""
            contexts += [context or "quote"] * step
        else:
            opened = next((mark for mark in quotes if text.startswith(mark, position)), None)
            comment = next((pair for pair in comments if text.startswith(pair[0], position)), None)
            if opened is not None:
                context, end, step = opened, opened, len(opened)
            elif comment is not None:
                context, end, step = "comment", comment[1], len(comment[0])
            contexts += [""] * step
        position += step
    return [*contexts[: len(text)], ""]


def _marker(index: int) -> str:
    return f"MSREF{index}X"


def _mark(text: str) -> tuple[str, list[tuple[int, int, Reference]]]:
    """The program with a plain word for each reference, so that bash's grammar can read it."""
    references = list(find_references(text))
    pieces: list[str] = []
    position = 0
    for index, (start, end, _) in enumerate(references):
        pieces += (text[position:start], _marker(index))
        position = end
    return "".join((*pieces, text[position:])), references


def _bash_places(marked: str, references: list[tuple[int, int, Reference]]) -> dict[str, Place]:
    if not references:
        return {}
    content = marked.encode()
    root = _parser().parse(content).root_node
    if root.has_error:
        raise InvalidInput("the program is not valid bash, so values cannot be put into it safely")
    places: dict[str, Place] = {}
    for index in range(len(references)):
        marker = _marker(index)
        at = content.find(marker.encode())
        node = root.descendant_for_byte_range(at, at + len(marker))
        if node is not None:
            places[marker] = _place(node, content)
    return places


def _place(node: SyntaxNode, content: bytes) -> Place:
    chain = list(_ancestors(node))
    types = [item.type for item in chain]
    if "comment" in types:
        return "comment"
    if any(_is_evaluated(item, content) for item in chain) or _is_executed(chain, content):
        return "number"
    for item in chain:
        if item.type == "heredoc_body":
            return _heredoc_place(item, content)
        if item.type in _PLACES:
            return _PLACES[item.type]
    return "bare"


def _heredoc_place(body: SyntaxNode, content: bytes) -> Place:
    redirect = body.parent
    start = next(
        (
            child
            for child in (redirect.children if redirect else ())
            if child.type == "heredoc_start"
        ),
        None,
    )
    if start is None:
        return "literal"
    delimiter = content[start.start_byte : start.end_byte]
    return "literal" if any(mark in delimiter for mark in (b"'", b'"', b"\\")) else "heredoc"


def _is_evaluated(node: SyntaxNode, content: bytes) -> bool:
    """Whether bash reads the words in it as numbers, which may contain code, or as names."""
    if node.type in _ARITHMETIC:
        return True  # also names with a subscript
    text = _text(node, content)
    if node.type == "compound_statement":
        return text.startswith("((")
    if node.type == "expansion":
        return bool(re.match(r"\$\{[^:}]*:[^-=?+]", text))
    if node.type == "test_command":
        is_numeric = text.startswith("((") or bool(_NUMERIC_TEST.search(text))
        return is_numeric or bool(_NAME_TEST.search(text))
    if node.type == "declaration_command":
        return bool(re.match(r"\w+\s+-\w*[ainr]", text))
    return False


def _is_executed(chain: Sequence[SyntaxNode], content: bytes) -> bool:
    """Whether a word is the name of a program, an argument that a program runs as code, or the
    input of an interpreter."""
    is_input = False
    for node, inner in zip(chain[1:], chain, strict=False):
        is_input = is_input or inner.type in _REDIRECTS
        if node.type == "command":
            if inner.type == "command_name" or (not is_input and _runs_words(node, inner, content)):
                return True
            is_input = is_input and _reads_code(node, content)
            if is_input:
                return True
        elif node.type in ("pipeline", "redirected_statement"):
            later = [item for item in node.children if item.start_byte > inner.start_byte]
            commands = later if node.type == "pipeline" else [node.children[0]]
            is_fed = node.type == "pipeline" or inner.type in _REDIRECTS
            if is_fed and any(_reads_code(item, content) for item in commands):
                return True
    return False


def _runs_words(command: SyntaxNode, word: SyntaxNode, content: bytes) -> bool:
    name, text = _command_name(command, content), _text(command, content)
    if name == "printf":
        return " -v" in text
    if name in ("test", "["):
        return bool(_NAME_TEST.search(text))
    if name in ("awk", "gawk", "mawk"):
        before = _text(command, content)[: word.start_byte - command.start_byte]
        return not re.search(r"-v\s*$", before)
    if name in _EVALUATORS:
        return True
    words = [item for item in command.children[1:] if not re.match(r"-|\w+=", _text(item, content))]
    is_program = name in _WRAPPERS and words[:1] == [word]
    return is_program or bool(_SHELLS.fullmatch(name) and _CODE_OPTION.search(text))


def _reads_code(command: SyntaxNode, content: bytes) -> bool:
    """Whether a command is an interpreter that reads its program from its input."""
    if command.type != "command" or not _INTERPRETER.fullmatch(_command_name(command, content)):
        return False
    items = [item for item in command.children[1:] if item.type not in _REDIRECTS]
    words = [_text(item, content) for item in items]
    return all(word.startswith("-") and word not in ("-c", "-e") for word in words)


def _command_name(command: SyntaxNode, content: bytes) -> str:
    name = command.child_by_field_name("name")
    return "" if name is None else _text(name, content)


def _text(node: SyntaxNode, content: bytes) -> str:
    return content[node.start_byte : node.end_byte].decode("utf-8", "replace")


def _ancestors(node: SyntaxNode) -> Iterator[SyntaxNode]:
    current: SyntaxNode | None = node
    while current is not None:
        yield current
        current = current.parent


def _quoted(name: str, place: Place) -> str:
    if place in ("double", "heredoc", "number"):
        return f"${{{name}}}"
    return f"'\"${{{name}}}\"'" if place == "single" else f'"${{{name}}}"'


@cache
def _parser() -> Parser:
    return Parser(Language(tree_sitter_bash.language()))
