"""What holds for files of a workspace because of where they are, for the sessions that work there.

Which files a session may not see is not read here either.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path, PurePosixPath

from anyio import to_thread

from mainspring.config import Settings
from mainspring.core.tool import Tool
from mainspring.harness.context.instruction_files import DiskInstructionFiles
from mainspring.harness.context.instructions import load
from mainspring.harness.permissions.policy import Policy, is_hidden
from mainspring.runtime.agent_folder.folder_instructions import (
    ExtraSections,
    PathInstructions,
    places_of,
    with_path_instructions,
)
from mainspring.runtime.definition_files.scopes import MANAGED, Scopes
from mainspring.wiring.sandbox_environment import SessionPaths

_FILE_TOOLS = frozenset(("read", "edit", "write"))


async def load_nested_instructions(
    settings: Settings,
    paths: SessionPaths,
    policy: Policy,
    *,
    is_served: bool,
    also: Sequence[ExtraSections] = (),
) -> PathInstructions:
    """Of a workspace; `is_served`: nobody's home is looked into for a client of the service."""
    files = DiskInstructionFiles(is_hidden=_hidden_filter(paths, policy))
    home = None if is_served else Path(settings.home)
    scopes = Scopes(folder=paths.workspace, home=home, managed=MANAGED)
    found = places_of(scopes)
    instructions = await to_thread.run_sync(load, files, found)
    return PathInstructions(found, instructions, instruction_files=files, also=also)


def add_nested_instructions(
    tools: dict[str, Tool], path_instructions: PathInstructions
) -> dict[str, Tool]:
    return {
        name: with_path_instructions(tool, path_instructions) if name in _FILE_TOOLS else tool
        for name, tool in tools.items()
    }


def _hidden_filter(paths: SessionPaths, policy: Policy) -> Callable[[PurePosixPath], bool]:
    hidden = [PurePosixPath(paths.workspace, item) for item in paths.hidden]

    def is_out_of_sight(path: PurePosixPath) -> bool:
        own = path.as_posix()
        return any(path.is_relative_to(item) for item in hidden) or is_hidden(policy, own, own)

    return is_out_of_sight
