"""What holds for files of a workspace because of where they are, for the sessions that work there.

Which files a session may not see is not read here either.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path, PurePosixPath

from anyio import to_thread

from mainspring.config import Settings
from mainspring.core.tool import Tool
from mainspring.harness.context.disk import Disk
from mainspring.harness.context.instructions import load
from mainspring.harness.permissions.policy import Policy, is_hidden
from mainspring.runtime.folder.instructed import places_of
from mainspring.runtime.folder.scopes import MANAGED, Scopes
from mainspring.runtime.folder.surroundings import Bringing, Surroundings, surrounded
from mainspring.wiring.environment import Places

_ON_FILES = frozenset(("read", "edit", "write"))


async def look_around(
    settings: Settings,
    places: Places,
    policy: Policy,
    *,
    is_served: bool,
    also: Sequence[Bringing] = (),
) -> Surroundings:
    """Of a workspace; `is_served`: nobody's home is looked into for a client of the service."""
    files = Disk(is_hidden=_hidden(places, policy))
    home = None if is_served else Path(settings.home)
    scopes = Scopes(folder=places.workspace, home=home, managed=MANAGED)
    found = places_of(scopes)
    instructions = await to_thread.run_sync(load, files, found)
    return Surroundings(found, instructions, files=files, also=also)


def with_surroundings(tools: dict[str, Tool], surroundings: Surroundings) -> dict[str, Tool]:
    return {
        name: surrounded(tool, surroundings) if name in _ON_FILES else tool
        for name, tool in tools.items()
    }


def _hidden(places: Places, policy: Policy) -> Callable[[PurePosixPath], bool]:
    hidden = [PurePosixPath(places.workspace, each) for each in places.hidden]

    def is_out_of_sight(path: PurePosixPath) -> bool:
        own = path.as_posix()
        return any(path.is_relative_to(each) for each in hidden) or is_hidden(policy, own, own)

    return is_out_of_sight
