"""The sandbox settings, network rules and folders of a session."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec

from mainspring.capabilities.sandbox.private_files import PrivateFiles
from mainspring.capabilities.sandbox.sandbox_environment import (
    EnvironmentPackages,
    SandboxEnvironment,
)
from mainspring.config import FOLDER, Settings, is_postgres
from mainspring.core.errors import InvalidInput
from mainspring.core.lazy_module import LazyModule
from mainspring.runtime.definition_files.settings_file import is_for_sandbox
from mainspring.runtime.session.session_paths import SessionPaths, StateFolders

if TYPE_CHECKING:
    from mainspring.capabilities.mcp.programs import package_request
    from mainspring.capabilities.network import rules as network
else:
    package_request = LazyModule("mainspring.capabilities.mcp.programs.package_request")
    network = LazyModule("mainspring.capabilities.network.rules")


def read_environment(
    raw: Mapping[str, object], variables: Mapping[str, str] | None = None
) -> SandboxEnvironment:
    """Raises: InvalidInput."""
    try:
        environment = msgspec.convert(raw, SandboxEnvironment)
        egress_rules(environment)
        if (packages := environment.packages) != EnvironmentPackages():
            package_request.package_requests(packages.python, packages.npm, packages.apt)
    except msgspec.ValidationError as error:
        raise InvalidInput(f"the settings of the sandbox are wrong: {error}") from error
    own = {name: text for name, text in environment.variables.items() if is_for_sandbox(name)}
    return msgspec.structs.replace(environment, variables={**own, **(variables or {})})


def egress_rules(environment: SandboxEnvironment) -> network.EgressRules | None:
    """Which hosts programs may reach; `None`: there is no network. Raises: InvalidInput."""
    return network.parse_rules(environment.networking) if environment.networking else None


def private_files(settings: Settings) -> PrivateFiles:
    return PrivateFiles(
        store=None if is_postgres(settings.store) else Path(settings.store),
        vault=Path(settings.vault) if settings.vault else None,
        workspaces=Path(settings.workspaces),
    )


def session_paths(settings: Settings, workspace: Path, session_id: str) -> SessionPaths:
    """Raises: InvalidInput: the workspace does not exist, or is too large to work in."""
    return state_folders(settings).session_paths(workspace, session_id)


def state_folders(settings: Settings) -> StateFolders:
    private = private_files(settings)
    return StateFolders(
        name=FOLDER,
        home=Path(settings.home),
        workspaces=Path(settings.workspaces) if settings.workspaces else None,
        store=private.store,
        private=private.paths,
    )
