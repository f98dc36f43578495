"""Globs of path-scoped rules: `**` spans folders, `{a,b}` chooses, the rest stays in one folder."""

from __future__ import annotations

import re
from collections.abc import Sequence
from fnmatch import fnmatchcase

from mainspring.core.errors import InvalidInput

_MAX_CHOICES = 256
_BRACES = re.compile(r"\{([^{}]*,[^{}]*)\}")


def expand_braces(glob: str) -> tuple[str, ...]:
    """The globs that one with braces stands for.

    Raises:
        InvalidInput: they are too many.
    """
    done: list[str] = []
    open_ = [glob]
    while open_:
        pattern = open_.pop()
        braces = _BRACES.search(pattern)
        if braces is None:
            done.append(pattern)
        else:
            before, after = pattern[: braces.start()], pattern[braces.end() :]
            open_.extend(f"{before}{choice}{after}" for choice in reversed(braces[1].split(",")))
        if len(done) + len(open_) > _MAX_CHOICES:
            raise InvalidInput(f"the glob {glob} stands for more than {_MAX_CHOICES} globs")
    return tuple(done)


def matches_glob(glob: str, path: str) -> bool:
    """Whether a glob without braces names a path; both are relative to the same folder."""
    bare = glob.removeprefix("./").lstrip("/")
    pattern = f"{bare}**" if bare.endswith("/") else bare
    return _spans(pattern.split("/"), path.split("/"))


def _spans(pattern: Sequence[str], names: Sequence[str]) -> bool:
    """Match folder by folder; a mismatch goes back to the last `**` only, so no path is slow."""
    at = here = 0
    star, resume = -1, 0
    while here < len(names):
        if at < len(pattern) and pattern[at] == "**":
            star, resume = at, here
            at += 1
        elif at < len(pattern) and fnmatchcase(names[here], pattern[at]):
            at, here = at + 1, here + 1
        elif star >= 0:
            resume += 1
            at, here = star + 1, resume
        else:
            return False
    return all(part == "**" for part in pattern[at:])
