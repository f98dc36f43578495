"""The sandboxes of this user's sessions: what they mount and protect, and their network access."""

from __future__ import annotations

import shutil
import sys
from collections.abc import Mapping
from contextlib import AsyncExitStack
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, TypeAlias

from anyio import to_thread
from msgspec import Struct

from mainspring.capabilities.sandbox import sandbox_pool as pools
from mainspring.capabilities.sandbox.backend import PACKAGE_ROOT, SandboxSpec
from mainspring.capabilities.sandbox.readonly_mounts import open_readonly_mount
from mainspring.capabilities.sandbox.sandbox_pool import MAX_IDLE, PreparedSandbox, Proxy
from mainspring.config import FOLDER, Settings
from mainspring.core.lazy_module import LazyModule
from mainspring.harness.permissions import abandoned_guards
from mainspring.harness.permissions.protected_path_watcher import (
    PROTECTED_PATHS,
    ProtectedPathWatcher,
    find_repositories,
    memory_paths,
    still_protected,
)
from mainspring.runtime.session.session_paths import SessionPaths, thread_sandbox_id
from mainspring.wiring.sandbox_environment import egress_rules
from mainspring.wiring.user_vault import user_vault

if TYPE_CHECKING:
    from mainspring.wiring import session_egress
else:
    session_egress = LazyModule("mainspring.wiring.session_egress")  # most sessions have none

_END_GUARD = (
    "import sys; sys.path.insert(0, sys.argv[1]);"
    " from mainspring.harness.permissions.abandoned_guards import main; main()"
)

SandboxPool: TypeAlias = pools.SandboxPool[SessionPaths]
SandboxRequest: TypeAlias = pools.SandboxRequest[SessionPaths]


def sandbox_pool(
    settings: Settings, *, is_unsandboxed: bool = False, most_idle: int = MAX_IDLE
) -> SandboxPool:
    return pools.SandboxPool(
        _SandboxPlans(settings),
        cache=Path(settings.home, FOLDER, "sandboxes.json"),
        is_unsandboxed=is_unsandboxed,
        most_idle=most_idle,
    )


class _SandboxPlans(Struct, frozen=True):
    settings: Settings

    def spec(self, request: SandboxRequest) -> SandboxSpec:
        paths, environment = request.paths, request.environment
        workspace = paths.workspace
        return SandboxSpec(
            session_id=request.session_id,
            workspace=workspace,
            aliases=tuple(Path(alias) for alias in paths.aliases),
            state=paths.state,
            read_only=(
                *(Path(item).expanduser().absolute() for item in environment.read_only),
                *paths.readable,
            ),
            distrusted=paths.distrusted,
            hidden=tuple(workspace / item for item in paths.hidden),
            private=paths.private,
            protected=tuple(workspace / item for item in (*PROTECTED_PATHS, *paths.protected)),
            sandbox_limits=environment.sandbox_limits,
            network=bool(environment.networking),
            guard=paths.state,
            end_guard=(sys.executable, "-I", "-c", _END_GUARD, str(PACKAGE_ROOT), str(paths.state)),
        )

    def end_abandoned_guards(self, states: Path) -> list[str]:
        return abandoned_guards.end_abandoned_guards(states)

    async def prepare(
        self, request: SandboxRequest, spec: SandboxSpec, cleanup: AsyncExitStack
    ) -> PreparedSandbox:
        paths = request.paths
        repositories = paths.git_repositories or await to_thread.run_sync(
            find_repositories, paths.workspace, paths.hidden
        )
        watched = (*repositories.control_files, *paths.watched)
        memories = await to_thread.run_sync(memory_paths, paths.workspace)
        watcher = await to_thread.run_sync(
            ProtectedPathWatcher, paths.workspace, watched, repositories, paths.state
        )
        share, proxy, variables = await _open_egress(self.settings, request, cleanup)
        protected = (spec.workspace / path for path in (*watched, *memories))
        spec = replace(spec, share=share, protected=(*spec.protected, *protected))

        def spec_of_another(name: str) -> SandboxSpec:
            return replace(
                spec,
                state=spec.state.with_name(thread_sandbox_id(spec.state.name, name)),
                protected=still_protected(spec.workspace, spec.protected),
            )

        return PreparedSandbox(
            spec=spec,
            spec_of_another=spec_of_another,
            path_watcher=watcher,
            variables=variables,
            proxy=proxy,
        )


async def _open_egress(
    settings: Settings, request: SandboxRequest, cleanup: AsyncExitStack
) -> tuple[Path | None, Proxy | None, Mapping[str, str]]:
    """The folder that the sandbox shares, the proxy, and the variables that name it."""
    rules = egress_rules(request.environment)
    if rules is None:
        return None, None, {}
    credentials = request.credentials
    if credentials is None:
        credentials = user_vault(settings).credentials(request.environment.secrets)
    share = open_readonly_mount(request.session_id)
    cleanup.callback(shutil.rmtree, share, ignore_errors=True)
    proxy, variables = await session_egress.open_egress(
        rules, credentials, share=share, audit=request.audit
    )
    return share, proxy, variables
