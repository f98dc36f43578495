"""Programs of bash and script nodes with references to values. A reference becomes a variable of
the environment, quoted for its place in the program; a value never becomes part of the program."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from functools import cache
from typing import Literal, TypeAlias

import tree_sitter_bash
from msgspec import Struct
from tree_sitter import Language, Parser
from tree_sitter import Node as SyntaxNode

from mainspring.core.errors import InvalidInput
from mainspring.runtime.workflows.references import Reference, find_references, value_text

MAX_VARIABLE_BYTES = 100_000
"""Linux limits one variable to 128 KiB; longer values are read from a file."""
_PREFIX = "MS_VALUE_"
_INTEGER = re.compile(r"[+-]?\d+")
_ARITHMETIC = frozenset(("arithmetic_expansion", "c_style_for_statement", "subscript"))
_NUMERIC_TEST = re.compile(r"\[\[.*\s-(?:eq|ne|lt|le|gt|ge|v)\s", re.DOTALL)
_EVALUATORS = frozenset(
    ("let", "eval", "declare", "typeset", "local", "export", "readonly", "printf", "trap", "source")
)
"""Commands that read their words as code, as numbers or as names."""
_SHELLS = re.compile(r"(?:.*/)?(?:ba|z|da|k)?sh|python[0-9.]*|perl|ruby|node|bun|ssh|env|xargs|awk")
Place: TypeAlias = Literal["bare", "double", "single", "heredoc", "literal", "comment", "number"]

_PLACES: Mapping[str, Place] = {
    "raw_string": "single",
    "ansi_c_string": "literal",
    "string": "double",
    "command_substitution": "bare",
    "process_substitution": "bare",
}
"""What a word is in, by the kind of the innermost node of bash's grammar."""


class Program(Struct, frozen=True, kw_only=True):
    text: str
    variables: dict[str, str]


def bash_program(text: str, value_of: Callable[[Reference], object]) -> Program:
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
    return Program(text="".join((*pieces, text[position:])), variables=variables)


def script_program(
    text: str, value_of: Callable[[Reference], object], runtime: Literal["bun", "uv"]
) -> Program:
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
    return Program(text="".join((*pieces, text[position:])), variables=variables)


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
    if any(_is_evaluated(item, content) for item in chain):
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
    """Whether bash, or a program that is named here, reads the words in it as code or numbers."""
    if node.type in _ARITHMETIC:
        return True
    text = content[node.start_byte : node.end_byte].decode("utf-8", "replace")
    if node.type == "test_command":
        return text.startswith("((") or bool(_NUMERIC_TEST.search(text))
    if node.type == "declaration_command":
        return bool(re.match(r"\w+\s+-\w*[ainr]", text))
    if node.type != "command":
        return False
    name = node.child_by_field_name("name")
    word = "" if name is None else content[name.start_byte : name.end_byte].decode()
    if word in _EVALUATORS:
        return word != "printf" or " -v" in text
    return bool(_SHELLS.fullmatch(word)) and bool(re.search(r"\s-\w*[ce]\b|\s(ba|da)?sh\s", text))


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
