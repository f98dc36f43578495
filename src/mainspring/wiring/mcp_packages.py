"""Installs packages of MCP servers and environments, in a sandbox that cannot see the user's
files."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path

import msgspec

from mainspring.capabilities.mcp.programs import package_cache
from mainspring.capabilities.mcp.programs.package_cache import PackageCache, find_toolchain
from mainspring.capabilities.mcp.programs.package_request import Installer, package_requests
from mainspring.capabilities.sandbox.backend import SYSTEM_FOLDERS, find_agent_interpreter
from mainspring.capabilities.sandbox.sandbox_environment import (
    EnvironmentPackages,
    SandboxEnvironment,
)
from mainspring.capabilities.sandbox.sandbox_session import SandboxSession
from mainspring.config import Settings
from mainspring.core.ids import new_id
from mainspring.core.ports import ExecRequest, ExecResult
from mainspring.runtime.mcp_server import McpServer
from mainspring.wiring.sandbox_settings import session_paths
from mainspring.wiring.sandboxes import SandboxPool

_FOLDER, _ENVIRONMENT_FOLDER = Path(".mainspring/mcp-packages"), Path(".mainspring/packages")
_INSTALL_SECONDS = 600.0  # for the packages of one server, over a slow line


def sandbox_packages(
    settings: Settings,
    pool: SandboxPool,
    session: SandboxSession,
    say: Callable[[str], None] = lambda _: None,
) -> PackageCache:
    """For the MCP servers of a session."""
    return _open_cache(settings, pool, session.opened_with[0], session.workspace, say, _FOLDER)


async def with_packages(
    settings: Settings,
    pool: SandboxPool,
    environment: SandboxEnvironment,
    workspace: Path,
    say: Callable[[str], None],
) -> SandboxEnvironment:
    """The environment with its packages, which are installed if needed.

    Raises: McpFailed, SandboxFailed.
    """
    cache = _open_cache(settings, pool, environment, workspace, say, _ENVIRONMENT_FOLDER)
    packages = environment.packages
    requests = package_requests(packages.python, packages.npm, packages.apt)
    folders: dict[Installer, Path] = {
        request.installer: await cache.folder(request) for request in requests
    }
    read_only = (*folders.values(), *(cache.toolchain.read_only if "npm" in folders else ()))
    return msgspec.structs.replace(
        environment,
        read_only=(*environment.read_only, *map(str, read_only)),
        variables={**environment.variables, **cache.toolchain.layer_variables(folders)},
    )


def forget_packages(settings: Settings, server: McpServer) -> bool:
    """Unpin the packages of a server, so that they are loaded again; False if none were pinned."""
    folder = Path(settings.home) / _FOLDER
    return package_cache.forget_packages(folder, server.command, server.args)


def _open_cache(
    settings: Settings,
    pool: SandboxPool,
    environment: SandboxEnvironment,
    workspace: Path,
    say: Callable[[str], None],
    folder: Path,
) -> PackageCache:
    toolchain = find_toolchain(
        settings.environment,
        find_agent_interpreter().path,
        SYSTEM_FOLDERS,
        home=Path(settings.home),
        with_apt=bool(environment.packages.apt),
    )
    own = msgspec.structs.replace(
        environment,
        packages=EnvironmentPackages(),
        networking=toolchain.networking,
        read_only=toolchain.visible_to_installers,
        secrets=(),
        variables={},
    )

    async def install(folder: Path, argv: tuple[str, ...], env: Mapping[str, str]) -> ExecResult:
        key = new_id("pkg")
        paths, credentials = session_paths(settings, folder, key), toolchain.credentials
        sandbox = await pool.open_session(key, paths, own, credentials)
        try:
            opened = await sandbox.open()
            variables = {**toolchain.registry_variables(opened.variables), **env}
            return await sandbox.run(
                ExecRequest(key=key, argv=argv, env=variables, wall_seconds=_INSTALL_SECONDS)
            )
        finally:
            await pool.release(key)
            await pool.discard(key)

    return PackageCache(Path(settings.home) / folder, workspace, toolchain, install, say)
