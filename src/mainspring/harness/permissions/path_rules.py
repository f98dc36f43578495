"""Paths that a call accesses, and whether a rule's pattern matches them."""

from __future__ import annotations

import posixpath
from collections.abc import Iterable
from functools import lru_cache
from typing import Literal, TypeAlias

from msgspec import Struct

from mainspring.core.errors import InvalidInput
from mainspring.core.workspace_aliases import aliased_folder
from mainspring.retrieval.globs import ANY_FOLDERS, Segment, glob_segments, spans

Access: TypeAlias = Literal["read", "write"]

_ANY_FILE_INSIDE = "/\N{WORD JOINER}"
"""Represents any file in a folder: only a pattern that matches every name matches it."""


class PathAccess(Struct, frozen=True, kw_only=True):
    """A path as a call names it, and with links resolved; both absolute."""

    link: str
    target: str
    """Empty if it cannot be resolved."""
    access: Access
    is_folder: bool = False
    """The call accesses the folder's contents."""
    alias: str = ""
    """The path in the call, if it uses another name of the workspace."""

    @property
    def both(self) -> tuple[str, str]:
        return self.link, self.target

    @property
    def every(self) -> tuple[str, ...]:
        """All its names: if one of them is forbidden, the path is forbidden."""
        return tuple(dict.fromkeys((*self.both, *((self.alias,) if self.alias else ()))))


class PatternRoots(Struct, frozen=True, kw_only=True):
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
    """The joined path with its `..`, which lead elsewhere after a link."""
    if path == "~" or path.startswith("~/"):
        path = home + path[1:]
    return posixpath.join(cwd, path)


def without_alias(path: str, aliases: Iterable[str], workspace: str) -> str:
    """The path in the workspace, if an absolute path starts with one of its aliases."""
    for alias in aliases:
        if is_inside(path, (alias,)):
            return posixpath.join(workspace, aliased_folder(alias)).rstrip("/") + path[len(alias) :]
    return path


def is_inside(path: str, folders: Iterable[str]) -> bool:
    return any(f"{path}/".startswith(f"{folder.rstrip('/')}/") for folder in folders if path)


def check_pattern(specifier: str) -> None:
    """Raises: InvalidInput."""
    _locate_pattern(specifier, PatternRoots(folder="/", cwd="/", home="/"))


def permits_path(specifier: str, access: PathAccess, roots: PatternRoots) -> bool:
    """Whether an allow rule covers a path: both the link and its target."""
    base, pattern = _locate_pattern(specifier, roots)
    inside = _ANY_FILE_INSIDE if access.is_folder else ""
    return all(_is_match(pattern, base, path + inside) for path in access.both)


def forbids_path(specifier: str, access: PathAccess, roots: PatternRoots) -> bool:
    """Whether a deny or ask rule covers a path, in the widest sense: the link or its target, in
    upper or lower case, as a file or as a folder."""
    base, pattern = (text.casefold() for text in _locate_pattern(specifier, roots))
    return any(
        _is_match(pattern, base, path.casefold() + inside, is_folder=True)
        for path in access.every
        for inside in ("", _ANY_FILE_INSIDE)
    )


def may_forbid_below(specifier: str, folder: PathAccess, roots: PatternRoots) -> bool:
    """Whether a folder may contain, at any depth, something that a rule forbids."""
    base, pattern = (text.casefold() for text in _locate_pattern(specifier, roots))
    return any(_may_be_below(pattern, base, path.casefold()) for path in folder.every)


def _may_be_below(pattern: str, base: str, path: str) -> bool:
    if is_inside(base, (path,)):
        return True
    if not is_inside(path, (base,)):
        return False
    return compile_gitignore(pattern).may_match_below(path[len(base.rstrip("/")) + 1 :])


def _is_match(pattern: str, base: str, path: str, *, is_folder: bool = False) -> bool:
    if path == base or not is_inside(path, (base,)):
        return False
    relative = path[len(base.rstrip("/")) + 1 :]
    return compile_gitignore(pattern).matches(relative, is_folder=is_folder)


def _locate_pattern(specifier: str, roots: PatternRoots) -> tuple[str, str]:
    """The folder that a pattern is relative to, and the pattern below it."""
    if specifier.startswith("//"):
        base, pattern = "/", specifier[1:]
    elif specifier.startswith("~/"):
        base, pattern = roots.home, specifier[1:]
    elif specifier.startswith("/"):
        base, pattern = roots.folder, specifier
    elif specifier.startswith("../"):
        base, pattern = _resolve_parents(roots.cwd, specifier)
    else:
        base, pattern = roots.cwd, specifier.removeprefix("./")
    compile_gitignore(pattern)
    return base, pattern


def _resolve_parents(base: str, pattern: str) -> tuple[str, str]:
    while pattern.startswith("../"):
        base, pattern = posixpath.dirname(base), pattern.removeprefix("../")
    return base, f"/{pattern}"


class GitignorePattern(Struct, frozen=True):
    segments: tuple[Segment, ...]
    is_anchored: bool
    """It starts at the pattern's folder; otherwise it may start anywhere below."""
    is_folder_only: bool

    def matches(self, path: str, *, is_folder: bool = False) -> bool:
        """Whether it matches a path, relative to the pattern's folder, or a folder around it."""
        names = path.split("/")
        lengths = range(1, len(names) + (is_folder or not self.is_folder_only))
        if not self.is_anchored:
            return any(self.segments[0].matches(names[length - 1]) for length in lengths)
        return any(spans(self.segments, names[:length]) for length in lengths)

    def may_match_below(self, folder: str) -> bool:
        """Whether it may match something in a folder, at any depth."""
        if not self.is_anchored:
            return True
        for segment, name in zip(self.segments, folder.split("/"), strict=False):
            if segment is ANY_FOLDERS:
                return True
            if not segment.matches(name):
                return False
        return True


@lru_cache(maxsize=4096)
def compile_gitignore(pattern: str) -> GitignorePattern:
    """
    Raises:
        InvalidInput: it cannot match anything, or would not match what it seems to.
    """
    if not pattern.strip("/"):
        raise InvalidInput("the pattern names nothing")
    if pattern.startswith("!"):
        raise InvalidInput(r"a pattern cannot start with ! (exclusion); write \! for the character")
    bare = pattern.removesuffix("/")
    texts = bare.removeprefix("/").split("/")
    if any(text in ("", ".", "..") for text in texts):
        raise InvalidInput(f"{pattern}: a folder in a pattern cannot be empty, `.` or `..`")
    segments = glob_segments(texts)
    if segments[-1] is ANY_FOLDERS:
        segments = (*segments, *glob_segments(["*"]))  # what is inside a folder, not the folder
    return GitignorePattern(segments, is_anchored="/" in bare, is_folder_only=bare != pattern)


def escape_path(path: str) -> str:
    """The gitignore pattern that matches a path and nothing else."""
    return "".join(f"\\{item}" if item in "\\*?[!" else item for item in path)
