"""Settings files and project trust, with the reader of hook scripts that they need."""

from __future__ import annotations

from collections.abc import Iterable
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from mainspring.core.lazy_module import LazyModule
from mainspring.runtime.settings import policy_loader, project_trust

if TYPE_CHECKING:
    from mainspring.capabilities.hooks import scripts
else:
    scripts = LazyModule("mainspring.capabilities.hooks.scripts")  # most projects have none


def read_scripts(commands: Iterable[str], folder: Path) -> dict[str, bytes]:
    return scripts.read_scripts(commands, folder, project=folder)


load_policy = partial(policy_loader.load_policy, read_scripts=read_scripts)
add_local_rules = partial(policy_loader.add_local_rules, read_scripts=read_scripts)
read_project_files = partial(project_trust.read_project_files, read_scripts=read_scripts)


def trust(folder: Path, *, home: Path) -> None:
    """Trust a folder's settings, and the files that its hooks run, as they are now.

    Raises: InvalidInput.
    """
    project_trust.trust(folder, read_project_files(folder, home=home), home=home)
