"""The files that the tools of a session may touch: its workspace, and what its rules add to it."""

from __future__ import annotations

import os
from collections.abc import Sequence
from functools import partial
from pathlib import Path

from mainspring.capabilities.workspace.bounds import Root
from mainspring.capabilities.workspace.tree import Tree
from mainspring.core.openat import real_path
from mainspring.harness.permissions.policy import Policy, is_guarded
from mainspring.wiring.environment import Places


def session_tree(places: Places, policy: Policy, skills: Sequence[Path]) -> Tree:
    extra = [Root(path=Path(each)) for each in policy.directories if _is_folder(places, each)]
    extra += [Root(path=each, read_only=True) for each in skills if each.is_dir()]
    return Tree(
        places.workspace,
        hidden=places.hidden,
        extra=extra,
        is_guarded=partial(is_guarded, policy),
        aliases=places.aliases,
    )


def _is_folder(places: Places, path: str) -> bool:
    """By no link of the workspace: a program may have made that."""
    try:
        return os.path.isdir(real_path(path, distrusted=[str(places.workspace)]))
    except OSError:
        return False
