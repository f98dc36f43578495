"""A walk over a tree by descriptors: no link is followed, nothing hidden is met."""

from __future__ import annotations

import os
import stat
from collections.abc import Collection, Generator, Iterator
from contextlib import suppress
from dataclasses import dataclass

from mainspring.capabilities.workspace.bounds import Bounds, Parts
from mainspring.capabilities.workspace.descent import MAX_DEPTH, OPEN_FOLDER, identities


@dataclass(frozen=True, slots=True)
class Met:
    """Something on the way. Its folder is open until the next one is asked for."""

    path: str
    """From where the walk began."""
    name: str
    folder: int
    state: os.stat_result
    is_closed: bool = False
    """A folder that cannot be entered: no permission, or too deep."""


@dataclass(frozen=True, slots=True)
class Walk:
    bounds: Bounds
    hidden: frozenset[tuple[int, int]]
    deepest: int
    skip: Collection[str]

    def below(self, folder: int, parts: Parts, path: str, depth: int = 0) -> Generator[Met]:
        for name, state in _listed(folder):
            here = (*parts, name)
            if (state.st_dev, state.st_ino) in self.hidden or self.bounds.is_hidden(here):
                continue
            met = Met(f"{path}{name}", name, folder, state)
            if not stat.S_ISDIR(state.st_mode):
                yield met
                continue
            inner = self._entered(met) if depth < self.deepest else None
            yield met if inner is not None else Met(met.path, name, folder, state, is_closed=True)
            if inner is None:
                continue
            try:
                if name not in self.skip:
                    yield from self.below(inner, here, f"{met.path}/", depth + 1)
            finally:
                os.close(inner)

    def _entered(self, met: Met) -> int | None:
        """Open a folder, if it still is the one that was met."""
        try:
            inner = os.open(met.name, OPEN_FOLDER, dir_fd=met.folder)
        except OSError:
            return None
        with suppress(OSError):  # one that may be read and not searched gives names, and no more
            if os.path.samestat(os.stat(".", dir_fd=inner), met.state):
                return inner
        os.close(inner)
        return None


def walk(
    bounds: Bounds,
    folder: int,
    parts: Parts,
    *,
    depth: int = MAX_DEPTH,
    skip: Collection[str] = (),
) -> Generator[Met]:
    """All that is below an open folder, each folder before what is in it, names in order."""
    return Walk(bounds, identities(bounds), depth, skip).below(folder, parts, "")


def _listed(folder: int) -> Iterator[tuple[str, os.stat_result]]:
    with os.scandir(folder) as found:
        entries = sorted(found, key=lambda entry: entry.name)
    for entry in entries:
        with suppress(FileNotFoundError):  # gone since
            yield entry.name, entry.stat(follow_symlinks=False)
