"""Packages of `npx` and `uvx` servers, and of environments: downloaded once, pinned by version and
hash, used offline.

Each request has a pin (`KEY.pin`, a lock file of its installer) and a folder (`KEY`) that servers
see read-only. If the folder is gone, it is installed again from the pin.
"""

from __future__ import annotations

import shutil
from base64 import b64encode
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Protocol, cast
from urllib.parse import quote, unquote, urlsplit

import anyio
import msgspec
from anyio import to_thread

from mainspring.capabilities.mcp.programs import apt_packages
from mainspring.capabilities.mcp.programs.package_request import (
    Installer,
    PackageRequest,
    package_request,
)
from mainspring.capabilities.mcp.programs.program_files import ProgramPlaces, visible_program
from mainspring.capabilities.mcp.protocol.foreign_text import clean_line
from mainspring.core.errors import InvalidInput, McpFailed, SandboxFailed
from mainspring.core.ids import new_id
from mainspring.core.ports import Credential, ExecResult
from mainspring.files.atomic_file import read_bounded, write_atomic

_MAX_PIN_BYTES = 16 << 20  # of the file of pins
_PATH = "/usr/local/bin:/usr/bin:/bin"
_CACHE = ".cache"
_NPM_LOCK = "package-lock.json"
_UV_LOCK = "requirements.txt"
_UV_PYTHON = "env/bin/python"
_NPM_OPTIONS = (
    *("--no-audit", "--no-fund", "--no-update-notifier", "--loglevel=error"),
    # a person waits, and npm's defaults wait up to minutes between attempts
    *("--fetch-retries=2", "--fetch-retry-mintimeout=500", "--fetch-retry-maxtimeout=5000"),
)


_APT_SOURCES = "MAINSPRING_APT_SOURCES"
_REGISTRIES = ("npm_config_registry", "NPM_CONFIG_REGISTRY", "UV_DEFAULT_INDEX", "UV_INDEX_URL")
_REGISTRY_ADDRESSES = (
    *("127.0.0.0/8", "10.0.0.0/8", "172.16.0.0/12", "192.168.0.0/16", "fc00::/7"),
    "100.64.0.0/10",  # networks of carriers and VPNs
    *(
        "192.0.2.0/24",
        "198.18.0.0/15",
        "198.51.100.0/24",
        "203.0.113.0/24",
    ),  # proxies that answer DNS
)
"""Where a registry may be besides public addresses: not at those of a platform's metadata."""


class RunInstaller(Protocol):
    async def __call__(
        self, folder: Path, argv: tuple[str, ...], env: Mapping[str, str]
    ) -> ExecResult:
        """Run a program in a sandbox that can change only `folder` and reach registries; it has
        their variables.

        Raises: SandboxFailed.
        """
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class Toolchain:
    """Programs of this machine that install packages."""

    npm: str | None
    uv: str | None
    python: str
    """The path of Python in the sandbox."""
    node_home: Path | None = None
    """The folder of node and npm, if it is outside the system folders of a sandbox."""
    variables: Mapping[str, str] = field(default_factory=dict[str, str], repr=False)
    """The addresses of registries, by the variables of installers. They may have a login."""
    user_path: str | None = None
    """The user's own `PATH`."""
    home: Path = Path("/")
    system_folders: tuple[Path, ...] = ()
    apt: str | None = None
    apt_sources: Mapping[str, bytes] = field(default_factory=dict[str, bytes])
    """The source lists of apt, by name."""

    @property
    def path(self) -> str:
        return _PATH if self.node_home is None else f"{self.node_home / 'bin'}:{_PATH}"

    @property
    def read_only(self) -> tuple[Path, ...]:
        """The folders that servers must see."""
        return () if self.node_home is None else (self.node_home,)

    @property
    def visible_to_installers(self) -> tuple[str, ...]:
        own = (*map(str, self.read_only), *([self.uv] if self.uv else []))
        return (*own, *(apt_packages.readable_files() if self.apt_sources else ()))

    @property
    def networking(self) -> dict[str, object]:
        """Every public host, and the registries that the user's environment and the sources of apt
        name, wherever they are: nothing of the user's is in the sandbox of an installer."""
        hosts: list[dict[str, object]] = []
        urls = (*self.variables.values(), *apt_packages.source_urls(self.apt_sources))
        for url in map(urlsplit, urls):
            if url.hostname is not None:
                hosts.append(
                    {
                        "host": url.hostname,
                        "plain_http": url.scheme == "http",
                        "ports": [] if url.port is None else [url.port],
                        "addresses": list(_REGISTRY_ADDRESSES),
                    }
                )
        return {"type": "unrestricted", "allowed_hosts": hosts}

    @property
    def credentials(self) -> tuple[Credential, ...]:
        """The passwords of registries, which only the proxy sees: packages run programs when they
        are installed."""
        urls = {name: urlsplit(value) for name, value in self.variables.items()}
        return tuple(
            Credential(name=_password_of(name), value=unquote(url.password), hosts=(url.hostname,))
            for name, url in urls.items()
            if url.password and url.hostname
        )

    def registry_variables(self, placeholders: Mapping[str, str]) -> dict[str, str]:
        """The environment that tells installers about registries. `placeholders`: those of
        `credentials`, by name."""
        variables: dict[str, str] = {}
        for name, value in self.variables.items():
            url = urlsplit(value)
            if not url.password:
                variables[name] = value
                continue
            login = f"{unquote(url.username or '')}:{placeholders[_password_of(name)]}"
            host = url.netloc.rpartition("@")[2]
            if name.startswith("UV_"):
                variables[name] = url._replace(netloc=f"{quote(login, safe=':')}@{host}").geturl()
            else:
                variables[name] = url._replace(netloc=host).geturl()
                folder = url.path if url.path.endswith("/") else f"{url.path}/"
                encoded = b64encode(login.encode()).decode()
                variables[f"npm_config_//{host}{folder}:_auth"] = encoded  # also for archives
        return variables

    def layer_variables(self, folders: Mapping[Installer, Path]) -> dict[str, str]:
        """Environment variables with which programs search in the installed folders first."""
        programs: dict[Installer, str] = {"uv": "env/bin", "npm": "node_modules/.bin"}
        paths = [str(folders[name] / place) for name, place in programs.items() if name in folders]
        variables = {"PATH": self.path}
        if "apt" in folders:
            variables = apt_packages.variables(folders["apt"] / apt_packages.ROOT, self.path)
        variables["PATH"] = ":".join((*paths, variables["PATH"]))
        if "uv" in folders:
            variables["VIRTUAL_ENV"] = str(folders["uv"] / "env")
        if "npm" in folders:
            variables["NODE_PATH"] = str(folders["npm"] / "node_modules")
        return variables


def _password_of(variable: str) -> str:
    return f"{variable.upper()}_PASSWORD"


def find_toolchain(
    environment: Mapping[str, str],
    python: Path,
    system_folders: Sequence[str | Path],
    *,
    home: Path,
    with_apt: bool = False,
) -> Toolchain:
    """`python`: the interpreter in sandboxes, which all show `system_folders`. `home`: the user's.

    Raises: InvalidInput: the sources of apt cannot be read.
    """
    path = environment.get("PATH")
    return Toolchain(
        npm=shutil.which("npm", path=path),
        uv=shutil.which("uv", path=path),
        python=str(python),
        node_home=_node_home(shutil.which("node", path=path), system_folders),
        variables={name: environment[name] for name in _REGISTRIES if name in environment},
        user_path=path,
        home=home,
        system_folders=tuple(map(Path, system_folders)),
        apt=shutil.which("apt-get", path=path),
        apt_sources=apt_packages.read_sources(environment.get(_APT_SOURCES)) if with_apt else {},
    )


def _node_home(node: str | None, system_folders: Sequence[str | Path]) -> Path | None:
    """The folder of a node outside the system folders, as version managers install it."""
    if node is None or any(Path(node).is_relative_to(folder) for folder in system_folders):
        return None
    home = Path(node).resolve().parent.parent
    return home if (home / "lib" / "node_modules" / "npm").is_dir() else None


@dataclass(frozen=True, slots=True, kw_only=True)
class ServerProgram:
    argv: tuple[str, ...]
    env: Mapping[str, str] = field(default_factory=dict[str, str])
    read_only: tuple[Path, ...] = ()
    """Folders that it needs in addition to the workspace."""


class PackageCache:
    """`workspace`: the project's; programs that it has installed itself are used first."""

    def __init__(
        self,
        folder: Path,
        workspace: Path,
        toolchain: Toolchain,
        run: RunInstaller,
        say: Callable[[str], None],
    ) -> None:
        self._folder = folder
        self._workspace = workspace
        self.toolchain = toolchain
        self._run = run
        self._say = say
        self._install_locks: dict[str, anyio.Lock] = {}

    async def program(self, command: str, args: tuple[str, ...]) -> ServerProgram:
        """The program to run for a server's command.

        Raises: McpFailed: its packages cannot be installed.
        """
        request = package_request(command, args)
        if request is None or _is_of_project(request, self._workspace):
            return await to_thread.run_sync(self._own_program, command, args)
        try:
            folder = await self.folder(request)
        except SandboxFailed as error:
            raise McpFailed(
                f"its packages cannot be installed: {error}. Or install them yourself (npm, pipx,"
                f" uv tool), and name their program instead of {command}"
            ) from error
        program = await to_thread.run_sync(_program_in, folder, request)
        return ServerProgram(
            argv=(str(program), *request.args),
            env={"PATH": self.toolchain.path},
            read_only=(folder, *self.toolchain.read_only),
        )

    def _own_program(self, command: str, args: tuple[str, ...]) -> ServerProgram:
        """A program of the user's, wherever it is installed."""
        places = ProgramPlaces(
            home=self.toolchain.home,
            workspace=self._workspace,
            system_folders=self.toolchain.system_folders,
            path=self.toolchain.user_path,
        )
        program = visible_program(command, args, places)
        if program is None:
            return ServerProgram(argv=(command, *args))
        path = ":".join((*program.path, self.toolchain.path))
        return ServerProgram(argv=program.argv, env={"PATH": path}, read_only=program.folders)

    async def folder(self, request: PackageRequest) -> Path:
        """The folder with the installed packages; installs them if necessary.

        Raises: McpFailed, SandboxFailed.
        """
        folder = self._folder / request.key
        async with self._install_locks.setdefault(request.key, anyio.Lock()):
            if not await to_thread.run_sync(folder.is_dir):
                await self._install(request)
        return folder

    async def _install(self, request: PackageRequest) -> None:
        """Install packages. Another process may do the same; the first to finish wins."""
        pin = await to_thread.run_sync(self._read_pin, request)
        self._say(f"packages are installed: {' '.join(request.packages)}")
        staging = self._folder / f"{request.key}.{new_id('new')}"
        try:
            await to_thread.run_sync(lambda: staging.mkdir(parents=True, mode=0o755))
            install = {"npm": self._install_npm, "uv": self._install_uv, "apt": self._install_apt}
            lock = await install[request.installer](request, staging, pin)
            await to_thread.run_sync(self._finish, request, staging, lock)
        except OSError as error:
            raise McpFailed(f"its packages cannot be stored: {error.strerror}") from error
        finally:
            with anyio.CancelScope(shield=True):
                await to_thread.run_sync(lambda: shutil.rmtree(staging, ignore_errors=True))

    async def _install_npm(self, request: PackageRequest, staging: Path, pin: _Pin | None) -> bytes:
        files = {"package.json": b'{"private":true}'} if pin is None else pin.files
        for name, content in files.items():
            await to_thread.run_sync((staging / name).write_bytes, content)
        what = ("install", *request.packages) if pin is None else ("ci",)
        if (npm := self.toolchain.npm) is None:
            raise McpFailed("npx needs npm on this machine: install Node.js")
        await self._step(staging, npm, *what, *_NPM_OPTIONS, f"--cache={staging / _CACHE}")
        return await to_thread.run_sync(_npm_pin, staging)

    async def _install_uv(self, request: PackageRequest, staging: Path, pin: _Pin | None) -> bytes:
        if (uv := self.toolchain.uv) is None:
            raise McpFailed("uvx needs uv on this machine: install uv")
        cache = ("--cache-dir", str(staging / _CACHE), "--no-config")
        python = request.python or self.toolchain.python
        await self._step(
            staging, uv, "venv", "env", "--relocatable", "--no-python-downloads",
            "--python", python,
            *cache,
        )  # fmt: skip
        lock = staging / _UV_LOCK
        if pin is None:
            requirements = "".join(f"{item}\n" for item in request.packages)
            await to_thread.run_sync((staging / "requirements.in").write_text, requirements)
            await self._step(
                staging, uv, "pip", "compile", "requirements.in", "--output-file", _UV_LOCK,
                "--generate-hashes", "--no-header", "--quiet", "--python", _UV_PYTHON, *cache,
            )  # fmt: skip
        else:
            await to_thread.run_sync(lock.write_bytes, pin.files[_UV_LOCK])
        await self._step(
            staging, uv, "pip", "install", "--require-hashes", "--requirement", _UV_LOCK,
            "--link-mode", "copy", "--python", _UV_PYTHON, *cache,
        )  # fmt: skip
        return _encoded_pin({_UV_LOCK: await to_thread.run_sync(lock.read_bytes)})

    async def _install_apt(self, request: PackageRequest, staging: Path, pin: _Pin | None) -> bytes:
        if (apt := self.toolchain.apt) is None:
            raise McpFailed("packages of apt need apt-get on this machine, as Debian has it")
        folder, pinned = staging / _CACHE, None if pin is None else pin.files[apt_packages.PIN]
        sources = self.toolchain.apt_sources
        await to_thread.run_sync(apt_packages.write_sources, folder, sources)
        await to_thread.run_sync((staging / apt_packages.ROOT).mkdir)
        await self._step(staging, apt, *apt_packages.options(folder), "update", "--error-on=any")
        download = apt_packages.download_command(apt, folder, request.packages, pinned)
        await self._step(staging, *download)
        loaded = await to_thread.run_sync(apt_packages.hashes, folder)
        if pinned is not None:
            apt_packages.check_pin(loaded, pinned)
        for argv in apt_packages.unpacking(folder):
            await self._step(staging, *argv)
        await to_thread.run_sync(apt_packages.relocate_links, staging / apt_packages.ROOT)
        return _encoded_pin({apt_packages.PIN: apt_packages.encode_pin(loaded)})

    async def _step(self, staging: Path, *argv: str) -> None:
        env = {"PATH": self.toolchain.path, "HOME": str(staging)}
        result = await self._run(staging, argv, {**env, "NO_PROXY": "", "no_proxy": ""})
        if result.status != 0:
            text = result.stderr.head + result.stderr.tail + result.stdout.tail
            lines = [line for line in text.decode("utf-8", "replace").splitlines() if line.strip()]
            why = clean_line(" ".join(lines[-6:]), 500) or f"status {result.status}"
            raise McpFailed(f"its packages cannot be installed: {why}")

    def _finish(self, request: PackageRequest, staging: Path, lock: bytes) -> None:
        shutil.rmtree(staging / _CACHE, ignore_errors=True)
        pin = self._folder / f"{request.key}.pin"
        if not pin.exists():
            write_atomic(pin, lock)
        try:
            staging.rename(self._folder / request.key)
        except OSError:
            if not (self._folder / request.key).is_dir():
                raise

    def _read_pin(self, request: PackageRequest) -> _Pin | None:
        file = self._folder / f"{request.key}.pin"
        try:
            content = read_bounded(file, max_bytes=_MAX_PIN_BYTES)
            return None if content is None else msgspec.json.decode(content, type=_Pin)
        except (msgspec.MsgspecError, InvalidInput, RecursionError) as error:
            raise McpFailed(f"{file}: {error}; remove it to pin its packages again") from error


def forget_packages(folder: Path, command: str, args: tuple[str, ...]) -> bool:
    """Remove the pinned packages of a server, so that they are downloaded again; False if there
    were none."""
    request = package_request(command, args)
    pin = None if request is None else folder / f"{request.key}.pin"
    if request is None or pin is None or not pin.exists():
        return False
    pin.unlink()
    shutil.rmtree(folder / request.key, ignore_errors=True)
    return True


class _Pin(msgspec.Struct, frozen=True):
    files: dict[str, bytes]
    """The files that an installer needs to install exactly the same again."""


def _encoded_pin(files: dict[str, bytes]) -> bytes:
    return msgspec.json.encode(_Pin(files))


def _npm_pin(staging: Path) -> bytes:
    return _encoded_pin(
        {name: (staging / name).read_bytes() for name in ("package.json", _NPM_LOCK)}
    )


def _is_of_project(request: PackageRequest, workspace: Path) -> bool:
    """Whether the project itself has installed the program, which then runs instead of another of
    the same name."""
    name = request.program or request.main_package.rpartition("/")[2]
    return request.installer == "npm" and (workspace / "node_modules" / ".bin" / name).exists()


def _program_in(folder: Path, request: PackageRequest) -> Path:
    package = request.main_package
    if request.installer == "uv":
        program = folder / "env" / "bin" / (request.program or package)
    else:
        name = request.program or _main_program(folder / "node_modules" / package, package)
        program = folder / "node_modules" / ".bin" / name
    if not program.exists():
        raise McpFailed(f"the package {package} has no program {program.name}")
    return program


def _main_program(folder: Path, package: str) -> str:
    """The program to run, as npx chooses it: the only one, or the one with the package's name."""
    own = package.rpartition("/")[2]
    try:
        fields = cast("object", msgspec.json.decode((folder / "package.json").read_bytes()))
    except (OSError, msgspec.MsgspecError, RecursionError) as error:
        raise McpFailed(f"the package {package} cannot be read") from error
    programs = cast("dict[str, object]", fields).get("bin") if isinstance(fields, dict) else None
    names = list(cast("dict[str, object]", programs)) if isinstance(programs, dict) else [own]
    if len(names) == 1:
        return names[0]
    if own in names:
        return own
    raise McpFailed(f"the package {package} has several programs: name one with -p {package} NAME")
