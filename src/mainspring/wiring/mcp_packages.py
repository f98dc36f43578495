"""Where packages of MCP servers and environments are installed: in a sandbox that sees nothing of
the user's.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable, Iterable, Mapping
from functools import partial
from pathlib import Path
from urllib.parse import urlsplit

import msgspec

from mainspring.capabilities.mcp import apt_packages, package_cache
from mainspring.capabilities.mcp.package_cache import PackageCache, Toolchain
from mainspring.capabilities.mcp.package_request import (
    Installer,
    PackageRequest,
    plain_packages,
)
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
from mainspring.wiring.sandbox_environment import session_paths
from mainspring.wiring.sandbox_pool import SandboxPool

_FOLDER = Path(".mainspring") / "mcp-packages"
_ENVIRONMENT_FOLDER = Path(".mainspring") / "packages"
_REGISTRIES = ("npm_config_registry", "NPM_CONFIG_REGISTRY", "UV_DEFAULT_INDEX", "UV_INDEX_URL")
_APT_SOURCES = "MAINSPRING_APT_SOURCES"
_INSTALL_SECONDS = 600.0
_PRIVATE_ADDRESSES = ("127.0.0.0/8", "10.0.0.0/8", "172.16.0.0/12", "192.168.0.0/16", "fc00::/7")


def open_package_cache(
    settings: Settings,
    pool: SandboxPool,
    environment: SandboxEnvironment,
    workspace: Path,
    say: Callable[[str], None] = lambda _: None,
    folder: Path = _FOLDER,
) -> PackageCache:
    variables = {name: settings.environment[name] for name in _REGISTRIES
                 if name in settings.environment}  # fmt: skip
    path = settings.environment.get("PATH")
    has_apt = bool(environment.packages.apt)
    sources = apt_packages.read_sources(settings.environment.get(_APT_SOURCES)) if has_apt else {}
    toolchain = Toolchain(
        npm=shutil.which("npm", path=path),
        uv=shutil.which("uv", path=path),
        python=str(find_agent_interpreter().path),
        node_home=_node_home(shutil.which("node", path=path)),
        variables=variables,
        apt=shutil.which("apt-get", path=path),
        apt_sources=sources,
    )
    shown = (*toolchain.read_only, *([toolchain.uv] if toolchain.uv else []))
    if has_apt:
        shown += tuple(filter(os.path.exists, (*apt_packages.KEYRINGS, apt_packages.STATUS)))
    own = msgspec.structs.replace(
        environment,
        packages=EnvironmentPackages(),
        networking=_networking((*variables.values(), *apt_packages.source_urls(sources))),
        read_only=tuple(map(str, shown)),
        secrets=(),
        variables={},
    )
    run = partial(_install, settings, pool, own)
    return PackageCache(Path(settings.home) / folder, workspace, toolchain, run, say)


def sandbox_packages(
    settings: Settings,
    pool: SandboxPool,
    session: SandboxSession,
    say: Callable[[str], None] = lambda _: None,
) -> PackageCache:
    """For the MCP servers of a session."""
    return open_package_cache(settings, pool, session.opened_with[0], session.workspace, say)


async def with_packages(
    settings: Settings,
    pool: SandboxPool,
    environment: SandboxEnvironment,
    workspace: Path,
    say: Callable[[str], None],
) -> SandboxEnvironment:
    """The environment with its packages, installed if they were not yet.

    Raises: McpFailed, SandboxFailed.
    """
    cache = open_package_cache(settings, pool, environment, workspace, say, _ENVIRONMENT_FOLDER)
    requests = package_requests(environment.packages)
    folders: dict[Installer, Path] = {
        request.installer: await cache.folder(request) for request in requests
    }
    return with_layers(environment, folders, cache.toolchain)


def forget_packages(settings: Settings, server: McpServer) -> bool:
    """Have the packages of a server loaded anew next time; False if none were pinned."""
    folder = Path(settings.home) / _FOLDER
    return package_cache.forget_packages(folder, server.command, server.args)


def package_requests(packages: EnvironmentPackages) -> list[PackageRequest]:
    """Raises: InvalidInput: one of them is no plain package."""
    requests: list[PackageRequest] = []
    if packages.python:
        requests.append(plain_packages("uv", packages.python))
    if packages.npm:
        requests.append(plain_packages("npm", packages.npm))
    if packages.apt:
        requests.append(plain_packages("apt", packages.apt))
    return requests


def with_layers(
    environment: SandboxEnvironment, folders: Mapping[Installer, Path], toolchain: Toolchain
) -> SandboxEnvironment:
    """Programs see the folders read-only, and find what is in them first."""
    programs: dict[Installer, str] = {"uv": "env/bin", "npm": "node_modules/.bin"}
    paths = [
        str(folders[installer] / place) for installer, place in programs.items()
        if installer in folders
    ]  # fmt: skip
    found = {"PATH": toolchain.path}
    if "apt" in folders:
        found = apt_packages.variables(folders["apt"] / apt_packages.ROOT, toolchain.path)
    variables = {**environment.variables, **found, "PATH": ":".join((*paths, found["PATH"]))}
    if "uv" in folders:
        variables["VIRTUAL_ENV"] = str(folders["uv"] / "env")
    if "npm" in folders:
        variables["NODE_PATH"] = str(folders["npm"] / "node_modules")
    shown = (*folders.values(), *(toolchain.read_only if "npm" in folders else ()))
    return msgspec.structs.replace(
        environment,
        read_only=(*environment.read_only, *map(str, shown)),
        variables=variables,
    )


async def _install(
    settings: Settings,
    pool: SandboxPool,
    environment: SandboxEnvironment,
    folder: Path,
    argv: tuple[str, ...],
    env: Mapping[str, str],
) -> ExecResult:
    key = new_id("pkg")
    sandbox = await pool.open_session(key, session_paths(settings, folder, key), environment, ())
    try:
        return await sandbox.run(
            ExecRequest(key=key, argv=argv, env=env, wall_seconds=_INSTALL_SECONDS)
        )
    finally:
        await pool.release(key)
        await pool.discard(key)


def _networking(registries: Iterable[str]) -> dict[str, object]:
    """Every public host, and the registries that the user's environment or the sources of apt
    name, wherever they are: nothing of the user's is in that sandbox."""
    hosts: list[dict[str, object]] = []
    for url in map(urlsplit, registries):
        if url.hostname is not None:
            hosts.append(
                {
                    "host": url.hostname,
                    "plain_http": url.scheme == "http",
                    "ports": [] if url.port is None else [url.port],
                    "addresses": list(_PRIVATE_ADDRESSES),
                }
            )
    return {"type": "unrestricted", "allowed_hosts": hosts}


def _node_home(node: str | None) -> Path | None:
    """The folder of a node that is outside those that every sandbox shows, as version managers
    install it."""
    if node is None or any(Path(node).is_relative_to(folder) for folder in SYSTEM_FOLDERS):
        return None
    home = Path(node).resolve().parent.parent
    return home if (home / "lib" / "node_modules" / "npm").is_dir() else None
