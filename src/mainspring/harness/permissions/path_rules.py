"""Paths that a call accesses, and whether a rule's pattern matches them."""

from __future__ import annotations

import posixpath
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Literal, TypeAlias

from mainspring.harness.permissions.gitignore import compile_pattern

Access: TypeAlias = Literal["read", "write"]

_ANYTHING_IN_IT = "/\N{WORD JOINER}"
"""Represents any file in a folder: only a pattern that matches every name matches this one."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PathAccess:
    """A path as a call names it, and with links resolved; both absolute."""

    link: str
    target: str
    """Empty if it cannot be resolved."""
    access: Access
    is_folder: bool = False
    """The call accesses the folder's contents."""
    alias: str = ""
    """The path as the call has it, if it uses another name of the workspace."""

    @property
    def both(self) -> tuple[str, str]:
        return self.link, self.target

    @property
    def every(self) -> tuple[str, ...]:
        """All its names: if one of them is forbidden, the path is forbidden."""
        return tuple(dict.fromkeys((*self.both, *((self.alias,) if self.alias else ()))))


@dataclass(frozen=True, slots=True, kw_only=True)
class PatternRoots:
    """The folders that a pattern may be relative to."""

    folder: str
    """The folder of the rule's settings file: for `/x`."""
    cwd: str
    """The workspace: for `x` and `./x`."""
    home: str


def absolute_path(path: str, *, cwd: str, home: str) -> str:
    """The absolute path, from its text alone; no link is resolved."""
    joined = posixpath.normpath(joined_path(path, cwd=cwd, home=home))
    return f"/{joined.lstrip('/')}" if joined.startswith("//") else joined


def joined_path(path: str, *, cwd: str, home: str) -> str:
    """The same with its `..` kept: after a link they lead elsewhere."""
    if path == "~" or path.startswith("~/"):
        path = home + path[1:]
    return posixpath.join(cwd, path)


def without_alias(path: str, aliases: Iterable[str], workspace: str) -> str:
    """The path in the workspace, if an absolute path starts with one of its aliases."""
    for alias in aliases:
        if is_inside(path, (alias,)):
            return workspace + path[len(alias) :]
    return path


def is_inside(path: str, folders: Iterable[str]) -> bool:
    return any(f"{path}/".startswith(f"{folder.rstrip('/')}/") for folder in folders if path)


def check_pattern(specifier: str) -> None:
    """Raises: InvalidInput."""
    _locate_pattern(specifier, PatternRoots(folder="/", cwd="/", home="/"))


def permits_path(specifier: str, path_access: PathAccess, pattern_roots: PatternRoots) -> bool:
    """Whether an allow rule covers a path: both the link and its target."""
    base, pattern = _locate_pattern(specifier, pattern_roots)
    inside = _ANYTHING_IN_IT if path_access.is_folder else ""
    return all(_is_match(pattern, base, path + inside) for path in path_access.both)


def forbids_path(specifier: str, path_access: PathAccess, pattern_roots: PatternRoots) -> bool:
    """Whether a deny or ask rule covers a path, in the widest sense: the link or its target, in
    upper or lower case, as a file or as a folder."""
    base, pattern = (text.casefold() for text in _locate_pattern(specifier, pattern_roots))
    return any(
        _is_match(pattern, base, path.casefold() + inside, is_folder=True)
        for path in path_access.every
        for inside in ("", _ANYTHING_IN_IT)
    )


def may_forbid_below(specifier: str, folder: PathAccess, pattern_roots: PatternRoots) -> bool:
    """Whether a folder may contain, at any depth, something that a rule forbids."""
    base, pattern = (text.casefold() for text in _locate_pattern(specifier, pattern_roots))
    return any(_may_be_below(pattern, base, path.casefold()) for path in folder.every)


def _may_be_below(pattern: str, base: str, path: str) -> bool:
    if is_inside(base, (path,)):
        return True
    if not is_inside(path, (base,)):
        return False
    return compile_pattern(pattern).may_match_below(path[len(base.rstrip("/")) + 1 :])


def _is_match(pattern: str, base: str, path: str, *, is_folder: bool = False) -> bool:
    if path == base or not is_inside(path, (base,)):
        return False
    relative = path[len(base.rstrip("/")) + 1 :]
    return compile_pattern(pattern).matches(relative, is_folder=is_folder)


def _locate_pattern(specifier: str, pattern_roots: PatternRoots) -> tuple[str, str]:
    """The folder that a pattern is relative to, and the pattern below it."""
    if specifier.startswith("//"):
        base, pattern = "/", specifier[1:]
    elif specifier.startswith("~/"):
        base, pattern = pattern_roots.home, specifier[1:]
    elif specifier.startswith("/"):
        base, pattern = pattern_roots.folder, specifier
    elif specifier.startswith("../"):
        base, pattern = _resolve_parents(pattern_roots.cwd, specifier)
    else:
        base, pattern = pattern_roots.cwd, specifier.removeprefix("./")
    compile_pattern(pattern)
    return base, pattern


def _resolve_parents(base: str, pattern: str) -> tuple[str, str]:
    while pattern.startswith("../"):
        base, pattern = posixpath.dirname(base), pattern.removeprefix("../")
    return base, f"/{pattern}"
