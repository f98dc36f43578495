"""The sandboxes of this user's sessions: what they mount and protect, and their network access."""

from __future__ import annotations

import shutil
from collections.abc import Mapping
from contextlib import AsyncExitStack
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, TypeAlias

from anyio import to_thread
from msgspec import Struct, structs

from mainspring.capabilities.sandbox import sandbox_pool as pools
from mainspring.capabilities.sandbox.backend import SandboxSpec
from mainspring.capabilities.sandbox.readonly_mounts import open_readonly_mount
from mainspring.capabilities.sandbox.sandbox_pool import MAX_IDLE, PreparedSandbox, Proxy
from mainspring.config import FOLDER, Settings
from mainspring.core.lazy_module import LazyModule
from mainspring.harness.permissions import abandoned_guards
from mainspring.harness.permissions.protected_path_watcher import still_protected
from mainspring.runtime.session.session_paths import SessionPaths, thread_sandbox_id
from mainspring.runtime.thread_setup.sandbox_plan import sandbox_folders, watched_paths
from mainspring.wiring.sandbox_settings import egress_rules
from mainspring.wiring.user_vault import user_vault

if TYPE_CHECKING:
    from mainspring.wiring import session_egress
else:
    session_egress = LazyModule("mainspring.wiring.session_egress")  # most sessions have none

SandboxPool: TypeAlias = pools.SandboxPool[SessionPaths]
SandboxRequest: TypeAlias = pools.SandboxRequest[SessionPaths]


def sandbox_pool(
    settings: Settings, *, is_unsandboxed: bool = False, most_idle: int = MAX_IDLE
) -> SandboxPool:
    return pools.SandboxPool(
        _SandboxPlans(settings),
        cache=Path(settings.home, FOLDER, "sandboxes.json"),
        is_unsandboxed=is_unsandboxed,
        container_is_boundary=settings.container_is_boundary,
        most_idle=most_idle,
    )


class _SandboxPlans(Struct, frozen=True):
    settings: Settings

    def spec(self, request: SandboxRequest) -> SandboxSpec:
        environment = request.environment
        folders = sandbox_folders(request.paths, environment.read_only)
        return SandboxSpec(
            session_id=request.session_id,
            **structs.asdict(folders),
            sandbox_limits=environment.sandbox_limits,
            network=bool(environment.networking),
            guard=folders.state,
            end_guard=abandoned_guards.end_command(folders.state),
        )

    def end_abandoned_guards(self, states: Path) -> list[str]:
        return abandoned_guards.end_abandoned_guards(states)

    async def prepare(
        self, request: SandboxRequest, spec: SandboxSpec, cleanup: AsyncExitStack
    ) -> PreparedSandbox:
        watched = await to_thread.run_sync(watched_paths, request.paths)
        share, proxy, variables = await _open_egress(self.settings, request, cleanup)
        spec = replace(spec, share=share, protected=(*spec.protected, *watched.paths))

        def spec_of_another(name: str) -> SandboxSpec:
            return replace(
                spec,
                state=spec.state.with_name(thread_sandbox_id(spec.state.name, name)),
                protected=still_protected(spec.workspace, spec.protected),
            )

        return PreparedSandbox(
            spec=spec,
            spec_of_another=spec_of_another,
            path_watcher=watched.watcher,
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
