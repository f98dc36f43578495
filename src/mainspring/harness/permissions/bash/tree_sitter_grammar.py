"""The tree-sitter grammar's reading of bash. The only module that loads tree-sitter."""

from __future__ import annotations

import re
from functools import cache

import tree_sitter_bash
from tree_sitter import Language, Node, Parser

from mainspring.harness.permissions.bash.lexer import MAX_DEPTH, AmbiguousSyntax

_WORDS = frozenset(
    {
        "ansi_c_string",
        "arithmetic_expansion",
        "brace_expression",
        "command_name",
        "command_substitution",
        "concatenation",
        "expansion",
        "number",
        "process_substitution",
        "raw_string",
        "simple_expansion",
        "special_variable_name",
        "string",
        "variable_assignment",
        "variable_name",
        "word",
    }
)
_COMMANDS = frozenset({"command", "declaration_command", "unset_command"})
_REDIRECTS = frozenset({"file_redirect", "heredoc_redirect", "herestring_redirect"})


def signatures(text: str, depth: int = 0) -> list[tuple[str, ...]]:
    """The words of every simple command in `text`, as written, in no particular order.

    Raises:
        Confusing: the grammar does not know this text.
    """
    if depth > MAX_DEPTH:
        raise AmbiguousSyntax("nested too deep")
    root = _parser().parse(text.encode()).root_node
    if root.has_error:
        raise AmbiguousSyntax("not valid by the grammar of bash")
    found: list[tuple[str, ...]] = []
    waiting: list[Node] = [root]
    while waiting:
        node = waiting.pop()
        if signature := _signature(node):
            found.append(signature)
        if node.type == "command_substitution" and _text(node).startswith("`"):
            inner = re.sub(r"\\([`\\$])", r"\1", _text(node)[1:-1])
            found.extend(signatures(inner, depth + 1))
        else:
            waiting.extend(node.children)
    return found


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
        owned = parent is not None and parent.type in _COMMANDS | {"variable_assignments"}
        return None if owned else tuple([_text(node), *_trailing(node)])
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
    """Words after a redirection: the grammar hangs them onto that."""
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
