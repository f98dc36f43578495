"""Where commands run and what the disk looks like there, for the permission engine."""

from __future__ import annotations

import os
from collections.abc import Collection, Mapping
from functools import partial

from mainspring.harness.permissions.call_analysis import CallLocation
from mainspring.harness.permissions.path_rules import is_inside
from mainspring.harness.permissions.policy import Policy


def read_command_location(policy: Policy, aliases: Collection[str] = ()) -> CallLocation:
    """Where the commands of a session run, by what is on the disk now. `aliases` are links to the
    workspace that only the sandbox has."""
    workspace = policy.workspace
    free = tuple(
        alias
        for alias in aliases
        if not is_inside(alias, (workspace,)) and not is_inside(workspace, (alias,))
    )
    return CallLocation(
        workspace=policy.workspace,
        cwd=policy.workspace,
        home=policy.home,
        resolve=partial(_resolve, links=dict.fromkeys(free, workspace)),
        is_folder=os.path.isdir,
        names=_names,
        aliases=free,
    )


def _resolve(path: str, links: Mapping[str, str]) -> str:
    """`links`: those that are not on the disk.

    Raises:
        OSError: it leads through /proc, where each process finds something else, or in circles.
    """
    current, waiting, links_left = "/", path.split("/")[::-1], 40
    while waiting:
        part = waiting.pop()
        if part == "..":
            current = os.path.dirname(current)
        if part in ("", ".", ".."):
            continue
        current = os.path.join(current, part)
        if current.startswith("/proc/"):
            raise OSError(f"{path} leads through /proc")
        link = links.get(current) or _link_target(current)
        if link is not None:
            links_left -= 1
            if links_left < 0:
                raise OSError(f"{path} leads in circles")
            current = "/" if link.startswith("/") else os.path.dirname(current)
            waiting.extend(link.split("/")[::-1])
    return current


def _link_target(path: str) -> str | None:
    try:
        return os.readlink(path)
    except OSError:
        return None


def _names(folder: str) -> list[str]:
    try:
        return os.listdir(folder)
    except (FileNotFoundError, NotADirectoryError):
        return []
    except (OSError, ValueError):
        return [".git"]  # what cannot be looked into may be a repository
