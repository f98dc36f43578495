"""Where commands run, and the state of the disk there, for the permission engine."""

from __future__ import annotations

import os
from collections.abc import Collection, Mapping
from functools import partial

from mainspring.core.workspace_aliases import aliased_folder
from mainspring.harness.permissions.call_analysis import CallLocation
from mainspring.harness.permissions.path_rules import is_inside
from mainspring.harness.permissions.policy import Policy


def read_command_location(policy: Policy, aliases: Collection[str] = ()) -> CallLocation:
    """Where the commands of a session run, by the current state of the disk. `aliases` are links
    into the workspace that exist only in the sandbox."""
    workspace = policy.workspace
    outer_aliases = tuple(
        alias
        for alias in aliases
        if not is_inside(alias, (workspace,)) and not is_inside(workspace, (alias,))
    )
    links = {
        alias: os.path.join(workspace, aliased_folder(alias)).rstrip("/") for alias in outer_aliases
    }
    return CallLocation(
        workspace=policy.workspace,
        cwd=policy.workspace,
        home=policy.home,
        resolve=partial(_resolve, links=links),
        is_folder=os.path.isdir,
        names=_names,
        aliases=outer_aliases,
    )


def _resolve(path: str, links: Mapping[str, str]) -> str:
    """Resolve a path. `links` are links that are not on the disk.

    Raises:
        OSError: it leads through /proc, which differs for each process, or in circles.
    """
    current, pending, links_left = "/", path.split("/")[::-1], 40
    while pending:
        part = pending.pop()
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
            pending.extend(link.split("/")[::-1])
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
        return [".git"]  # a folder that cannot be read may be a repository
