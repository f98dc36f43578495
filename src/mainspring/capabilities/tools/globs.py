"""Globs as ripgrep reads them: `**` spans folders, `{a,b}` chooses, a bare name is at any depth."""

from __future__ import annotations

from collections.abc import Callable

from mainspring.capabilities.tools.patterns import compiled
from mainspring.core.errors import InvalidInput

_MAX_CHARS = 1000


def matcher(glob: str) -> Callable[[str], bool]:
    """Whether a path, relative to where the search begins, is meant by a glob.

    Raises:
        InvalidInput: it is not a glob.
    """
    if not glob or len(glob) > _MAX_CHARS:
        raise InvalidInput(f"a glob has 1 to {_MAX_CHARS} characters")
    if glob.startswith(("/", "~")) or ".." in glob.split("/"):
        raise InvalidInput("a glob is relative: say with `path` where to begin")
    bare = glob.removeprefix("./")
    anywhere = "" if "/" in bare.rstrip("/") else "**/"
    below = "**" if bare.endswith("/") else ""
    pattern = compiled(f"^{_expression(anywhere + bare + below)}$")
    return lambda path: pattern.search(path.encode("utf-8", "replace")) is not None


def _expression(glob: str) -> str:
    pieces: list[str] = []
    braces = at = 0
    while at < len(glob):
        piece, taken = _piece(glob[at:], braces)
        braces += (piece == "(?:") - (piece == ")")
        pieces.append(piece)
        at += taken
    if braces:
        raise InvalidInput(f"the glob {glob} has a brace that is not closed")
    return "".join(pieces)


def _piece(rest: str, braces: int) -> tuple[str, int]:
    """The expression for the beginning of a glob, and how much of the glob that is."""
    if rest.startswith("**/"):
        return "(?:.*/)?", 3
    if rest.startswith("**"):
        return ".*", 2
    if rest[0] == "[" and (end := rest.find("]", 2)) > 0:
        return _class(rest[1:end]), end + 1
    if rest[0] == "\\" and len(rest) > 1:
        return _literal(rest[1]), 2
    inside = {",": "|", "}": ")"} if braces else {}
    special = {"*": "[^/]*", "?": "[^/]", "{": "(?:", **inside}
    return special.get(rest[0]) or _literal(rest[0]), 1


def _class(inner: str) -> str:
    negated = inner[0] in "!^"
    members = inner[1:] if negated else inner
    quoted = "".join(each if each == "-" else _literal(each) for each in members)
    return f"[{'^/' if negated else ''}{quoted}]"


def _literal(character: str) -> str:
    return character if character.isalnum() or not character.isascii() else f"\\{character}"
