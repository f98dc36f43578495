"""Sandbox settings and folders of a session: what trusted settings say about its sandbox and
network.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec
from msgspec import Struct, field

from mainspring.capabilities.sandbox.backend import SandboxLimits, SandboxSpec
from mainspring.capabilities.sandbox.backend_selection import BackendName
from mainspring.config import FOLDER, Settings, is_postgres
from mainspring.core import error_table
from mainspring.core.errors import InvalidInput
from mainspring.core.lazy_module import LazyModule
from mainspring.core.openat import real_path
from mainspring.harness.permissions.policy import Policy, is_hidden, is_unchangeable
from mainspring.harness.permissions.protected_path_watcher import PROTECTED_PATHS, GitRepositories
from mainspring.runtime.definition_files.settings_file import is_for_sandbox
from mainspring.wiring.private_files import private_files

if TYPE_CHECKING:
    from mainspring.capabilities.network import rules as network
else:
    network = LazyModule("mainspring.capabilities.network.rules")

_MAX_DENIED_PATHS = 200
WORKSPACE_ALIASES = ("/workspace", "/mnt/session")
"""What clients of the service call the workspace of a session; its tools know these names too."""
SERVED_STATE_FOLDER = ".state"
"""Beside the workspaces of the service's sessions: what is kept of their hands."""


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


@dataclass(frozen=True, slots=True, kw_only=True)
class SessionPaths:
    """The folders of one session's hands."""

    workspace: Path
    state: Path
    """Private: what the sandbox keeps of its programs."""
    snapshots: Path
    transcripts: Path
    """Private: what hooks read of the conversation."""
    hidden: tuple[str, ...]
    """In the workspace, relative to it, and not the session's to see."""
    protected: tuple[str, ...] = ()
    """In the workspace, relative to it: programs may not change it."""
    watched: tuple[str, ...] = ()
    """The same; and programs may not make it, where it is not there."""
    git_repositories: GitRepositories | None = None
    """As they were found; `None`: nobody has looked."""
    beside: tuple[Path, ...] = ()
    """Outside of the workspace, or hidden there: programs may read it all the same."""
    private: tuple[Path, ...] = ()
    """The operator's files: see `Site`."""
    aliases: tuple[str, ...] = ()
    """Absolute paths that lead to the workspace besides its own."""
    distrusted: tuple[Path, ...] = ()
    """Other folders that programs of the session can change, such as links in them."""

    def needs_mount(self, folder: Path) -> bool:
        """Whether it has to be shown besides: it is elsewhere, or hidden here. One that a link in
        the workspace leads to is not: a program may have made that link."""
        untrusted = [str(item) for item in (self.workspace, *self.distrusted)]
        try:
            real = Path(real_path(str(folder), distrusted=untrusted))
        except OSError:
            return False
        if not real.is_relative_to(self.workspace):
            return True
        hidden = any(real.is_relative_to(self.workspace / item) for item in self.hidden)
        return hidden and real == folder


def add_protected_paths(paths: SessionPaths, policy: Policy) -> SessionPaths:
    """What a session protects besides is kept from its programs, too."""
    own = (Path(item) for item in policy.protected)
    inside = (item for item in own if item.is_relative_to(paths.workspace))
    watched = tuple(item.relative_to(paths.workspace).as_posix() for item in inside)
    return replace(paths, watched=watched)


def hide_denied_paths(paths: SessionPaths, policy: Policy) -> SessionPaths:
    """Files that a rule forbids to read are not to be seen by programs either, and those that one
    forbids to edit are not to be changed by them.

    Looks at the workspace as it is; what is made later, is made by the session itself.
    """
    if not any(rule.behavior == "deny" for rule in policy.rules):
        return paths
    hidden: list[str] = []
    protected: list[str] = []
    covered: set[str] = set()
    """Folders of which all that is in them is protected."""
    for folder, folders, files in os.walk(paths.workspace):
        is_covered = folder in covered
        for name in (*folders, *files):
            path = os.path.join(folder, name)
            target = _link_target(path)
            if is_hidden(policy, path, target):
                hidden.append(os.path.relpath(path, paths.workspace))
            elif is_covered:
                covered.add(path)
            elif is_unchangeable(policy, path, target):
                covered.add(path)
                protected.append(os.path.relpath(path, paths.workspace))
        known = {*hidden, *paths.hidden}
        folders[:] = [
            name
            for name in folders
            if os.path.relpath(os.path.join(folder, name), paths.workspace) not in known
        ]
        _refuse_many(hidden, "read")
        _refuse_many(protected, "edit")
    return replace(paths, hidden=(*paths.hidden, *hidden), protected=tuple(protected))


def _link_target(path: str) -> str:
    """Where a link leads; programs may be changing it."""
    with suppress(OSError):
        return os.path.realpath(path) if os.path.islink(path) else path
    return path


def _refuse_many(found: list[str], access: str) -> None:
    if len(found) > _MAX_DENIED_PATHS:
        raise InvalidInput(
            f"rules forbid to {access} over {_MAX_DENIED_PATHS} paths: name their folders"
        )


def session_paths(settings: Settings, workspace: Path, session_id: str) -> SessionPaths:
    """
    Raises:
        InvalidInput: the workspace is not there, or too much to work in.
    """
    workspace = workspace.resolve()
    if not workspace.is_dir():
        raise error_table.NO_WORKSPACE.error(InvalidInput, folder=workspace)
    if Path(settings.home).resolve().is_relative_to(workspace):
        raise error_table.NOT_A_PROJECT.error(InvalidInput, folder=workspace)
    own, hidden = workspace / FOLDER, {FOLDER}
    if settings.workspaces and workspace.parent == Path(settings.workspaces).resolve():
        own = _served_folder(settings)  # the same whichever store it is, on a disk that is shared
    elif not is_postgres(settings.store):
        store = Path(settings.store).resolve()
        if store.parent != workspace:
            own = store.parent
    if own.is_relative_to(workspace):
        hidden.add(own.relative_to(workspace).as_posix())
    private = private_files(settings)
    hidden |= _visible_private_files(private, workspace, frozenset(hidden))
    places = _paths_in(own, workspace, session_id)
    return replace(places, hidden=tuple(sorted(hidden)), private=private)


def served_session_paths(settings: Settings, session_id: str) -> SessionPaths:
    """Of a session of the service, to remove what is there: its workspace may be gone."""
    workspace = Path(settings.workspaces).resolve() / session_id
    return _paths_in(_served_folder(settings), workspace, session_id)


def _paths_in(own: Path, workspace: Path, session_id: str) -> SessionPaths:
    return SessionPaths(
        workspace=workspace,
        state=own / "hands" / session_id,
        snapshots=own / "snapshots" / workspace.as_posix().encode().hex()[-120:],
        transcripts=own / "transcripts",
        hidden=(),
    )


def _served_folder(settings: Settings) -> Path:
    return Path(settings.workspaces).resolve() / SERVED_STATE_FOLDER


def served_states(settings: Settings) -> Path:
    """Where the states of the service's sessions are: see `Places.state`."""
    return _served_folder(settings) / "hands"


def _visible_private_files(
    private: Iterable[Path], workspace: Path, hidden: frozenset[str]
) -> set[str]:
    """Private files in the workspace that no hidden folder is around."""
    return {
        item.relative_to(workspace).as_posix()
        for item in (path.resolve() for path in private)
        if item.is_relative_to(workspace)
        and not any(item.is_relative_to(workspace / folder) for folder in hidden)
    }


def thread_sandbox_id(session_id: str, thread_id: str) -> str:
    """What the hands of a thread are called that has its own: short, for a path of a socket."""
    return f"{session_id}-{thread_id[-12:]}"


def worktree_paths(
    paths: SessionPaths, workspace: Path, thread_id: str, repository: Path
) -> SessionPaths:
    """Where a thread's hands work that has a folder of its own: a git worktree of the workspace.
    It sees the repository that the worktree is of, and does not change it."""
    return replace(
        paths,
        workspace=workspace,
        aliases=(),
        state=paths.state.with_name(thread_sandbox_id(paths.state.name, thread_id)),
        hidden=(),
        protected=(),
        watched=(),
        git_repositories=None,
        beside=(*paths.beside, repository),
        distrusted=(*paths.distrusted, paths.workspace),
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
