"""Sandbox settings and folders of a session: what trusted settings say about its sandbox and
network.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec
from msgspec import Struct, field

from mainspring.capabilities.sandbox.backend import SandboxLimits, SandboxSpec
from mainspring.capabilities.sandbox.backend_selection import BackendName, SandboxSettings
from mainspring.capabilities.sandbox.private_files import PrivateFiles
from mainspring.capabilities.sandbox.sandbox_probes import SandboxProbe, probe_sandboxes
from mainspring.config import FOLDER, Settings, is_postgres
from mainspring.core.errors import InvalidInput
from mainspring.core.lazy_module import LazyModule
from mainspring.harness.permissions.protected_path_watcher import PROTECTED_PATHS
from mainspring.runtime.definition_files.settings_file import is_for_sandbox
from mainspring.runtime.session.session_paths import SessionPaths, StateFolders

if TYPE_CHECKING:
    from mainspring.capabilities.network import rules as network
else:
    network = LazyModule("mainspring.capabilities.network.rules")


class _Limits(Struct, frozen=True, kw_only=True, rename="camel", forbid_unknown_fields=True):
    cpu_seconds: int = SandboxLimits().cpu_seconds
    memory_bytes: int = SandboxLimits().memory_bytes
    processes: int = SandboxLimits().processes
    file_bytes: int = SandboxLimits().file_bytes
    open_files: int = SandboxLimits().open_files
    disk_bytes: int = SandboxLimits().disk_bytes
    tmp_bytes: int = SandboxLimits().tmp_bytes
    output_bytes: int = SandboxLimits().output_bytes


class SandboxEnvironment(Struct, frozen=True, kw_only=True, rename="camel"):
    """The `sandbox` part of a settings file; what others keep there is left alone."""

    backend: BackendName | None = None
    """This one or nothing; the first that holds, unless given."""
    disabled_backends: tuple[BackendName, ...] = ()
    allow_degraded: bool = False
    image: str | None = None
    """For the backend `docker`."""
    networking: dict[str, object] = field(default_factory=dict[str, object])
    """As the Managed Agents API has it: `{"type": "limited", "allowed_hosts": [...]}`."""
    read_only: tuple[str, ...] = ()
    """Folders outside the workspace that programs may read: toolchains."""
    limits: _Limits = _Limits()
    secrets: tuple[str, ...] | None = None
    """Names of secrets in the vault that programs may use; all that have hosts, unless given."""
    variables: dict[str, str] = field(default_factory=dict[str, str])
    """For programs, beside what `env` of the settings files gives them."""

    @property
    def rules(self) -> network.EgressRules | None:
        """Which hosts may be reached; `None`: there is no network."""
        return network.parse_rules(self.networking) if self.networking else None


def read_environment(
    raw: Mapping[str, object], variables: Mapping[str, str] | None = None
) -> SandboxEnvironment:
    """Raises: InvalidInput."""
    try:
        environment = msgspec.convert(raw, SandboxEnvironment)
        _ = environment.rules
    except msgspec.ValidationError as error:
        raise InvalidInput(f"the settings of the sandbox are wrong: {error}") from error
    own = {name: text for name, text in environment.variables.items() if is_for_sandbox(name)}
    return msgspec.structs.replace(environment, variables={**own, **(variables or {})})


def private_files(settings: Settings) -> PrivateFiles:
    return PrivateFiles(
        store=None if is_postgres(settings.store) else Path(settings.store),
        vault=Path(settings.vault) if settings.vault else None,
        workspaces=Path(settings.workspaces),
    )


def session_paths(settings: Settings, workspace: Path, session_id: str) -> SessionPaths:
    """Raises: InvalidInput: the workspace does not exist, or is too large to work in."""
    return _state_folders(settings).session_paths(workspace, session_id)


def served_session_paths(settings: Settings, session_id: str) -> SessionPaths:
    """Of a session of the service, to remove its files: its workspace may be gone."""
    return _state_folders(settings).served_paths(session_id)


def served_states(settings: Settings) -> Path:
    """Where the states of the service's sessions are: see `SessionPaths.state`."""
    return served_session_paths(settings, "any").state.parent


def _state_folders(settings: Settings) -> StateFolders:
    private = private_files(settings)
    return StateFolders(
        name=FOLDER,
        home=Path(settings.home),
        workspaces=Path(settings.workspaces) if settings.workspaces else None,
        store=private.store,
        private=private.paths,
    )


def sandbox_site(
    paths: SessionPaths,
    sandbox_environment: SandboxEnvironment,
    *,
    session_id: str,
    share: Path | None,
) -> SandboxSpec:
    workspace = paths.workspace
    limits = sandbox_environment.limits
    return SandboxSpec(
        session_id=session_id,
        workspace=workspace,
        aliases=tuple(Path(alias) for alias in paths.aliases),
        state=paths.state,
        share=share,
        read_only=(
            *(Path(item).expanduser().absolute() for item in sandbox_environment.read_only),
            *paths.beside,
        ),
        distrusted=paths.distrusted,
        hidden=tuple(workspace / item for item in paths.hidden),
        private=paths.private,
        protected=tuple(workspace / item for item in (*PROTECTED_PATHS, *paths.protected)),
        sandbox_limits=SandboxLimits(
            **{name: getattr(limits, name) for name in limits.__struct_fields__}
        ),
        network=sandbox_environment.rules is not None,
    )


def check_private_files(settings: Settings) -> list[SandboxProbe]:
    return private_files(settings).probe(Path(settings.folder))


async def check_sandboxes() -> list[SandboxProbe]:
    return await probe_sandboxes(SandboxSettings())
