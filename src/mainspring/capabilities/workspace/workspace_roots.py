"""Paths of a workspace as text: the root of each, and which are hidden. No I/O, except to resolve
roots."""

from __future__ import annotations

import os
from collections.abc import Callable, Collection, Sequence
from pathlib import Path
from typing import TypeAlias

from msgspec import Struct

from mainspring.core.errors import InvalidInput, OutsideWorkspace
from mainspring.core.workspace_aliases import aliased_folder
from mainspring.files.file_names import fold_name
from mainspring.files.openat import real_path

PathParts: TypeAlias = tuple[str, ...]
"""The components of an absolute path."""

MAX_PATH_BYTES = 4096  # the kernel's PATH_MAX


class Root(Struct, frozen=True, kw_only=True):
    path: Path
    read_only: bool = False


class RequestedPath(Struct, frozen=True):
    """A requested path: the root to start from, and the steps to follow."""

    root: PathParts
    steps: list[str]


def path_parts(path: str) -> PathParts:
    return tuple(step for step in path.split("/") if step not in ("", "."))


def printable_path(path: str) -> str:
    """A path for people and models: on one line, without invalid characters."""
    return path if path.isprintable() else ascii(path)


class WorkspaceRoots:
    """The roots of a workspace, the first of which is for relative paths, and the hidden paths."""

    def __init__(
        self,
        roots: Sequence[Root],
        hidden: Collection[str],
        *,
        is_guarded: Callable[[str], bool] = lambda _: False,
        aliases: Collection[str] = (),
    ) -> None:
        """`aliases`: absolute paths that mean the first root, or a folder in it, whatever exists
        there on the host."""
        self.is_guarded = is_guarded
        if os.name != "posix":
            raise InvalidInput("a workspace needs Linux or macOS")
        main = os.path.realpath(roots[0].path)
        extra = [path_parts(_real_root(root, main)) for root in roots[1:]]
        self._roots = [path_parts(main), *extra]
        pairs = list(zip(self._roots, roots, strict=True))
        self._read_only = {real: root.read_only for real, root in pairs}
        for root, real in zip(roots, self._roots, strict=True):
            if not os.path.isdir(absolute_path(real)):
                raise InvalidInput(f"{root.path}: there is no such folder")
        # Also as the caller writes them: on macOS /tmp is a link, and link targets contain it.
        named_roots = {
            path_parts(os.path.abspath(root.path)): real
            for root, real in zip(roots, self._roots, strict=True)
        }
        all_roots = {**named_roots, **{real: real for real in self._roots}}
        self._aliases = {
            alias: path_parts(aliased_folder(absolute_path(alias)))
            for alias in map(path_parts, aliases)
            if alias not in all_roots
        }
        all_roots |= dict.fromkeys(self._aliases, self._roots[0])
        self._roots_by_alias = sorted(all_roots.items(), key=lambda all_roots: -len(all_roots[0]))
        self.hidden = frozenset(self._hidden_parts(hidden))
        self._folded_hidden = frozenset(map(_folded_parts, self.hidden))
        self._hidden_depths = frozenset(map(len, self.hidden))

    def _hidden_parts(self, hidden: Collection[str]) -> list[PathParts]:
        below = [path_parts(path) for path in hidden if not path.startswith("/")]
        parts = [path_parts(path) for path in hidden if path.startswith("/")]
        if () in below or ".." in {step for path in below for step in path}:
            raise InvalidInput("hidden paths are relative to the root")
        return [*parts, *(root + path for root in self._roots for path in below)]

    @property
    def main(self) -> PathParts:
        return self._roots[0]

    def place(self, path: str) -> RequestedPath:
        """The root of a path, and the steps below it.

        Raises:
            OutsideWorkspace: it is not a path, or under none of the roots.
        """
        _check_path(path)
        steps = path_parts(path)
        if not path.startswith("/"):
            return RequestedPath(self.main, list(steps))
        for alias, root in self._roots_by_alias:
            if steps[: len(alias)] == alias:
                folder = self._aliases.get(alias, ())
                return RequestedPath(root, [*folder, *steps[len(alias) :]])
        where = absolute_path(self.main)
        raise OutsideWorkspace(f"{printable_path(path)} is outside the workspace {where}")

    def named(self, path: str) -> str:
        """The absolute path as text, without aliases: permission rules are matched against this."""
        absolute = os.path.normpath(os.path.join(absolute_path(self.main), path))
        steps = path_parts(absolute)
        for alias, _ in self._roots_by_alias:  # sorted: a root below an alias comes first
            if steps[: len(alias)] == alias:
                if alias not in self._aliases:
                    return absolute
                return absolute_path((*self.main, *self._aliases[alias], *steps[len(alias) :]))
        return absolute

    def is_hidden(self, parts: PathParts) -> bool:
        """Whether exactly this path is hidden; path resolution checks every step."""
        return len(parts) in self._hidden_depths and _folded_parts(parts) in self._folded_hidden

    def is_read_only(self, parts: PathParts) -> bool:
        """Whether the innermost root around a path is read-only; paths outside all roots are."""
        around = [root for root in self._roots if parts[: len(root)] == root]
        return self._read_only[max(around, key=len)] if around else True


def _real_root(root: Root, main: str) -> str:
    """The real path of a further root, without following a link in the workspace, which a program
    may have made.

    Raises:
        InvalidInput: it does not exist.
    """
    try:
        return real_path(os.path.abspath(root.path), distrusted=[main])
    except OSError as error:
        raise InvalidInput(f"{root.path}: {error.strerror}") from error


def absolute_path(parts: PathParts) -> str:
    return "/" + "/".join(parts)


def _check_path(path: str) -> None:
    if "\0" in path:
        raise OutsideWorkspace("a path must not contain NUL")
    if path.startswith("~"):
        raise OutsideWorkspace(f"{printable_path(path)}: ~ is not expanded: write the path in full")
    try:
        length = len(os.fsencode(path))
    except UnicodeEncodeError:
        raise OutsideWorkspace(f"{printable_path(path)}: not a valid file name") from None
    if length > MAX_PATH_BYTES:
        raise OutsideWorkspace(f"a path has at most {MAX_PATH_BYTES} bytes")


def _folded_parts(parts: PathParts) -> PathParts:
    return tuple(map(fold_name, parts))
