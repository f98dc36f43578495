"""Paths that a call accesses, and whether a rule's pattern matches them."""

from __future__ import annotations

import posixpath
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Literal, TypeAlias

from mainspring.harness.permissions.gitignore import compile_pattern

Access: TypeAlias = Literal["read", "write"]

_ANYTHING_IN_IT = "/\N{WORD JOINER}"
"""Stands for whatever is in a folder: only a pattern that would take any name takes this one."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PathAccess:
    """A path as a call names it, and as it is once links are followed; both absolute."""

    link: str
    target: str
    """Empty if nobody can tell."""
    access: Access
    is_folder: bool = False
    """It is what is inside that is touched."""
    alias: str = ""
    """The path as the call has it, if another name of the workspace is in it."""

    @property
    def both(self) -> tuple[str, str]:
        return self.link, self.target

    @property
    def every(self) -> tuple[str, ...]:
        """All names of it: what is forbidden by one of them is forbidden."""
        return tuple(dict.fromkeys((*self.both, *((self.alias,) if self.alias else ()))))


@dataclass(frozen=True, slots=True, kw_only=True)
class PatternRoots:
    """What a pattern may be relative to."""

    folder: str
    """Of the settings file that the rule stands in: for `/x`."""
    cwd: str
    """Where the work is done: for `x` and `./x`."""
    home: str


def absolute_path(path: str, *, cwd: str, home: str) -> str:
    """The path that is meant, by its words alone; no link is followed."""
    joined = posixpath.normpath(joined_path(path, cwd=cwd, home=home))
    return f"/{joined.lstrip('/')}" if joined.startswith("//") else joined


def joined_path(path: str, *, cwd: str, home: str) -> str:
    """The same with its `..`, which lead elsewhere behind a link."""
    if path == "~" or path.startswith("~/"):
        path = home + path[1:]
    return posixpath.join(cwd, path)


def without_alias(path: str, aliases: Iterable[str], workspace: str) -> str:
    """The path below the workspace that an absolute path means, if it begins with an alias."""
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
    """Whether a rule that permits speaks for a path: for the link and for what it leads to."""
    base, pattern = _locate_pattern(specifier, pattern_roots)
    inside = _ANYTHING_IN_IT if path_access.is_folder else ""
    return all(_is_match(pattern, base, path + inside) for path in path_access.both)


def forbids_path(specifier: str, path_access: PathAccess, pattern_roots: PatternRoots) -> bool:
    """Whether a rule that forbids speaks for a path, read as widely as can be: the link or what
    it leads to, in any case of letters, be it a file or a folder."""
    base, pattern = (text.casefold() for text in _locate_pattern(specifier, pattern_roots))
    return any(
        _is_match(pattern, base, path.casefold() + inside, is_folder=True)
        for path in path_access.every
        for inside in ("", _ANYTHING_IN_IT)
    )


def may_forbid_below(specifier: str, folder: PathAccess, pattern_roots: PatternRoots) -> bool:
    """Whether something that a rule forbids may be in a folder, at any depth."""
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
    """The folder that a pattern is relative to, and the pattern in it."""
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
