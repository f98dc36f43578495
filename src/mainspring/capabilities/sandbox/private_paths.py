"""Files of the operator's that no program may reach, whichever folder it is shown: the store, the
vault and its key. Folders are compared by what they are, not by what they are called."""

from __future__ import annotations

import os
from collections.abc import Iterable
from pathlib import Path
from typing import TypeAlias

from mainspring.capabilities.sandbox.cage import Site
from mainspring.capabilities.sandbox.interpreter import agent_interpreter
from mainspring.core.errors import SandboxFailed

Identity: TypeAlias = tuple[int, int]
"""Device and inode."""
SYSTEM = ("/usr", "/bin", "/sbin", "/lib", "/lib32", "/lib64", "/opt/homebrew")
"""What every program is shown, by one backend or another."""


def holders(paths: Iterable[Path]) -> dict[Identity, Path]:
    """Everything that shows one of these files if it is mounted: the file itself, and every folder
    above it. A file that is not there yet has the folders that it would be made in."""
    found: dict[Identity, Path] = {}
    for path in paths:
        real = Path(os.path.realpath(path))
        for each in (real, *real.parents):
            if (identity := identity_of(each)) is not None:
                found.setdefault(identity, path)
    return found


def identity_of(path: Path) -> Identity | None:
    try:
        state = path.stat()
    except OSError:
        return None
    return state.st_dev, state.st_ino


def refuse_private(site: Site) -> None:
    """
    Raises:
        SandboxFailed: programs would be shown a private file; it says which, and by what.
    """
    workspace = identity_of(site.workspace)
    elsewhere = [path for path in site.private if workspace not in holders([path])]
    home = agent_interpreter().home
    named = (*site.read_only, *([site.share] if site.share else []))
    for folders, private in ((named, site.private), ((*SYSTEM, home or "/usr"), elsewhere)):
        held = holders(private)
        for folder in folders:
            if (path := held.get(identity_of(Path(folder)) or (0, 0))) is not None:
                raise SandboxFailed(
                    f"not run: {folder} is shown to programs, and {path} is in it: keep that"
                    " elsewhere, or name narrower folders under `readOnly`"
                )
    hidden = {identity_of(site.workspace / each) for each in site.hidden}
    for path in filter(Path.exists, site.private):
        above = holders([path])
        if workspace in above and not hidden & above.keys():
            raise SandboxFailed(
                f"not run: {path} is in the workspace, where programs could read it: keep it"
                " elsewhere"
            )
