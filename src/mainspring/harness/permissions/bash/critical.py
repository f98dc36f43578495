"""Removals that no mode approves by itself: `/`, a home, the workspace, system folders."""

from __future__ import annotations

import posixpath
import re
from collections.abc import Collection, Sequence

from mainspring.harness.permissions.bash.command import Command, Word, word_set
from mainspring.harness.permissions.bash.effects import basename

REMOVING = frozenset({"rm", "rmdir", "unlink", "shred", "srm"})
# Everything below these, too.
_SYSTEM = word_set(
    """
    bin boot dev etc lib lib32 lib64 libx32 proc sbin sys usr System Library Applications
    """
)
# These, and what is right in them: /home/someone, /var/lib.
_SHARED = word_set("home Users root opt var srv mnt media run Volumes private")
_LEADING_EXPANSION = re.compile(r"^(?:\$\{[^}]*\}|\$\(.*\)|`.*`|\$[A-Za-z_]\w*|\$.)", re.DOTALL)
_HOME = re.compile(r"^(?:\$HOME|\$\{HOME[^}]*\}|~[\w+-]*)(?=/|$)")
_WILD_END = re.compile(r"(?:/?(?:\*+|\.\*|\.?\[[^\]]*\]\*?|\{[^}]*\}|\?+|(?<![^/])\.))+$")


def removes_critical(commands: Sequence[Command], roots: Collection[str]) -> bool:
    """Relative paths are held against the last literal `cd`."""
    folder = ""
    for command in commands:
        name = basename(command)
        if name == "cd":
            folder = _folder(command.words[1:])
        elif any(
            is_critical(word, folder, roots) for word in _removal_operands(name, command.words[1:])
        ) or (name in REMOVING and _is_recursive(command.words) and _is_unknown(command.words[1:])):
            return True
    return False


def _folder(arguments: Sequence[Word]) -> str:
    targets = [word.pathlike for word in arguments if not (word.value or "").startswith("-")]
    return targets[0] if targets else "~"


def _removal_operands(name: str, arguments: Sequence[Word]) -> list[Word]:
    if name in REMOVING:
        return [word for word in arguments if not (word.value or "").startswith("-")]
    values = {word.value for word in arguments}
    if name == "find" and values & {"-delete", "-exec", "-execdir"}:
        return [
            word
            for word in arguments
            if "/" in word.pathlike or word.pathlike in {"~", "..", "$HOME"}
        ][:1]
    return []


def _is_recursive(words: Sequence[Word]) -> bool:
    return any(
        re.fullmatch(r"-[a-zA-Z]*[rR][a-zA-Z]*|--r[a-z]*", word.value or "") is not None
        for word in words
    )


def _is_unknown(operands: Sequence[Word]) -> bool:
    """Begins with something that only bash, or another program, can tell."""
    return any(
        word.value is None and (not word.source or _LEADING_EXPANSION.match(word.pathlike))
        for word in operands
    )


def is_critical(word: Word, folder: str, roots: Collection[str]) -> bool:
    path = _HOME.sub("~", word.pathlike)
    if path != word.pathlike and path == "~":
        return True
    if word.value is None and not path.startswith("~"):
        unset = _LEADING_EXPANSION.sub("", path)
        if unset and unset != path:
            path = unset  # a variable that is not set leaves the rest
    wild = word.value is None
    stem = _WILD_END.sub("", path) if wild else path
    if not stem and path and not path.startswith("/"):
        stem = "."
    return _is_critical_path(posixpath.join(_HOME.sub("~", folder), stem or "/"), roots)


def _is_critical_path(path: str, roots: Collection[str]) -> bool:
    plain = posixpath.normpath(path)
    plain = "/" + plain.lstrip("/") if plain.startswith("/") else plain
    if plain in {"/", "~", "."} or set(plain.split("/")) == {".."}:
        return True
    if any(f"{root}/".startswith(plain.rstrip("/") + "/") for root in roots):
        return True
    parts = plain.split("/")
    if parts[0]:
        return False
    return parts[1] in _SYSTEM or (parts[1] in _SHARED and len(parts) <= 3) or parts[1:] == ["tmp"]


def may_remove_critical(text: str, roots: Collection[str]) -> bool:
    """The same question for a text that cannot be split: by its looks, and rather yes."""
    bare = re.sub(r"\$\{?IFS\}?", " ", re.sub(r"[\\'\"]", "", text))
    tokens = re.split(r"[\s,;&|(){}<>`=]+", bare)
    if not any(token.rsplit("/", 1)[-1] in REMOVING for token in tokens):
        return False
    return any(
        token.startswith(("$", "~", "*"))
        or _is_critical_path(_WILD_END.sub("", token) or "/", roots)
        for token in tokens
        if token
    )
